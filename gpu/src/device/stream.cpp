// SPDX-License-Identifier: Apache-2.0
#include "device/attachment.hpp"
#include "device/work_state.hpp"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <memory>
#include <tutti/gpu/stream.hpp>
#include <utility>

namespace tutti::gpu {
namespace detail {

bool reach_awaiter::wait() {
  if (!stream_) {
    set_failure(errc::invalid_argument, "an empty stream was awaited");
    return false;
  }
  try {
    stream_->on().wait_for(stream_->signal(), *this, has_deadline());
    return true;
  } catch (const error& e) {
    set_failure(static_cast<errc>(e.code().value()), e.what());
    return false;
  }
}

void reach_awaiter::stop(suspended& self, errc why, const std::string& text) noexcept {
  auto& a = static_cast<reach_awaiter&>(self);
  if (!a.linked()) return;
  a.set_failure(why, "stream::reached: " + text);
  a.stream_->on().resume_soon(a);
}

std::shared_ptr<work_state> stream_state::start(call what) {
  on_->check();
  driver& d = on_->driver();
  auto work = std::make_shared<work_state>(on_, std::move(what));
  const call& c = work->what;
  const std::size_t bytes = c.in.bytes();
  try {
    if (d.capturing(native_))
      throw error(
          errc::invalid_argument,
          fmt::format("{}: this stream of {} is being captured into a graph, of which the host cannot "
                      "await a part; enqueue the copy by the device's own calls",
                      name_of(c.kind), d.name()));
    switch (c.kind) {
      case operation_kind::fill:
        d.fill(c.out.data, c.value, bytes, native_);
        break;
      case operation_kind::convert:
        if (bytes > 0 &&
            !d.convert({c.in.type, c.out.type, c.in.data, c.out.data, c.in.count, c.factor}, native_))
          throw error(errc::not_supported,
                      fmt::format("{} has no kernel that converts {} to {}", d.name(),
                                  tutti::name_of(c.in.type), tutti::name_of(c.out.type)));
        break;
      case operation_kind::upload: {
        const auto bounce = on_->borrow_pinned(bytes);
        if (bytes > 0) std::memcpy(bounce->data, c.in.data, bytes);
        d.copy(c.out.data, bounce->data, bytes, native_);
        work->keep_until_done(bounce);
        break;
      }
      case operation_kind::download: {
        const auto bounce = on_->borrow_pinned(bytes);
        d.copy(bounce->data, c.in.data, bytes, native_);
        work->keep_until_done(bounce);
        work->owner = bounce->data;
        work->on_done = [](work_state& w) noexcept {
          if (w.what.in.bytes() > 0) std::memcpy(w.what.out.data, w.owner, w.what.in.bytes());
        };
        break;
      }
      default:
        d.copy(c.out.data, c.in.data, bytes, native_);
    }
    work->set_enqueued(*this);
    work->finish_with(*this);
  } catch (const error& e) {
    if (e.code() == errc::device_failed) on_->fail(errc::device_failed, e.what());
    work->fail(static_cast<errc>(e.code().value()), e.what());
  }
  return work;
}

}  // namespace detail

void gate::open() noexcept {
  if (word_) word_->open();
}
bool gate::is_open() const noexcept { return word_ == nullptr || word_->is_open(); }

stream::stream(const device& on, bool urgent) {
  if (!on) throw error(errc::invalid_argument, "a stream was made on no device (the handle is empty)");
  on.state().check();
  state_ = std::make_shared<detail::stream_state>(on.shared_state(), on.state().driver().make_stream(urgent),
                                                  true);
}

stream stream::borrow(const device& on, void* native) {
  if (!on || native == nullptr)
    throw error(errc::invalid_argument,
                "stream::borrow needs a device and a stream that is not the default stream");
  on.state().check();
  return stream(std::make_shared<detail::stream_state>(on.shared_state(), native, false));
}

device stream::on() const noexcept { return state_ ? device(state_->shared_on()) : device(); }
void* stream::native() const noexcept { return state_ ? state_->native() : nullptr; }

void stream::wait(const work& w) const {
  if (!state_ || !w.state()) throw error(errc::invalid_argument, "stream::wait of an empty stream or work");
  state_->on().check();
  w.state()->make_wait(*state_);
}

void stream::wait(const stream& other) const {
  if (!state_ || !other.state_) throw error(errc::invalid_argument, "stream::wait of an empty stream");
  detail::attachment& on = state_->on();
  on.check();
  // The wait stands for the record that was made last: the event is free again at once.
  const std::unique_ptr<void, std::function<void(void*)>> event(on.take_event(),
                                                                [&on](void* e) { on.give_event(e); });
  on.driver().record(event.get(), other.native());
  on.driver().wait(state_->native(), event.get());
}

gate stream::close() const {
  if (!state_) throw error(errc::invalid_argument, "stream::close of an empty stream");
  detail::attachment& on = state_->on();
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
  state_->refuse_capture();  // before the stream waits for the word, which must outlive the wait
  auto word = std::make_shared<detail::gate_word>(state_->shared_on());
  on.driver().wait(state_->native(), word->get(), 1);
  on.add_gate(word);
  state_->keep(detail::keeps{word});
  return gate(std::move(word));
}

operation stream::transfer(detail::operation_kind kind, detail::view to, detail::view from) const {
  if (to.count * to.element_bytes < from.bytes())
    throw error(errc::truncated,
                fmt::format("{}: {} bytes do not fit into {}", name_of(kind), from.bytes(), to.bytes()));
  if (to.type != from.type || to.element_bytes != from.element_bytes)
    throw error(errc::invalid_argument, fmt::format("{}: both sides need one element type", name_of(kind)));
  detail::call what(kind, state_, state_);
  what.in = std::move(from);
  what.out = std::move(to);
  return operation(std::move(what));
}

operation stream::conversion(detail::view to, detail::view from, double factor) const {
  if (to.count != from.count)
    throw error(errc::invalid_argument, fmt::format("convert: {} elements to {}", from.count, to.count));
  detail::call what(detail::operation_kind::convert, state_, state_);
  what.in = std::move(from);
  what.out = std::move(to);
  what.factor = factor;
  return operation(std::move(what));
}

}  // namespace tutti::gpu
