// SPDX-License-Identifier: Apache-2.0
#include "core/platform.hpp"

#include <sys/random.h>

namespace tutti::core {
namespace {

class host_platform final : public platform {
 public:
  time_point now() noexcept override { return clock::now(); }
  std::uint64_t random() noexcept override {
    std::uint64_t value = 0;
    while (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    }
    return value;
  }
};

}  // namespace

platform& platform::real() noexcept {
  static host_platform instance;
  return instance;
}

}  // namespace tutti::core
