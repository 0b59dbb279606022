// SPDX-License-Identifier: Apache-2.0
// runtime: the engine of one rank, on an Asio io_context; and the ways to start a program.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/init_options.hpp>
#include <tutti/task.hpp>

#include <boost/asio/io_context.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace tutti {

class store;

namespace comm {
class runtime_state;
}

// The engine of one rank: everything of its communicators happens on the thread that runs its io_context.
//
// With an io_context of its own, or yours: then plain `ioc.run()` drives it, beside your own handlers, and
// returns only when the last communicator has gone. One thread runs that io_context, the same for as long as
// the runtime lives: on a second thread run() throws errc::wrong_thread. Destroy communicators before the
// runtime; those left fail with errc::shut_down.
class runtime {
 public:
  runtime();
  explicit runtime(boost::asio::io_context& context);
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  boost::asio::io_context& context() noexcept;
  boost::asio::io_context::executor_type get_executor() noexcept { return context().get_executor(); }

  // Runs the io_context on this thread until `main` has finished and left its worlds, and returns its result
  // or throws its exception. Not from inside a handler of that io_context.
  // Cost: a rank that leaves waits until the others have what it sent, and know that it has left; 5 s at most
  // for ranks that do not return to their loop.
  template <class T>
  T run(task<T> main);

  comm::runtime_state& state() noexcept { return *state_; }

 private:
  void run_to_end(task<> main);
  template <class T>
  static task<> keep_result(task<T> main, std::optional<T>* result) {
    result->emplace(co_await std::move(main));
  }

  std::unique_ptr<boost::asio::io_context> own_;
  std::unique_ptr<comm::runtime_state> state_;
};

template <class T>
T runtime::run(task<T> main) {
  if constexpr (std::is_void_v<T>) {
    run_to_end(std::move(main));
  } else {
    std::optional<T> result;
    run_to_end(keep_result(std::move(main), &result));
    return std::move(*result);
  }
}

// Joins the world that `options` and the environment describe; completes when all ranks have come, on every
// rank with the communicator of all. On the loop thread of `rt`. Errors: errc::invalid_argument
// (contradictory or missing settings), errc::join_failed (a rank did not come in time, two came as one),
// errc::unauthorized. The world is left when the last handle goes, in the background: what was sent arrives.
task<communicator> init(runtime& rt, init_options options = {});
// The same where the ranks meet in a store of the program's, which no other attempt has used (prefix_store) and
// which outlives the task: its set, get, add, compare_exchange and append are called, and count and erase are
// not. init_method and addresses do not apply, nor do RANK and WORLD_SIZE where the options have both: a program
// may form several worlds. Without a secret the ranks agree on one in the store: who may
// read it may join. They listen for ranks of other hosts.
task<communicator> init(runtime& rt, init_options options, store& through);

namespace detail {

template <class F>
concept rank_main = std::is_invocable_v<F&, communicator>;

// Type-erased main of one rank; the callable outlives it.
using any_main = std::function<task<int>(communicator)>;

template <class F>
task<int> call_main(F* main, communicator world) {
  using result = std::invoke_result_t<F&, communicator>;
  if constexpr (std::is_same_v<result, task<int>>) {
    const int code = co_await std::invoke(*main, std::move(world));
    co_return code;
  } else {
    static_assert(std::is_same_v<result, task<>>, "main of a rank returns tutti::task<> or tutti::task<int>");
    co_await std::invoke(*main, std::move(world));
    co_return 0;
  }
}

template <class F>
any_main erase_main(F& main) {
  return [pointer = &main](communicator world) { return call_main(pointer, std::move(world)); };
}

// Joins, runs main and leaves, on a runtime of the caller's.
int run_rank(runtime& rt, init_options options, any_main& main);
int run_main(init_options options, any_main main) noexcept;
void run_local_main(int ranks, init_options options, any_main main);

}  // namespace detail

// Joins the world, runs main(world) and leaves. Returns main's value (task<int>) or 0; when main or joining
// throws, the error goes to stderr and the result is 1: `int main() { return tutti::run(program); }`.
template <class F>
  requires detail::rank_main<std::decay_t<F>>
int run(init_options options, F&& main) {
  return detail::run_main(std::move(options), detail::erase_main(main));
}
template <class F>
  requires detail::rank_main<std::decay_t<F>>
int run(F&& main) {
  return run(init_options(), std::forward<F>(main));
}

// Runs main as `ranks` ranks, each a thread of this process with a runtime of its own, and rethrows the first
// error after all have ended: for tests and debuggers. A rank that fails cuts its connections, which ends the
// others' waits.
template <class F>
  requires detail::rank_main<std::decay_t<F>>
void run_local(int ranks, F&& main) {
  detail::run_local_main(ranks, init_options(), detail::erase_main(main));
}
// The same with a timeout, transports or a secret; the rest of the options does not apply.
template <class F>
  requires detail::rank_main<std::decay_t<F>>
void run_local(int ranks, init_options options, F&& main) {
  detail::run_local_main(ranks, std::move(options), detail::erase_main(main));
}

}  // namespace tutti
