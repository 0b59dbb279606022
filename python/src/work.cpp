// SPDX-License-Identifier: Apache-2.0
#include "work.hpp"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <tutti/extend/failure.hpp>
#include <tutti/operation.hpp>
#include <tutti/request.hpp>
#include <tutti/scope.hpp>
#include <tutti/with_timeout.hpp>
#include <utility>

namespace tutti::python {
namespace {

std::atomic<std::uint64_t> next_key{1};
thread_local bool in_callback = false;
// Works that callbacks have started and that have not finished.
std::atomic<int> nested_works{0};
constexpr auto long_callback = std::chrono::seconds(1);
constexpr auto patience_with_self = std::chrono::milliseconds(100);

task<> within(extend::call what, std::chrono::milliseconds timeout) {
  operation<> op(std::move(what));
  co_await with_timeout(std::move(op), timeout);
}

task<status> receive(extend::call what, std::chrono::milliseconds timeout) {
  operation<status> op(std::move(what));
  const status got = co_await with_timeout(std::move(op), timeout);
  co_return got;
}

}  // namespace

std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) noexcept {
  constexpr std::chrono::milliseconds for_ever = std::chrono::hours(24 * 365 * 100);
  return timeout < -for_ever ? for_ever : std::min(timeout, for_ever);
}

bool set_in_callback(bool is) noexcept { return std::exchange(in_callback, is); }
bool is_in_callback() noexcept { return in_callback; }

void fail(std::string text) { throw c10::DistBackendError(std::move(text), nullptr); }

namespace {

// The library's cures name what C++ programs have.
std::string in_words_of_python(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"(with_timeout, or else init_options::timeout, TUTTI_TIMEOUT)",
       "(timeout= of init_process_group or new_group)"},
      {"(TUTTI_TIMEOUT, in seconds)", "(timeout= of init_process_group or new_group)"},
      {" (with_timeout)", ""},
      {"init_options::timeout is", "timeout= is"},
      {"its loop thread computes or is blocked (tutti::compute takes such work off it), or the process is "
       "stopped",
       "its process is stopped"},
      {"; co_await tutti::compute(...) keeps the loop turning", ""},
      {" (co_await tutti::compute(...) keeps the loop turning)", ""},
      {"(init_options::silence_limit, TUTTI_", "(TUTTI_"},
      {"(init_options::suspect_grace, TUTTI_", "(TUTTI_"},
      {"never got as far as tutti::run", "never got as far as init_process_group"},
      {"its last handle there has gone; keep one on every rank until all are done",
       "it has destroyed the process group; call destroy_process_group when all ranks are done"},
      {"init_options::", "the argument "},
      {"tutti::run", "init_process_group"},
  };
  for (const auto& [from, to] : words)
    for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  return text;
}

}  // namespace

std::exception_ptr translated(std::exception_ptr failure, const group_hooks& group) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const error& e) {
    // Programs search the text for PyTorch's words.
    const std::string text =
        (e.code() == errc::timed_out ? "Timed out in " : "") + in_words_of_python(e.what());
    return std::make_exception_ptr(c10::DistBackendError("tutti: " + group.where + text, nullptr));
  } catch (...) {
    return std::current_exception();
  }
}

work::work(torch_runtime& e, int rank, c10d::OpType type, const char* title, std::uint64_t sequence,
           std::chrono::milliseconds timeout, std::shared_ptr<group_hooks> hooks,
           std::vector<at::Tensor> outputs, const std::optional<std::vector<at::Tensor>>& profiled)
    : Work(rank, type, title, profiled),
      runtime_(e),
      nested_(in_callback),
      sequence_(sequence),
      key_(next_key.fetch_add(1, std::memory_order_relaxed)),
      timeout_(timeout),
      hooks_(std::move(hooks)),
      outputs_(std::move(outputs)) {}

work::~work() = default;

