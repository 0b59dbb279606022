// SPDX-License-Identifier: Apache-2.0
// The devices that all tests of devices run on, and the tests that several backends share.
#pragma once

#include "support/local_world.hpp"
#include "support/variable.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tutti/emulated.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace tutti::test {

// One physical device, which all ranks of a test share, and its controls.
struct bench {
  std::function<gpu::device(const communicator&)> open;
  // Makes the device fail with this text after n more pieces of work; null if it cannot be made to.
  std::function<void(std::uint64_t n, const std::string& why)> fail_after;
  // No work starts on the device while this is true; may be null, too.
  std::function<void(bool)> pause;
  std::function<void(const gpu::stream&, bool)> set_capturing;
  std::function<std::size_t()> allocations;  // live ones, of device memory; may be null
  bool tells_why = true;                     // the text of fail_after reaches the error
  std::function<std::string()> misuse;       // the last misuse of the driver's interface; null: not counted
  std::vector<std::shared_ptr<variable>> scene;  // environment of the bench
};

struct backend {
  std::string name;
  std::function<bench()> make;
};

// The file of the stand-in for libcuda, libnccl or oneCCL's libccl: as built, or in TUTTI_FAKES_DIR.
std::string stand_in(const std::string& library);

// The controls of the stand-in for libcuda.
class fake_cuda {
 public:
  fake_cuda();
  void (*reset)(int, std::uint64_t, std::uint64_t, int) = nullptr;
  void (*fail_after)(int, std::uint64_t, const char*) = nullptr;
  void (*refuse_events_after)(int) = nullptr;
  void (*pause)(int, int) = nullptr;
  void (*at_retain)(void (*)(void*), void*) = nullptr;
  void (*set_capturing)(void*, int) = nullptr;
  std::uint64_t (*allocations)(int) = nullptr;
  std::uint64_t (*misuses)() = nullptr;
  const char* (*last_misuse)() = nullptr;
};

// The controls of the driver for Level Zero that runs on the CPU, under the real loader.
class level_zero_driver {
 public:
  // Why it cannot be used here; empty if it can. From the first call on the loader finds this driver.
  static std::string why_not();
  level_zero_driver();
  void (*reset)(std::uint64_t adversary, std::uint64_t delay_us, int in_order) = nullptr;
  void (*fail_after)(int, std::uint64_t) = nullptr;
  void (*pause)(int, int) = nullptr;
  void (*refuse_barriers)(int) = nullptr;
  std::uint64_t (*allocations)(int) = nullptr;
  std::uint64_t (*misuses)() = nullptr;
  const char* (*last_misuse)() = nullptr;
};

// Emulated devices with several options, the stand-ins for CUDA and Level Zero, and CUDA if there is a GPU.
// cuda_test and level_zero_test count what is absent. TUTTI_TEST_DEVICES selects names that begin with it.
const std::vector<backend>& backends();
// Runs main(world, bench) on `ranks` ranks for each backend.
void on_each_backend(int ranks, const std::function<task<>(communicator, bench*)>& main);

// ---- operations on memory of devices ----

// A rank, its device, and a stream of the device.
struct place {
  communicator world;
  gpu::device device;
  gpu::stream stream;
};

// Options that force this backend, with short chunks.
inline gpu::open_options with(gpu::backend b) {
  gpu::open_options how;
  how.backend = b;
  how.chunk_bytes = 4096;
  return how;
}

inline task<place> open_on(communicator world, gpu::device device,
                           gpu::open_options how = gpu::open_options()) {
  co_await gpu::open(world, device, how);
  co_return place{world, device, gpu::stream(device)};
}

template <class T = float>
std::vector<T> numbers(int rank, std::size_t n) {
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = static_cast<T>(static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11 + 1));
  return v;
}

// Runs `op(c, in, out, last...)` on host memory without a stream, and on device memory with one. Checks that
// the results are equal and that the input has not changed.
template <class T = float, class Op>
task<> same(place at, std::size_t in_size, std::size_t out_size, Op op) {
  std::vector<T> in = numbers<T>(at.world.rank(), in_size), given = in;
  std::vector<T> expected(out_size, static_cast<T>(77.0F)), out = expected;
  co_await op(at.world, in, expected);
  gpu::device_buffer<T> a(at.device, in_size), b(at.device, out_size);
  co_await at.stream.upload(a, in);
  co_await at.stream.upload(b, out);
  co_await op(at.world, a, b, at.stream);
  co_await at.stream.download(out, b);
  TUTTI_EXPECT(out == expected);
  co_await at.stream.download(in, a);
  TUTTI_EXPECT(in == given);
}

template <class T = float, class Op>
task<> same_in_place(place at, std::size_t size, Op op) {
  std::vector<T> expected = numbers<T>(at.world.rank(), size), out(size);
  gpu::device_buffer<T> x(at.device, size);
  co_await at.stream.upload(x, expected);
  co_await op(at.world, expected);
  co_await op(at.world, x, at.stream);
  co_await at.stream.download(out, x);
  TUTTI_EXPECT(out == expected);
}

