// SPDX-License-Identifier: Apache-2.0
#include "core/environment.hpp"

#include <sys/random.h>

namespace tutti::core {
namespace {

class machine final : public environment {
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

environment& environment::real() noexcept {
  static machine instance;
  return instance;
}

}  // namespace tutti::core
