// SPDX-License-Identifier: Apache-2.0
// The program runs its io_context itself, and a completion token starts a task there.
//   tutti-run -n 4 own_loop
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <exception>
#include <tutti/tutti.hpp>

namespace asio = boost::asio;

// Returns the number of ranks, counted by an all_reduce.
tutti::task<int> count(tutti::runtime* rt) {
  tutti::communicator world = co_await tutti::init(*rt);
  int ranks = 1;
  co_await world.all_reduce(ranks, tutti::sum);
  co_return world.rank() == 0 ? ranks : 0;
}

int main() {
  asio::io_context context(1);  // one thread runs it, with whatever else is on it
  tutti::runtime rt(context);
  int exit_code = 1;
  const auto counted = [&](std::exception_ptr failure, int ranks) {
    if (failure) std::rethrow_exception(failure);  // leaves context.run()
    if (ranks > 0) std::printf("%d ranks on loops of their own\n", ranks);
    exit_code = 0;
  };
  asio::post(context, [&] { count (&rt)(counted); });
  try {
    context.run();  // returns after the rank has left the world
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  return exit_code;
}
