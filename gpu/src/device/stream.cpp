// SPDX-License-Identifier: Apache-2.0
#include "device/attachment.hpp"
#include "device/work_state.hpp"
#include "kernels/host_kernels.hpp"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <tutti/gpu/stream.hpp>
#include <utility>

namespace tutti::gpu {
namespace impl {

namespace {

using tutti::extend::operation_state;

void enqueue_work(work_state& w, driver& d, void* stream) {
  const device_arguments& c = w.what;
  const std::size_t bytes = c.in.bytes();
  switch (c.kind) {
    case operation_kind::copy:
      return d.copy(c.out.data, c.in.data, bytes, stream);
    case operation_kind::fill:
      return d.fill(c.out.data, c.value, bytes, stream);
    case operation_kind::upload: {
      const auto bounce = w.on->pinned().take(bytes);
      if (bytes > 0) std::memcpy(bounce->data, c.in.data, bytes);
      d.copy(c.out.data, bounce->data, bytes, stream);
      return w.keep_until_done(bounce);
    }
    case operation_kind::download: {
      const auto bounce = w.on->pinned().take(bytes);
      d.copy(bounce->data, c.in.data, bytes, stream);
      w.keep_until_done(bounce);
      w.owner = bounce->data;
      return;
    }
    default:  // convert
      if (c.in.count > 0 &&
          !d.launch(kernels::find_conversion(c.in.type, c.out.type),
                    kernels::conversion(c.in.data, c.out.data, c.factor, c.in.count), stream))
        throw error(errc::not_supported, fmt::format("{} has no kernel that converts {} to {}", d.name(),
                                                     tutti::name_of(c.in.type), tutti::name_of(c.out.type)));
  }
}

// The device part of a stream's operation.
class stream_call final : public tutti::extend::stream_part, public working_part {
 public:
  stream_call(std::shared_ptr<stream_state> in, device_arguments what)
      : stream_(std::move(in)), what_(std::move(what)) {}

  bool start(operation_state& op) override {
    attachment& on = stream_->on();
    on.check();
    if (what_.kind == operation_kind::reached) {
      point& here = stream_->signal();
      on.wait_for(here, begin(op), op.has_deadline());
      return false;
    }
    work_ = make_recycled<work_state>(stream_->shared_on(), what_);
    try {
      stream_->refuse_capture();
      enqueue_work(*work_, on.driver(), stream_->native());
      work_->finish_in(*stream_);
    } catch (const error& e) {
      if (e.code() == errc::device_failed) on.fail(e.what());
      op.fail(code_of(e), e.what());
      return true;
    }
    work_->wait_done.push_back(begin(op));
    return false;
  }
  void stop(operation_state& op, errc why, const std::string& text) noexcept override {
    auto& w = *static_cast<finisher*>(op.running());
    if (!w.is_linked()) return;
    w.set_failure(error(why, text));
    if (work_) work_->abandoned = true;
    stream_->on().resume_soon(w);
  }
  void abandon(void* running) noexcept override {
    static_cast<finisher*>(running)->~finisher();
    if (work_) work_->abandoned = true;
  }
  boost::asio::io_context::executor_type executor() const noexcept override {
    return stream_->on().get_executor();
  }

 private:
  struct finisher final : waiter {
    explicit finisher(operation_state& o) noexcept : op(o) {}
    void done() noexcept override {
      operation_state& of = op;
      if (failure()) of.fail(code_of(*failure()), failure()->what());
      if (const auto& work = static_cast<stream_call&>(*of.what().part.get()).work_)
        of.set_result(work->result);
      of.set_running(nullptr);
      this->~finisher();
      of.complete();
    }
    operation_state& op;
  };
  static_assert(sizeof(finisher) <= operation_state::running_bytes);

  waiter& begin(operation_state& op) noexcept {
    auto* const made = new (op.running_storage()) finisher(op);
    op.set_running(made);
    return *made;
  }

