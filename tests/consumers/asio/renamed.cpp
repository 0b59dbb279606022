// SPDX-License-Identifier: Apache-2.0
// Operations in boost::asio::awaitable, with an Asio that gives its private handler another name: a macro renames it.
#define awaitable_async_op_handler renamed_handler
#include <boost/asio/awaitable.hpp>
#undef awaitable_async_op_handler

#include <tutti/tutti.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

namespace asio = boost::asio;

namespace {

void expect(bool fact, const char* text) {
  if (!fact) throw std::runtime_error(text);
}

asio::awaitable<void> awaits(tutti::communicator world) {
  const int other = 1 - world.rank();
  int sent = world.rank(), got = -1;
  if (world.rank() == 0) co_await world.send(sent, other, 5);
  const tutti::status st = co_await world.recv(got, other, 5);
  if (world.rank() == 1) co_await world.send(sent, other, 5);
  expect(st.source == other && got == other, "a message");
  std::vector<float> x(1000, static_cast<float>(world.rank() + 1));
  co_await world.all_reduce(x, tutti::sum);
  expect(x[999] == 3, "a sum");
  bool failed = false;
  try {
    co_await world.recv(got, 7);
  } catch (const tutti::error& e) {
    failed = e.code() == tutti::errc::invalid_argument;
  } catch (const boost::system::system_error& e) {
    failed = e.code() == tutti::errc::invalid_argument;
  }
  expect(failed, "an error");
}

asio::awaitable<void> waits_for_ever(tutti::communicator world) {
  int never = 0;
  co_await world.recv(never, 1 - world.rank(), 6);
}

tutti::task<> rank(tutti::communicator world) {
  co_await asio::co_spawn(world.get_executor(), awaits(world), asio::deferred);

  asio::cancellation_signal stop;
  bool cancelled = false, ended = false;
  asio::co_spawn(world.get_executor(), waits_for_ever(world),
                 asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr e) {
                   ended = true;
                   cancelled = e != nullptr;
                 }));
  co_await asio::post(world.get_executor(), asio::deferred);
  stop.emit(asio::cancellation_type::terminal);
  co_await world.barrier();
  for (int turns = 0; !ended && turns < 1000; ++turns)
    co_await asio::post(world.get_executor(), asio::deferred);
  expect(cancelled, "a cancellation");
}

}  // namespace

int main() {
  try {
    tutti::run_local(2, rank);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
