// SPDX-License-Identifier: Apache-2.0
// The right forms of the mistakes in the files beside this one. If they did not compile, the refusals would
// prove nothing.
//
// COMPILES
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/detached.hpp>
#include <chrono>
#include <complex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

struct name {
  name() = default;
  name(const char* text) : first(*text) {}
  char first = 0;
};
struct settings {
  name of;
  char text[16];
  std::optional<int> seed;
  std::optional<name> nickname;
  std::array<double, 3> rates;
  struct {
    union {
      int a;
      float b;
    };
    const void* handle;
  } more[2];
};

tutti::task<> program(tutti::communicator world) {
  const settings chosen = co_await tutti::broadcast_object(world, settings{}, 0);
  co_await tutti::all_gather_object(world, std::optional<settings>(chosen));
  std::vector<float> values(4);
  const std::vector<int> constants(4);
  co_await world.all_reduce(values, tutti::avg);
  std::vector<std::complex<float>> spectrum(4);
  co_await world.all_reduce(spectrum, tutti::premul_sum(0.5));
  std::vector<tutti::bfloat16> weights(4);
  co_await world.all_reduce(weights, tutti::max);
  bool found = false;
  co_await world.all_reduce(found, tutti::bor);
  co_await world.recv(std::span(values), 0);
  co_await world.send(std::vector<float>(4), 1);  // awaited at once, it outlives the operation
  co_await tutti::with_timeout(world.send(std::vector<float>(4), 1), std::chrono::seconds(1));
  co_await tutti::as_result(
      tutti::with_timeout(world.send(std::vector<float>(4), 1), std::chrono::seconds(1)));
  co_await tutti::when_all(tutti::with_timeout(world.send(std::vector<float>(4), 1), std::chrono::seconds(1)),
                           tutti::as_result(world.send(std::vector<float>(4), 1)));
  tutti::task<> limited = tutti::with_timeout(world.send(values, 1), std::chrono::seconds(1));
  co_await std::move(limited);
  tutti::request sending = world.isend(constants, 1);
  tutti::request moved = std::move(sending);
  co_await moved;
  co_await world.all_reduce(std::vector<float>(4), values, tutti::sum).with(tutti::algorithm::ring);
  const std::vector<std::size_t> counts(2, 4);
  std::vector<float> all(8);
  co_await world.all_gather_v(values, all, std::vector<std::size_t>(2, 4));
  co_await world.gather_v(values, all, {}, 0);
  tutti::request gathering = tutti::start(world.all_gather_v(values, all, counts));
  co_await gathering;
  const tutti::communicator pair = co_await world.group(std::vector<int>(2));
  co_await pair.send(std::span<const int>(constants), 1);
  const std::vector<std::span<float>> parts{std::span(values)};
  co_await world.all_reduce(parts, tutti::sum);
  tutti::request viewed = tutti::start(world.send(std::span<const int>(constants), 1));
  co_await viewed;
  auto splitting = tutti::start(world.split(0, 0));
  const tutti::communicator half = co_await splitting;
  co_await half.barrier();
  const tutti::gpu::device device = co_await tutti::gpu::open(world);
  const tutti::gpu::stream stream(device);
  tutti::gpu::device_buffer<float> x(device, 4), y(device, 4);
  co_await world.all_reduce(x, tutti::sum, stream);
  co_await world.all_reduce(x, y, tutti::sum, stream);
  co_await world.send(x, 1, stream);
  co_await world.send(x, 1, 7, stream);
  tutti::request device_sending =
      tutti::start(world.send(tutti::gpu::device_buffer<float>(device, 4), 1, stream));
  stream.wait(device_sending);
  co_await device_sending;
  auto barrier = world.barrier();
  co_await std::move(barrier);
}

boost::asio::awaitable<void> asio_program(tutti::communicator world) {
  co_await world.send(std::vector<float>(4), 1);
  const std::vector<int> constants(4);
  world.send(constants, 1)(boost::asio::detached);
}

int main() { return tutti::run(program); }