// The collectives that every backend serves, with `n` elements in a block.
template <class T = float>
task<> even_collectives(place at, std::size_t n) {
  const auto ranks = static_cast<std::size_t>(at.world.size());
  const int root = at.world.size() - 1;
  co_await same_in_place<T>(at, n,
                            [](auto& c, auto& x, auto&... s) { return c.all_reduce(x, tutti::sum, s...); });
  co_await same_in_place<T>(at, n, [=](auto& c, auto& x, auto&... s) { return c.broadcast(x, root, s...); });
  co_await same_in_place<T>(
      at, n, [=](auto& c, auto& x, auto&... s) { return c.reduce(x, tutti::max, root, s...); });
  co_await same_in_place<T>(at, n * ranks,
                            [](auto& c, auto& x, auto&... s) { return c.all_to_all(x, x, s...); });
  co_await same<T>(
      at, n, n, [](auto& c, auto& i, auto& o, auto&... s) { return c.all_reduce(i, o, tutti::sum, s...); });
  co_await same<T>(at, n, n, [=](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce(i, o, tutti::sum, root, s...);
  });
  co_await same<T>(at, n * ranks, n,
                   [=](auto& c, auto& i, auto& o, auto&... s) { return c.scatter(i, o, root, s...); });
  co_await same<T>(at, n, n * ranks,
                   [=](auto& c, auto& i, auto& o, auto&... s) { return c.gather(i, o, root, s...); });
  co_await same<T>(at, n, n * ranks,
                   [](auto& c, auto& i, auto& o, auto&... s) { return c.all_gather(i, o, s...); });
  co_await same<T>(at, n * ranks, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce_scatter(i, o, tutti::sum, s...);
  });
  co_await same<T>(at, n * ranks, n * ranks,
                   [](auto& c, auto& i, auto& o, auto&... s) { return c.all_to_all(i, o, s...); });
}

// ---- tests of each vendor's library ----

inline task<> averages_and_scaled_sums(place at, std::size_t n) {
  co_await same(at, n, n,
                [](auto& c, auto& i, auto& o, auto&... s) { return c.all_reduce(i, o, tutti::avg, s...); });
  co_await same(at, n, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_reduce(i, o, tutti::premul_sum(0.5F), s...);
  });
}

// A second stream waits for operations that the library may not have yet. The next one follows that stream.
inline task<> many_in_flight(place at) {
  const gpu::stream other(at.device);
  std::vector<gpu::device_buffer<int>> buffers;
  std::vector<request> requests;
  const std::vector<int> ones(100, 1);
  for (int i = 0; i < 20; ++i) {
    gpu::device_buffer<int>& b = buffers.emplace_back(at.device, 100);
    tutti::request up = tutti::start(at.stream.upload(b, ones));
    requests.push_back(tutti::start(at.world.all_reduce(b, tutti::sum, at.stream)));
    other.wait(requests.back());
    requests.push_back(tutti::start(at.world.all_reduce(b, tutti::sum, other)));
  }
  for (request& r : requests) co_await r;
  std::vector<int> out(100);
  for (const gpu::device_buffer<int>& b : buffers) {
    co_await at.stream.download(out, b);
    TUTTI_EXPECT(out[99] == at.world.size() * at.world.size());
  }
  co_await at.world.barrier();
}

// All ranks but the last are members, in reverse order.
inline task<> on_a_split(place at, gpu::backend by) {
  const int ranks = at.world.size(), color = at.world.rank() == ranks - 1 ? -1 : 0;
  communicator part = co_await at.world.split(color, -at.world.rank());
  if (part) {
    gpu::device_buffer<int> a(at.device, 10);
    const std::vector<int> in(10, at.world.rank());
    std::vector<int> out(10);
    co_await at.stream.upload(a, in);
    TUTTI_EXPECT(gpu::backend_for(part.all_reduce(a, tutti::sum, at.stream)).with == by);
    co_await part.all_reduce(a, tutti::sum, at.stream);
    co_await at.stream.download(out, a);
    TUTTI_EXPECT(out[0] == (ranks - 1) * (ranks - 2) / 2);
    co_await at.stream.upload(a, in);
    co_await part.broadcast(a, 0, at.stream);
    co_await at.stream.download(out, a);
    TUTTI_EXPECT(out[0] == ranks - 2);
  }
  co_await at.world.barrier();
}

// Rank 1 does not call the second collective.
inline task<> without_rank_1(place at) {
  gpu::device_buffer<int> a(at.device, 10);
  co_await at.world.broadcast(a, 0, at.stream);
  failure seen;
  if (at.world.rank() == 1) {
    // Rank 1 learns of the failure while it waits for a message that does not come.
    int nothing = 0;
    seen = co_await failure_in(tutti::with_timeout(at.world.recv(nothing, 0), patience));
  } else {
    seen = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  }
  TUTTI_EXPECT(seen.code == errc::timed_out);
  TUTTI_EXPECT(seen.says("not called by rank 1"));
  TUTTI_EXPECT(seen.says("broadcast"));
  co_await at.stream.reached();  // the device still works
  const failure after = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(after.code == errc::communicator_failed);
}

// Rank 1 fails, and the others see it die.
inline task<> rank_1_dies(place at) {
  gpu::device_buffer<int> a(at.device, 10);
  co_await at.world.all_reduce(a, tutti::sum, at.stream);
  co_await at.world.barrier();
  if (at.world.rank() == 1) throw std::runtime_error("rank 1 is ill");
  const failure seen = co_await failure_in(at.world.all_reduce(a, tutti::sum, at.stream));
  TUTTI_EXPECT(seen.code == errc::peer_failed || seen.code == errc::peer_left ||
               seen.code == errc::communicator_failed);
  TUTTI_EXPECT(seen.says("rank 1"));
  co_await at.stream.reached();
}

}  // namespace tutti::test
