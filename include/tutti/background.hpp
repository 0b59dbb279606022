// SPDX-License-Identifier: Apache-2.0
// run_in_background: runs a rank's loop on a thread of its own, beside a program that computes.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/runtime.hpp>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <type_traits>
#include <utility>

namespace tutti {
namespace detail {
struct background_thread;
}

// A rank whose loop runs on a thread of its own. Operations that main awaits progress while other threads
// compute. Other threads reach the rank through get_executor(): by boost::asio::post, co_spawn, or a channel
// of the program. Move-only. Destroying it blocks until main has ended; without join() its error is lost.
class background {
 public:
  using executor_type = boost::asio::io_context::executor_type;

  // The executor of the rank's loop; valid as long as this object. After main has ended it runs nothing.
  executor_type get_executor() const noexcept { return context_->get_executor(); }
  // Blocks until main has ended and the rank has left the world. Returns the value of main. Call it once.
  // Errors: throws the exception of joining the world or of main.
  int join();

 private:
  background() = default;
  friend background start_background(init_options options, detail::any_main main);

  // The thread holds it, too: other threads have its executor until main has ended.
  std::shared_ptr<boost::asio::io_context> context_ = std::make_shared<boost::asio::io_context>(1);
  std::shared_ptr<detail::background_thread> thread_;  // its destructor joins the thread
};

background start_background(init_options options, detail::any_main main);

// Starts a thread that joins the world, runs main(world) and leaves. Returns when the loop exists.
// Errors: throws those of making a runtime; join() throws the others.
template <detail::rank_main F>
background run_in_background(init_options options, F&& main) {
  using function = std::decay_t<F>;
  return start_background(std::move(options),
                          {detail::call_main<function>, std::make_shared<function>(std::forward<F>(main))});
}
template <detail::rank_main F>
background run_in_background(F&& main) {
  return run_in_background(init_options(), std::forward<F>(main));
}

}  // namespace tutti
