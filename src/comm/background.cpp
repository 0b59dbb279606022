// SPDX-License-Identifier: Apache-2.0
#include <future>
#include <thread>
#include <tutti/background.hpp>

namespace tutti {

struct background::state {
  std::thread thread;
  std::future<int> result;
  boost::asio::io_context* context = nullptr;
};

background::background(std::unique_ptr<state> s) noexcept : state_(std::move(s)) {}
background::background(background&&) noexcept = default;
background& background::operator=(background&& other) noexcept {
  if (state_ && state_->thread.joinable()) state_->thread.join();
  state_ = std::move(other.state_);
  return *this;
}
background::~background() {
  if (state_ && state_->thread.joinable()) state_->thread.join();
}

background::executor_type background::get_executor() const noexcept {
  return state_->context->get_executor();
}

int background::join() {
  if (!state_ || !state_->thread.joinable())
    throw error(errc::invalid_argument, "background::join was called twice, or on one that was moved from");
  state_->thread.join();
  return state_->result.get();
}

background start_background(init_options options, detail::any_main main) {
  auto made = std::make_unique<background::state>();
  std::promise<int> result;
  std::promise<boost::asio::io_context*> ready;
  std::future<boost::asio::io_context*> context = ready.get_future();
  made->result = result.get_future();
  made->thread = std::thread([options = std::move(options), main = std::move(main),
                              result = std::move(result), ready = std::move(ready)]() mutable {
    bool is_ready = false;
    try {
      runtime rt;
      is_ready = true;
      ready.set_value(&rt.context());
      result.set_value(detail::run_rank(rt, std::move(options), main));
    } catch (...) {
      if (!is_ready) ready.set_exception(std::current_exception());
      result.set_exception(std::current_exception());
    }
  });
  try {
    made->context = context.get();
  } catch (...) {
    made->thread.join();
    throw;
  }
  return background(std::move(made));
}

}  // namespace tutti
