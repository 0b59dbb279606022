// SPDX-License-Identifier: Apache-2.0
// runtime: the engine of one rank, on an Asio io_context; and the ways to start a program.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/sole_owner.hpp>
#include <tutti/init_options.hpp>
#include <tutti/task.hpp>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace tutti {

class store;

namespace comm {
class runtime_state;
}

// The engine of one rank. All work of its communicators happens on the thread that runs its io_context: its
// own, or one that the program passes in. A plain `ioc.run()` then drives it beside the program's handlers,
// and returns when the last communicator has gone.
// One thread runs that io_context for as long as the runtime lives; on a second thread run() throws
// errc::wrong_thread. Destroy communicators before the runtime: remaining ones fail with errc::shut_down.
// A runtime takes nothing of the process: it installs no signal handler, no handler of std::terminate or fork. (run(),
// and ranks of tutti-run, install the first two: explain_at_signal() of <tutti/explain.hpp>, and a line for want of memory.
// A file_store, also that of ranks that meet at a file, registers a handler of fork, which closes its file in the child.)
// While operations are in progress, a turn of the loop calls other handlers of the io_context from inside its own
// handler, one at a time: a handler of the program may find a turn, but never another of its handlers, on its stack.
// Handlers of the program's io_context may destroy the runtime, except during run(). Handlers that wait for its
// operations are then destroyed uncalled; so are tasks that a token has started, with the io_context's last runtime.
class runtime {
 public:
  runtime();
  explicit runtime(boost::asio::io_context& context);
  ~runtime();
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;

  // The io_context that drives the runtime.
  boost::asio::io_context& context() noexcept;
  boost::asio::io_context::executor_type get_executor() noexcept { return context().get_executor(); }

  // Runs the io_context on this thread until `main` has finished and left its worlds. Returns the result of
  // `main` or throws its exception. Do not call it from a handler of that io_context.
  // Cost: a leaving rank waits until the others have its messages and know that it left. For ranks that do
  // not return to their loop it waits 5 s at most.
  template <class T>
  T run(task<T> main);

  comm::runtime_state& state() noexcept { return *state_; }

 private:
  struct end_of_state {
    void operator()(comm::runtime_state* state) const noexcept;
  };
  void run_to_end(task<> main);
  template <class T>
  static task<> keep_result(task<T> main, std::optional<T>* result) {
    result->emplace(co_await std::move(main));
  }

  std::shared_ptr<boost::asio::io_context> own_;
  detail::sole_owner<comm::runtime_state*, end_of_state> state_;
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

// Joins the world that `options` and the environment describe, and returns the communicator of all its ranks.
// Call it on the loop thread of `rt`, while its io_context runs. The runtime leaves the world in the background
// when the last handle is destroyed; messages already sent still arrive.
// Completes: when all ranks have joined.
// Errors: errc::invalid_argument (contradictory or missing settings), errc::join_failed (a rank did not come
// in time, or two came as one), errc::unauthorized.
// Cancellation: a stopped init throws errc::cancelled, or errc::timed_out at a deadline, after it has told the
// others, for at most 5 s. If this rank was waiting for them, their attempt ends with errc::join_failed, naming
// this rank. Ranks that meet at a file, and ranks of elastic or restarted jobs, go on waiting without it, until
// their own timeout. If rank 0 is stopped, which serves the store, all fail. Destroying the task tells nobody.
task<communicator> init(runtime& rt, init_options options = {});
// Joins a world whose ranks meet in a store of the program. The store is one that no other attempt has used
// (see prefix_store), and outlives the task. Its set, get, add, compare_exchange and append are called; count
// and erase are not. init_method and its addresses have no effect, and neither have RANK and WORLD_SIZE if
// the options set both. So a program may form several worlds.
// The ranks listen for other hosts. Without a secret they agree on one through the store: who reads it can join.
task<communicator> init(runtime& rt, init_options options, store& through);

namespace detail {

template <class F>
concept rank_main = requires(std::decay_t<F>& main, communicator world) { main(std::move(world)); };

template <class F>
task<int> call_main(void* function, communicator world) {
  F& main = *reinterpret_cast<F*>(function);
  using result = decltype(main(std::move(world)));
  if constexpr (std::is_same_v<result, task<int>>) {
    const int code = co_await main(std::move(world));
    co_return code;
  } else {
    static_assert(std::is_same_v<result, task<>>, "main of a rank returns tutti::task<> or tutti::task<int>");
    co_await main(std::move(world));
    co_return 0;
  }
}

// Type-erased main of one rank.
struct any_main {
  task<int> (*call)(void* function, communicator world) = nullptr;
  std::shared_ptr<void> function = nullptr;

  task<int> operator()(communicator world) const { return call(function.get(), std::move(world)); }
};

// The function or callable outlives it.
template <class F>
any_main erase_main(F& main) {
  void* const place = const_cast<void*>(reinterpret_cast<const void*>(&main));
  return {call_main<F>, std::shared_ptr<void>(std::shared_ptr<void>(), place)};
}

// Joins, runs main and leaves, on the caller's runtime.
int run_rank(runtime& rt, init_options options, any_main& main);
int run_main(init_options options, any_main main) noexcept;
void run_local_main(int ranks, init_options options, any_main main);

}  // namespace detail

// Joins the world, runs main(world) and leaves: `int main() { return tutti::run(program); }`. Returns the
// value of main (task<int>), or 0 for task<>.
// Errors: if joining or main throws, prints the error on stderr and returns 1.
template <detail::rank_main F>
int run(init_options options, F&& main) {
  return detail::run_main(std::move(options), detail::erase_main(main));
}
template <detail::rank_main F>
int run(F&& main) {
  return run(init_options(), std::forward<F>(main));
}

// Runs main as `ranks` ranks in this process, each a thread with a runtime of its own, for tests and debuggers.
// Errors: rethrows the first error after all ranks have ended, not one that another rank's error has caused.
// A failing rank ends the waits of the others.
template <detail::rank_main F>
void run_local(int ranks, F&& main) {
  detail::run_local_main(ranks, init_options(), detail::erase_main(main));
}
// run_local with the timeout, transports and secret of `options`; its other fields have no effect.
template <detail::rank_main F>
void run_local(int ranks, init_options options, F&& main) {
  detail::run_local_main(ranks, std::move(options), detail::erase_main(main));
}

}  // namespace tutti