task<> work::perform(std::size_t number) {
  if (number >= plan_.calls.size()) co_return;  // a work without calls
  extend::call& what = plan_.calls[number];
  if (place_) {
    co_await perform_on_device(std::move(what));
  } else if (what.kind == extend::operation_kind::receive) {
    const status got = co_await receive(std::move(what), timeout_);
    source_ = got.source;
    received_ = got.bytes;
  } else if (limited_) {
    co_await within(std::move(what), timeout_);
  } else {
    operation<> op(std::move(what));
    co_await std::move(op);
  }
}

task<> work::perform_on_device(extend::call what) {
  request moving(std::move(what));
  scope beside;
  beside.spawn(follow(place_->as_tutti, &moving));
  if (limited_)
    co_await with_timeout(moving, timeout_);
  else
    co_await moving;
  co_await beside.join();
}

task<> work::follow(gpu::stream after, const request* moving) {
  const bool is_enqueued = co_await after.follow(*moving);
  if (is_enqueued && --calls_to_enqueue_ == 0) let_callers_go_on();
}

void work::begin(plan p, care c, const communicator& world) {
  plan_ = std::move(p);
  const auto self = work_ref::reclaim_copy(this);
  const std::size_t calls = plan_.calls.size();
  const bool receives = calls > 0 && plan_.calls[0].kind == extend::operation_kind::receive;
  if (calls > 1) {
    pending_calls_ = calls_to_enqueue_ = calls;
    others_ = std::make_unique<extend::running_task[]>(calls - 1);
  }
  std::shared_ptr<const void> kept;  // until the device has passed them
  if (place_) kept = runtime_.kept_for_device(std::move(plan_.keeps));
  {
    const extend::loop_driver::entry here(runtime_.driver());
    for (extend::call& one : plan_.calls) {
      if (!world) fail(c10::str("tutti: ", name_of(one.kind), ": this process group was destroyed"));
      one.comm = extend::reference_to(world);
      if (place_) one.part = place_->as_tutti.part_of(kept, kept);
    }
    if (place_) hooks_->on_devices.fetch_add(1, std::memory_order_relaxed);
    hooks_->pending.fetch_add(1, std::memory_order_relaxed);
    if (nested_) nested_works.fetch_add(1, std::memory_order_relaxed);
    self_ = self;
    if (follows_) {
      for (work* const earlier : hooks_->running) earlier->followers_.push_back(self);
      pending_calls_ += hooks_->running.size();
    }
    // The ranks match collectives by the order of their starts. So all start before the program starts another.
    for (std::size_t i = 0; i == 0 || i < calls; ++i)
      (i == 0 ? body_ : others_[i - 1])
          .start(
              perform(i),
              [](void* w, std::exception_ptr failure) noexcept {
                static_cast<work*>(w)->call_ended(std::move(failure));
              },
              this);
    if (!has_ended_ && receives) runtime_.add_receive(*this);
    if (!has_ended_ && (c != care::waits || place_)) {
      attended_ = true;
      runtime_.driver().attend(1, c == care::now);
      if (c == care::now || place_) hooks_->running.push_back(this);
    }
  }
  if (c != care::waits) return;
  try {
    wait();
  } catch (...) {
    cancel();  // where a signal ended the wait, which has no effect on what has ended
    throw;
  }
}

void work::call_ended(std::exception_ptr failure) noexcept {
  if (has_ended_) return;  // it was cancelled
  if (failure && !failure_) failure_ = std::move(failure);
  if (--pending_calls_ == 0) ended(failure_);
}

// On the loop: the library does not use the buffers any more.
void work::stop_calls() noexcept {
  body_.stop();
  others_.reset();
}

void work::cancel() {
  {
    const extend::loop_driver::entry here(runtime_.driver());
    if (!has_ended_) {
      stop_calls();
      ended(std::make_exception_ptr(error(errc::cancelled, "the operation was cancelled")));
      return;
    }
  }
  wait_for_finish();  // its last steps write the tensors
}

