// SPDX-License-Identifier: Apache-2.0
// What is peculiar to CUDA: what is said when it is missing, several loops and devices, the program's own
// streams.
#include "gpu/backends.hpp"
#include "support/command.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <tutti/cuda.hpp>
#include <tutti/tutti.hpp>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
namespace gpu = tutti::gpu;
namespace cuda = tutti::cuda;

class library_is {
 public:
  explicit library_is(const char* path) { ::setenv("TUTTI_CUDA_LIBRARY", path, 1); }
  ~library_is() { ::unsetenv("TUTTI_CUDA_LIBRARY"); }
};

task<> missing(communicator world) {
  const auto seen = tutti::test::failure_of([&world] { cuda::open(world, 0); });
  TUTTI_EXPECT(seen.code == errc::not_supported);
  TUTTI_EXPECT(seen.says("/no/such/libcuda.so") && seen.says("driver is not installed") &&
               seen.says("emulated"));
  co_return;
}

task<> opened(communicator world) {
  const gpu::device a = cuda::open(world, 0), again = cuda::open(world, 0), other = cuda::open(world, 1);
  TUTTI_EXPECT(&a.state() == &again.state());
  TUTTI_EXPECT(&a.state() != &other.state());
  TUTTI_EXPECT(a.name() == "cuda device 0 (stand-in)");
  const auto seen = tutti::test::failure_of([&world] { cuda::open(world, 2); });
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("there are 2"));
  cuda::stream s(world, 1);
  TUTTI_EXPECT(s.get() != nullptr);
  const gpu::stream borrowed = cuda::stream::borrow(other, s.get());
  gpu::device_buffer<int> x(other, 100);
  gpu::work w = tutti::start(s.fill(x, std::byte{5}));
  co_await borrowed.reached();
  TUTTI_EXPECT(w.done());
  const gpu::device emulated = tutti::emulated::open(world);
  TUTTI_EXPECT(tutti::test::failure_of([&] { cuda::stream wrong(emulated); }).code == errc::invalid_argument);
}

}  // namespace

TEST_CASE("without CUDA, asking for it says what is missing") {
  const library_is none("/no/such/libcuda.so");
  CHECK(cuda::device_count() == 0);
  CHECK(cuda::why_not().find("/no/such/libcuda.so") != std::string::npos);
  tutti::run_local(1, missing);
}

TEST_CASE("devices are opened once for each loop") {
  const tutti::test::fake_cuda fake;
  fake.reset(2, 0, 0, 1);
  const library_is stand_in(tutti::test::stand_in("cuda").c_str());
  CHECK(cuda::device_count() == 2);
  tutti::run_local(2, opened);
  CHECK(fake.misuses() == 0);
}

TEST_CASE("a GPU is here: every test of devices runs on it as well") {
  if (const std::string why = cuda::why_not(); !why.empty()) TUTTI_SKIP(why);
  CHECK(tutti::test::backends().back().name == "CUDA");
  MESSAGE("on ", cuda::device_count(), " GPUs");
}
