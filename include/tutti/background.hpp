// SPDX-License-Identifier: Apache-2.0
// run_in_background: a rank whose loop has a thread of its own, beside a program that computes.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/runtime.hpp>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <type_traits>
#include <utility>

namespace tutti {

// A rank at work on a thread of its own. What main awaits goes on whatever other threads compute; they talk
// to it through get_executor(): boost::asio::post, co_spawn, or a channel of the program's own. Move-only;
// destroying it joins.
class background {
 public:
  using executor_type = boost::asio::io_context::executor_type;

  background(background&&) noexcept;
  background& operator=(background&&) noexcept;
  ~background();

  // Of its loop; valid until join() has returned.
  executor_type get_executor() const noexcept;
  // Blocks until main has ended and the world has been left; main's value, or its exception. Once.
  int join();

 private:
  struct state;
  explicit background(std::unique_ptr<state> s) noexcept;
  friend background start_background(init_options options, detail::any_main main);
  std::unique_ptr<state> state_;
};

background start_background(init_options options, detail::any_main main);

// Starts a thread that joins the world, runs main(world) and leaves. Returns when the loop exists, before the
// world does.
template <class F>
  requires detail::rank_main<std::decay_t<F>>
background run_in_background(init_options options, F&& main) {
  auto kept = std::make_shared<std::decay_t<F>>(std::forward<F>(main));
  return start_background(std::move(options), [kept](communicator world) {
    return detail::call_main(kept.get(), std::move(world));
  });
}
template <class F>
  requires detail::rank_main<std::decay_t<F>>
background run_in_background(F&& main) {
  return run_in_background(init_options(), std::forward<F>(main));
}

}  // namespace tutti