// These hooks are short and do not take the interpreter's lock.
void group_hooks::call(const work& w) noexcept {
  if (w.failure_ || w.late_failure_ || !any.load(std::memory_order_relaxed)) return;
  try {
    const std::scoped_lock hold(mutex);
    c10d::CompletionHookArgs args;
    args.completionKey = w.key_;
    args.duration_ms = w.getDuration();
    for (const auto& [id, hook] : completion) hook(args);
  } catch (const std::exception& e) {
    TORCH_WARN("tutti: a hook of a process group failed: ", e.what());
  }
}

void group_hooks::call_on_completion(const work& w) noexcept {
  if (w.failure() || !any_on_completion.load(std::memory_order_relaxed)) return;
  try {
    std::shared_ptr<const on_completion_hook> hook;
    {
      const std::scoped_lock hold(mutex);
      hook = on_completion;
    }
    (*hook)(std::make_shared<c10d::WorkInfo>(w.opType_, w.sequence_, w.began_, w.ended_,
                                             std::chrono::duration<float>(w.ended_ - w.began_)));
  } catch (const std::exception& e) {
    TORCH_WARN("tutti: a hook of a process group failed: ", e.what());
  }
}

void group_hooks::use(const work_ref& w, const std::vector<memory_range>& memory) {
  const std::scoped_lock hold(mutex);
  for (const memory_range& one : memory)
    if (one.begin != nullptr) in_use.emplace_back(one, w);
  any_in_use = !in_use.empty();
  w->set_uses();
}

void group_hooks::wait_for(const memory_range& memory) {
  while (any_in_use.load(std::memory_order_relaxed)) {
    work_ref user;
    {
      const std::scoped_lock hold(mutex);
      const auto found =
          std::ranges::find_if(in_use, [&](const auto& u) { return u.first.conflicts(memory); });
      if (found == in_use.end()) return;
      user = found->second;
    }
    user->settle();
  }
}

void group_hooks::release(const work& w) noexcept {
  const std::scoped_lock hold(mutex);
  std::erase_if(in_use, [&w](const auto& u) { return u.second.get() == &w; });
  any_in_use = !in_use.empty();
}

// On the loop.
void work::let_callers_go_on() noexcept {
  bool has_callbacks = false;
  {
    const std::scoped_lock hold(futures_);
    has_callbacks = future_ || result_ || !callbacks_.empty() || hooks_->any_on_completion;
    phase_.store(over, std::memory_order_release);
  }
  runtime_.driver().notify();
  runtime_.add_ended(self_, has_callbacks);
}

void work::ended(std::exception_ptr failure) noexcept {
  const bool early = phase_.load(std::memory_order_relaxed) != running;
  if (early && failure) {
    late_failure_ = translated(failure, *hooks_);
    hooks_->told = true;
  } else if (!early) {
    failure_ = std::move(failure);
  }
  ended_ = clock::now();
  unlink();
  if (attended_) runtime_.driver().attend(-1);
  hooks_->call(*this);
  if (place_) hooks_->on_devices.fetch_sub(1, std::memory_order_relaxed);
  has_ended_ = true;
  if (early) {
    runtime_.driver().notify();
    const std::scoped_lock hold(futures_);
    runtime_.add_ended(self_, result_.defined());
  } else {
    let_callers_go_on();
  }
  std::erase(hooks_->running, this);
  for (const work_ref& w : std::exchange(followers_, {})) w->call_ended(nullptr);
  self_.reset();  // finish_ended() has another
}

// Once it has ended and finished.
void work::retire() noexcept {
  if (retired_.exchange(true)) return;
  if (place_) {
    drop_calls();
    complete_result();
  }
  hooks_->call_on_completion(*this);
  hooks_->pending.fetch_sub(1, std::memory_order_relaxed);
}

// Not on the loop, which the calls need for their end.
void work::drop_calls() noexcept {
  const extend::loop_driver::entry here(runtime_.driver());
  stop_calls();
  plan_.calls.clear();
}

