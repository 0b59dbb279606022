// SPDX-License-Identifier: Apache-2.0
#include <future>
#include <thread>
#include <tutti/background.hpp>

namespace tutti {

struct background::state {
  boost::asio::io_context context{1};  // outlives the runtime: other threads hold its executor
  std::thread thread;
  std::future<int> result;
  ~state() {
    if (thread.joinable()) thread.join();
  }
};

background::background(std::unique_ptr<state> s) noexcept : state_(std::move(s)) {}
background::background(background&&) noexcept = default;
background& background::operator=(background&& other) noexcept = default;
background::~background() = default;

background::executor_type background::get_executor() const noexcept { return state_->context.get_executor(); }

int background::join() {
  if (!state_ || !state_->thread.joinable())
    throw error(errc::invalid_argument, "background::join was called twice, or on one that was moved from");
  state_->thread.join();
  return state_->result.get();
}

background start_background(init_options options, detail::any_main main) {
  auto made = std::make_unique<background::state>();
  std::promise<int> result;
  std::promise<void> ready;
  std::future<void> is_ready = ready.get_future();
  made->result = result.get_future();
  made->thread = std::thread([context = &made->context, options = std::move(options), main = std::move(main),
                              result = std::move(result), ready = std::move(ready)]() mutable {
    bool is_made = false;
    try {
      runtime rt(*context);
      is_made = true;
      ready.set_value();
      result.set_value(detail::run_rank(rt, std::move(options), main));
    } catch (...) {
      if (!is_made) ready.set_exception(std::current_exception());
      result.set_exception(std::current_exception());
    }
  });
  is_ready.get();
  return background(std::move(made));
}

}  // namespace tutti