  const std::shared_ptr<stream_state> stream_;
  const device_arguments what_;
};

}  // namespace
}  // namespace impl

void gate::open() noexcept {
  if (word_) word_->open();
}
bool gate::is_open() const noexcept { return word_ == nullptr || word_->is_open(); }

stream::stream(const device& on, bool urgent) {
  if (!on) throw error(errc::invalid_argument, "a stream was made on no device (the handle is empty)");
  on.state().check();
  state_ = impl::stream_state::make(on.shared_state(), urgent);
}

stream stream::borrow(const device& on, void* native) {
  if (!on || native == nullptr)
    throw error(errc::invalid_argument,
                "stream::borrow needs a device and a stream that is not the default stream");
  on.state().check();
  return stream(std::make_shared<impl::stream_state>(on.shared_state(), native, false));
}

device stream::on() const noexcept { return state_ ? device(state_->shared_on()) : device(); }
void* stream::native() const noexcept { return state_ ? state_->native() : nullptr; }

namespace {

// The work of a request that `waits` waits for; null if it is done.
std::shared_ptr<impl::work_state> work_of(const request& r, const impl::stream_state* waits) {
  if (waits == nullptr) throw error(errc::invalid_argument, "stream::wait of an empty stream");
  waits->on().check();
  const tutti::extend::operation_state* const state = r.state();
  if (state == nullptr) throw error(errc::invalid_argument, "stream::wait of an empty request");
  if (r.done()) return nullptr;
  const auto* const what = dynamic_cast<const impl::working_part*>(state->what().part.get());
  if (what == nullptr)
    throw error(errc::invalid_argument, fmt::format("stream::wait of a {} of memory of the host: co_await it",
                                                    name_of(state->what().kind)));
  if (state->what().kind == tutti::extend::operation_kind::reached)
    throw error(errc::invalid_argument, "stream::wait of reached(): wait for the stream itself");
  return what->work();
}

task<bool> follow_work(std::shared_ptr<impl::work_state> work, std::shared_ptr<impl::stream_state> waits,
                       bool failed) {
  if (work == nullptr) co_return !failed;
  try {
    co_await work->until_enqueued();
    work->make_wait(*waits);
  } catch (const error&) {
    if (!work->failure) throw;
    co_return false;
  }
  co_return true;
}

}  // namespace

void stream::wait(const request& r) const {
  const auto work = work_of(r, state_.get());
  if (work) return work->make_wait(*state_);
  if (r.done()) r.state()->rethrow();
}

task<bool> stream::follow(const request& r) const {
  const auto work = work_of(r, state_.get());
  return follow_work(work, state_, r.done() && r.state()->failure() != errc::success);
}

void stream::wait(const stream& other) const {
  if (!state_ || !other.state_) throw error(errc::invalid_argument, "stream::wait of an empty stream");
  state_->on().check();
  // The event is of the device that records it. A wait refers to the last record before it, so the event can be
  // reused at once.
  impl::attachment& by = other.state_->on();
  by.check();
  state_->refuse_work_of(by);
  const auto give_back = [&by](void* e) { by.give_event(e); };
  const std::unique_ptr<void, decltype(give_back)> event(by.take_event(), give_back);
  by.driver().record(event.get(), other.native());
  state_->on().driver().wait(state_->native(), event.get());
}

gate stream::close() const {
  if (!state_) throw error(errc::invalid_argument, "stream::close of an empty stream");
  impl::attachment& on = state_->on();
  on.check();
  if (!on.driver().can().gate)
    throw error(errc::not_supported,
                fmt::format("{} has no gates: await first, then enqueue", on.driver().name()));
  if (on.closed_gates() >= on.gate_limit)
    throw error(
        errc::resources,
        fmt::format("{} has {} closed gates already; open them first, or allow more with "
                    "device::set_gate_limit (streams that share a hardware queue wait with each other)",
                    on.driver().name(), on.closed_gates()));
  return gate(state_->close(state_->shared_on()));
}

tutti::extend::call stream::part_of_stream(tutti::extend::operation_kind kind, impl::view to, impl::view from,
                                           std::byte value, double factor) const {
  if (!state_) throw error(errc::invalid_argument, fmt::format("{} on an empty stream", name_of(kind)));
  tutti::extend::call what(kind, {});
  what.in = from;
  what.out = to;
  impl::device_arguments made{
      .kind = kind, .in = std::move(from), .out = std::move(to), .value = value, .factor = factor};
  what.part = tutti::extend::part_ref(new impl::stream_call(state_, std::move(made)));
  return what;
}

tutti::operation<status> stream::moves(tutti::extend::operation_kind kind, impl::view to, impl::view from,
                                       std::byte value, double factor) const {
  const bool converts = kind == tutti::extend::operation_kind::convert;
  if (converts && to.count != from.count)
    throw error(errc::invalid_argument, fmt::format("convert: {} elements to {}", from.count, to.count));
  if (!converts && to.bytes() < from.bytes())
    throw error(errc::truncated,
                fmt::format("{}: {} bytes do not fit into {}", name_of(kind), from.bytes(), to.bytes()));
  if (!converts && (to.type != from.type || to.element_bytes != from.element_bytes))
    throw error(errc::invalid_argument, fmt::format("{}: both sides need one element type", name_of(kind)));
  return tutti::operation<status>(part_of_stream(kind, std::move(to), std::move(from), value, factor));
}

}  // namespace tutti::gpu