bool work::finish() {
  int now = over;
  if (!phase_.compare_exchange_strong(now, finishing, std::memory_order_acq_rel)) {
    if (now == finished && has_ended_) retire();
    return now == finished;
  }
  if (!place_) drop_calls();
  if (failure_) {
    peer_left_ = extend::what_of(failure_).code == errc::peer_left;
    failure_ = translated(failure_, *hooks_);
    hooks_->told = true;
  } else if (plan_.after || place_) {
    try {
      const c10::InferenceMode no_grad;  // also writes tensors that were made in inference mode
      std::optional<c10::StreamGuard> on_stream;
      if (place_) on_stream.emplace(place_->stream);
      if (plan_.after) plan_.after(received_);
      if (place_) end_.emplace(place_->device.type()).record(place_->stream);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  plan_.after = nullptr;
  if (!place_) plan_ = {};
  if (uses_) hooks_->release(*this);
  if (recordFunctionEndCallback_) recordFunctionEndCallback_();
  std::vector<std::function<void()>> callbacks;
  bool has_futures = false;
  {
    const std::scoped_lock hold(futures_);
    phase_.store(finished);
    has_futures = future_ || result_;
    callbacks.swap(callbacks_);
  }
  finished_.notify_all();
  if (nested_) nested_works.fetch_sub(1, std::memory_order_relaxed);
  for (const auto& f : callbacks) f();
  if (has_futures) hooks_->complete_futures(runtime_);
  if (has_ended_) retire();
  return true;
}

const std::exception_ptr& work::failure() const noexcept {
  return has_ended_ && late_failure_ ? late_failure_ : failure_;
}

bool work::isCompleted() {
  const int now = phase_.load(std::memory_order_acquire);
  if (now != finished && (now != over || !finish())) return false;
  return has_ended_ && (failure() || !end_ || end_->query());
}

bool work::isSuccess() const {
  return phase_.load(std::memory_order_acquire) == finished && has_ended_ && !failure();
}

std::exception_ptr work::exception() const {
  return phase_.load(std::memory_order_acquire) == finished ? failure() : nullptr;
}

void work::wait_for_finish() {
  if (finish()) return;
  std::unique_lock hold(futures_);
  finished_.wait(hold, [this] { return phase_.load(std::memory_order_relaxed) == finished; });
}

void work::settle() {
  runtime_.wait_until([this] { return phase_.load(std::memory_order_relaxed) != running; },
                      time_point::max());
  wait_for_finish();
}

bool work::wait(std::chrono::milliseconds timeout) {
  const time_point deadline = timeout == kNoTimeout ? time_point::max() : clock::now() + bounded(timeout);
  const auto gave_up = [&] {
    return c10::str("tutti: Timed out: wait() gave up after ", timeout.count(),
                    " ms; the operation goes on until its own timeout of ", timeout_.count(), " ms");
  };
  if (phase_.load(std::memory_order_acquire) != finished) {
    const auto is_over = [this] { return phase_.load(std::memory_order_relaxed) != running; };
    // Its message is here, unless another thread of this rank sends it.
    const time_point patience = clock::now() + patience_with_self;
    if (from_self_ && patience < deadline && !runtime_.wait_until(is_over, patience)) {
      cancel();
      fail(
          "tutti: recv: this rank waits for a message of its own, which it has not sent: call isend before, "
          "or receive "
          "from another rank");
    }
    if (!runtime_.wait_until(is_over, deadline)) fail(gave_up());
    wait_for_finish();
    runtime_.finish_ended();
  }
  if (end_) {
    // The caller's stream waits for it. As with other backends, a time limit is for the host.
    if (timeout != kNoTimeout && !runtime_.wait_until([this] { return has_ended_.load(); }, deadline))
      fail(gave_up());
    end_->block(c10::impl::VirtualGuardImpl(place_->device.type()).getStream(place_->device));
  }
  if (!failure()) return true;
  if (!in_callback) runtime_.stay_if_ending(peer_left_);  // the end waits for callbacks
  std::rethrow_exception(failure());
}

// futures_ is locked.
void work::add_future() noexcept {
  const std::scoped_lock hold(hooks_->mutex);
  std::vector<work_ref>& all = hooks_->with_futures;
  if (std::ranges::find(all, this, &work_ref::get) != all.end()) return;
  const auto later = std::ranges::find_if(all, [this](const work_ref& w) { return w->key_ > key_; });
  all.insert(later, work_ref::reclaim_copy(this));
}

void work::complete_futures() noexcept {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::scoped_lock hold(futures_);
    if (!std::exchange(future_completed_, future_.defined())) future = future_;
  }
  // The future makes streams that wait for it wait for this one.
  std::optional<c10::StreamGuard> on_stream;
  if (place_) on_stream.emplace(place_->stream);
  const bool before = set_in_callback(true);
  if (future && failure()) future->setError(failure());
  if (future && !failure()) future->markCompleted(c10::IValue(outputs_));
  set_in_callback(before);
  complete_result();
}

// The result is known when the operation has ended.
void work::complete_result() noexcept {
  c10::intrusive_ptr<c10::ivalue::Future> result;
  {
    const std::scoped_lock hold(futures_);
    if (!has_ended_ || std::exchange(result_completed_, result_.defined())) return;
    result = result_;
  }
  if (!result) return;
  const bool before = set_in_callback(true);
  result->markCompleted(c10::IValue(
      static_cast<std::uint8_t>(failure() ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS)));
  set_in_callback(before);
}

void group_hooks::complete_futures(torch_runtime& e) {
  const auto has_finished = [](const work_ref& w) {
    return w->phase_.load(std::memory_order_acquire) == work::finished;
  };
  // Not held where a work may be destroyed: its tensors need the interpreter's lock, whose owner may wait for this one.
  std::unique_lock hold(mutex);
  // Messages, and those that callbacks have started.
  const auto next_unordered = [&] {
    return std::ranges::find_if(with_futures,
                                [&](const work_ref& w) { return !w->in_order_ && has_finished(w); });
  };
  for (auto found = next_unordered(); found != with_futures.end(); found = next_unordered()) {
    work_ref next = std::move(*found);
    with_futures.erase(found);
    hold.unlock();
    next->complete_futures();
    next.reset();
    hold.lock();
  }
  for (;;) {
    const auto first = std::ranges::find_if(with_futures, [](const work_ref& w) { return w->in_order_; });
    if (first == with_futures.end() || !has_finished(*first)) return;
    const time_point now = clock::now();
    if (completing != 0 && (nested_works > 0 || now < completing_since + long_callback))
      return e.look_again(shared_from_this());
    work_ref next = std::move(*first);
    with_futures.erase(first);
    const std::uint64_t key = completing = next->key_;
    completing_since = now;
    if (std::ranges::any_of(with_futures, has_finished)) e.look_again(shared_from_this());
    hold.unlock();
    next->complete_futures();
    next.reset();
    hold.lock();
    if (completing != key) return;  // another thread goes on
    completing = 0;
  }
}

c10::intrusive_ptr<c10::ivalue::Future> work::getFuture() {
  bool now = false;
  {
    const std::scoped_lock hold(futures_);
    if (future_) return future_;
    std::vector<c10::Device> devices;
    for (const at::Tensor& t : outputs_)
      if (!t.is_cpu()) devices.push_back(t.device());
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    add_future();
    now = phase_.load(std::memory_order_relaxed) == finished;
  }
  if (now) {
    hooks_->complete_futures(runtime_);
  } else {
    isCompleted();
  }
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> work::getFutureResult() {
  bool now = false;
  {
    const std::scoped_lock hold(futures_);
    if (result_) return result_;
    result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    add_future();
    now = phase_.load(std::memory_order_relaxed) == finished;
  }
  if (now) {
    hooks_->complete_futures(runtime_);
  } else {
    isCompleted();
  }
  return result_;
}

void work::when_finished(std::function<void()> f) {
  {
    const std::scoped_lock hold(futures_);
    if (phase_.load(std::memory_order_relaxed) != finished) {
      callbacks_.push_back(std::move(f));
      f = nullptr;
    }
  }
  if (f) {
    f();
  } else {
    isCompleted();
  }
}

float work::getDuration() const { return std::chrono::duration<float, std::milli>(ended_ - began_).count(); }

}  // namespace tutti::python
