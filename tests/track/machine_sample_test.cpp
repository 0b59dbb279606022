// SPDX-License-Identifier: Apache-2.0
// The GPU of a rank and its samples, with an emulated driver library, and with the real one if there is one.
#include "track/machine_sample.hpp"

#include "support/skip.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

using namespace tutti::track;

namespace {

class visible_devices {
 public:
  explicit visible_devices(const char* list) {
    list != nullptr ? ::setenv("CUDA_VISIBLE_DEVICES", list, 1) : ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  visible_devices(const visible_devices&) = delete;
  visible_devices& operator=(const visible_devices&) = delete;
  ~visible_devices() {
    before_.empty() ? ::unsetenv("CUDA_VISIBLE_DEVICES")
                    : ::setenv("CUDA_VISIBLE_DEVICES", before_.c_str(), 1);
  }

 private:
  std::string before_ =
      std::getenv("CUDA_VISIBLE_DEVICES") != nullptr ? std::getenv("CUDA_VISIBLE_DEVICES") : "";
};

double busy(int local_rank) {
  gpu_sampler sampler(local_rank, TUTTI_FAKE_NVML_PATH);
  const auto s = sampler.take();
  return s ? s->busy_percent : -1;
}

}  // namespace

TEST_CASE("machine sample: the devices of a host are distributed to its ranks") {
  CHECK(device_of(0, "", 4) == "0");
  CHECK(device_of(5, "", 4) == "1");
  CHECK_FALSE(device_of(0, "", 0));
  CHECK(device_of(1, "3,1", 4) == "1");
  CHECK(device_of(2, "3,1", 4) == "3");
  CHECK(device_of(0, "GPU-three", 4) == "GPU-three");
  CHECK(device_of(1, "2,-1,3", 4) == "2");
  CHECK_FALSE(device_of(0, "-1", 4));
}

TEST_CASE("machine sample: samples have the values of the driver's library") {
  {
    const visible_devices all(nullptr);
    gpu_sampler sampler(2, TUTTI_FAKE_NVML_PATH);
    const auto s = sampler.take();
    REQUIRE(s);
    CHECK(s->busy_percent == 20);
    CHECK(s->memory_mib == 3072);
    CHECK(busy(4) == 0);
  }
  {
    const visible_devices some("GPU-three,1");
    CHECK(busy(0) == 30);
    CHECK(busy(1) == 10);
  }
  {
    const visible_devices none("");
    CHECK(busy(0) == -1);
  }
  const visible_devices wrong("GPU-four");
  CHECK(busy(0) == -1);
}

TEST_CASE("machine sample: without a library there is no GPU") {
  CHECK_FALSE(gpu_sampler(0, "libno-such-thing.so.1").take());
}

TEST_CASE("machine sample: the GPU of this machine") {
  gpu_sampler sampler(0);
  const auto s = sampler.take();
  if (!s) TUTTI_SKIP("no NVIDIA GPU, or no driver");
  CHECK(s->busy_percent >= 0);
  CHECK(s->busy_percent <= 100);
  CHECK(s->memory_mib > 0);
}
