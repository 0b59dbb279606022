// SPDX-License-Identifier: Apache-2.0
// Uses the templates of the public headers, for users whose warnings are errors.
//
// COMPILES
#include <tutti/gpu.hpp>
#include <tutti/sim.hpp>
#include <tutti/track.hpp>
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <complex>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace {

struct point {
  int a;
  float b;
};

boost::asio::awaitable<void> in_asio(tutti::communicator world, std::vector<float>* x) {
  co_await world.all_reduce(*x, tutti::sum);
  co_await world.send(std::vector<float>(4), 0);
  static_cast<void>(co_await world.recv(*x, 0)(boost::asio::use_awaitable));
}

tutti::task<int> inner(tutti::communicator world) {
  co_await world.barrier();
  co_return 1;
}

tutti::task<> reductions(tutti::communicator world) {
  std::vector<float> floats(10);
  std::vector<double> doubles(10);
  std::vector<int> integers(10);
  std::vector<tutti::float16> halves(10);
  std::vector<std::complex<float>> complex(10);
  bool flag = true;
  unsigned char byte = 0;
  co_await world.all_reduce(floats, tutti::sum);
  co_await world.all_reduce(doubles, tutti::avg);
  co_await world.all_reduce(integers, tutti::bxor);
  co_await world.all_reduce(halves, tutti::premul_sum(0.5));
  co_await world.all_reduce(complex, tutti::product);
  co_await world.all_reduce(flag, tutti::band);
  co_await world.all_reduce(byte, tutti::max);
  co_await world.all_reduce(integers, [](int a, int b) { return a < b ? a : b; });
}

tutti::task<> collectives(tutti::communicator world) {
  std::vector<float> x(10), all(10U * static_cast<unsigned>(world.size()));
  std::vector<point> points(3);
  co_await world.broadcast(points, 0);
  co_await world.reduce(x, tutti::sum, 0);
  co_await world.scan(x, x, tutti::sum);
  co_await world.all_gather(x, all);
  co_await world.gather(x, all, 0);
  co_await world.scatter(all, x, 0);
  co_await world.reduce_scatter(all, x, tutti::sum);
  co_await world.all_to_all(all, all);
  std::map<std::string, int> object;
  object = co_await tutti::broadcast_object(world, object, 0);
  static_cast<void>(co_await tutti::all_gather_object(world, object));
  const tutti::communicator half = co_await world.split(0, 1);
}

tutti::task<> messages(tutti::communicator world) {
  std::vector<float> x(10);
  tutti::request sending = world.isend(x, 0);
  tutti::request receiving = world.irecv(x, 0);
  const tutti::status st = co_await receiving;
  static_cast<void>(st.count<float>());
  co_await sending;
  tutti::request reducing = tutti::start(world.all_reduce(x, tutti::avg));
  static_cast<void>(co_await tutti::compute([] { return 1; }));
  co_await reducing;
  static_cast<void>(co_await tutti::when_all(world.all_reduce(x, tutti::avg), world.barrier()));
  static_cast<void>(co_await tutti::when_any(world.recv(x, 0), tutti::sleep_for(std::chrono::seconds(1))));
  static_cast<void>(co_await tutti::as_result(world.barrier()));
  co_await tutti::with_timeout(world.barrier(), std::chrono::seconds(1));
}

tutti::task<> steps(tutti::communicator world) {
  std::vector<float> parameters(10), gradient(10);
  std::vector<tutti::sharded_piece<std::span<float>>> pieces;
  pieces.push_back({parameters, gradient, {}});
  auto optimiser = co_await tutti::sharded<std::span<float>>::create(world, pieces);
  optimiser.ready(0);
  const tutti::shard<std::span<float>> own = co_await optimiser.reduced(0);
  if (!own.parameters.empty()) own.parameters[0] -= own.gradient[0];
  optimiser.gather();
  co_await optimiser.gathered();
}

tutti::task<> mixed(tutti::communicator world) {
  std::vector<float> x(10);
  std::future<void> future = world.all_reduce(x, tutti::sum)(boost::asio::use_future);
  co_await boost::asio::co_spawn(world.get_executor(), in_asio(world, &x), boost::asio::deferred);
  boost::asio::steady_timer timer(world.get_executor(), std::chrono::milliseconds(5));
  co_await timer.async_wait(boost::asio::deferred);
  tutti::scope tasks;
  tasks.spawn(reductions(world));
  tasks.spawn(collectives(world));
  tasks.spawn(messages(world));
  tasks.spawn(steps(world));
  co_await tasks.join();
  tutti::channel<int> values(2);
  co_await values.send(co_await inner(world));
  static_cast<void>(co_await values.receive());
}

}  // namespace

int main() { return tutti::run(mixed); }
