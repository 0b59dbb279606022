// SPDX-License-Identifier: Apache-2.0
// Operations on windows, as their origin carries them out: at once where it can do so in place, otherwise by a
// coroutine that copies in slices, or sends requests. An executor carries out those on memory of its own.
#include "base/cycles.hpp"
#include "base/limits.hpp"
#include "ops/arguments.hpp"
#include "ops/running_operation.hpp"
#include "rma/window_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <tutti/extend/window_part.hpp>
#include <utility>

namespace tutti::rma {
namespace {

using comm::communicator_state;
using detail::buffer_view;
using detail::call;
using detail::operation_state;
using detail::window_access;
using kind = detail::operation_kind;

constexpr std::size_t slice_bytes = limits::shm::direct_slice_bytes;

const window_access& access_of(const call& what) noexcept {
  return static_cast<const window_access&>(*what.part.get());
}
window_state& window_of(const call& what) noexcept {
  if (what.on_device()) return *static_cast<const extend::window_part&>(*what.part.get()).window;
  return *access_of(what).window;
}
const buffer_view& buffer_of(const call& what) noexcept {
  return what.kind == kind::get ? what.out : what.in;
}
bool has_data(kind k) noexcept {
  return k == kind::put || k == kind::put_signal || k == kind::get || k == kind::accumulate;
}

[[noreturn]] void refuse(const std::string& text) { throw error(errc::invalid_argument, text); }

// Returns the first byte of the access in the window of its rank.
std::uint64_t check_bounds(const call& what, const target& t) {
  const communicator_state& c = *what.comm;
  if (what.tag >= 0 && static_cast<std::uint64_t>(what.tag) >= t.signals)
    refuse(fmt::format("{} has {} signals, numbered from 0: window_options::signals of that rank's call",
                       c.group().describe(what.peer), t.signals));
  if (!has_data(what.kind)) return 0;
  const buffer_view& data = buffer_of(what);
  const std::uint64_t first = access_of(what).offset, there = t.bytes / data.element_bytes;
  if (first > there || data.count > there - first)
    refuse(fmt::format("{} elements from element {} on end past the window of {}, which has {} elements",
                       data.count, first, c.group().describe(what.peer), there));
  return first * data.element_bytes;
}

void check_open(const window_state& w) {
  if (w.closed()) throw error(errc::shut_down, dropped_text);
}

// ---- in place ----

bool in_place(const call& what, const target& t) noexcept {
  switch (what.kind) {
    case kind::put:
    case kind::get:
      return t.control != nullptr && (t.data != nullptr || buffer_of(what).count == 0);
    case kind::put_signal:  // no signal overtakes puts that are requests
      return t.control != nullptr && (t.data != nullptr || (buffer_of(what).count == 0 && !t.unflushed()));
    case kind::fetch_add:
    case kind::compare_exchange:
      return t.control != nullptr;
    case kind::flush:
      return !t.unflushed();
    default:
      return false;
  }
}

// Copies up to a slice of the buffer, from its byte `done` on; returns the bytes.
std::size_t copy_slice(const call& what, target& t, std::uint64_t at, std::size_t done) {
  const buffer_view& data = buffer_of(what);
  const std::size_t bytes = std::min(data.bytes() - done, slice_bytes);
  if (bytes == 0) return 0;
  const visit here(window_of(what), what.peer, t);
  if (what.kind == kind::get)
    base::copy_out(start_of(data) + done, t.data + at + done, bytes);
  else
    window_of(what).writer().copy(t.data + at + done, start_of(data) + done, bytes);
  return bytes;
}

// Changes a signal in place; returns its value before.
std::uint64_t change_signal(const call& what, target& t) {
  const window_access& with = access_of(what);
  std::uint64_t before = with.expected;
  {
    const visit here(window_of(what), what.peer, t);
    std::atomic<std::uint64_t>& word = t.control->signals()[what.tag];
    // What was written before is seen by who sees the signal, also through changes by others.
    if (what.kind == kind::compare_exchange)
      word.compare_exchange_strong(before, with.value, std::memory_order_seq_cst);
    else
      before = word.fetch_add(with.value, std::memory_order_seq_cst);
  }
  window_of(what).notify(what.peer, t);
  return before;
}

// The value of the signal if the wait is over, or is within about a microsecond, as one for an answer of this host: an
// operation that waits takes as long to make. With more ranks than cores the other one may need this core.
std::optional<std::uint64_t> wait_a_moment(window_state& w, const call& what) {
  const std::atomic<std::uint64_t>& word = w.signal(static_cast<std::size_t>(what.tag));
  const bool looks_again = w.written_in_place() && !w.comm().loop().yields() && w.may_end_at_once(0);
  std::uint64_t seen = word.load(std::memory_order_seq_cst);
  for (int looks = looks_again ? 32 : 0;;) {
    try {
      if (access_of(what).holds(seen)) return seen;
    } catch (...) {
      return std::nullopt;  // the coroutine calls it again, and reports what it throws
    }
    const std::uint64_t before = seen;
    for (; seen == before; seen = word.load(std::memory_order_seq_cst)) {
      if (--looks < 0) return std::nullopt;
      base::relax();
    }
  }
}

// Does it if that needs no other rank, and no turn of the loop. Returns the value of the signal.
std::optional<std::uint64_t> at_once(const call& what) {
  window_state& w = window_of(what);
  if (what.kind == kind::wait_signal) return wait_a_moment(w, what);
  target& t = w.target_of(what.peer);
  if (!t.known) return std::nullopt;
  const std::uint64_t at = check_bounds(what, t);
  if (!in_place(what, t) || (has_data(what.kind) && buffer_of(what).bytes() > slice_bytes))
    return std::nullopt;
  if (!w.may_end_at_once(buffer_of(what).bytes())) return std::nullopt;
  if (has_data(what.kind)) copy_slice(what, t, at, 0);
  return what.tag >= 0 ? change_signal(what, t) : 0;
}

// ---- by requests ----

// Sends a request with `bytes` bytes of data, and receives the answer, if there is one. By value: a coroutine.
task<> ask(window_state* w, int rank, request r, const void* data, std::uint64_t bytes, void* answer,
           std::uint64_t answer_bytes) {
  communicator_state& c = w->comm();
  const int peer = c.group().world_rank(rank);
  r.number = w->next_number();
  // Posted first: the answer finds it.
  p2p::receiving reply(c.endpoint(), c.numbers().messages(), peer, request{.number = r.number}.tag(), answer,
                       answer_bytes, p2p::point_to_point);
  p2p::sending out(c.endpoint(), c.numbers().messages(), peer, r.tag(), data, bytes, r.print());
  co_await out;
  const status came = co_await reply;
  if (came.bytes == answer_bytes) co_return;
  c.endpoint().reject(peer, "an answer of a wrong length");
  throw error(errc::protocol, fmt::format("{} sent an answer of a wrong length", c.group().describe(rank)));
}

task<> tell(window_state* w, int rank, request r, const std::byte* data, std::uint64_t bytes) {
  communicator_state& c = w->comm();
  ++w->target_of(rank).told;
  p2p::sending out(c.endpoint(), c.numbers().messages(), c.group().world_rank(rank), r.tag(), data, bytes,
                   r.print());
  co_await out;
}

task<> by_request(operation_state* op, std::uint64_t at) {
  const call& what = op->what();
  const window_access& with = access_of(what);
  window_state& w = window_of(what);
  const buffer_view& data = buffer_of(what);
  using is = request::kind;
  const auto signal = static_cast<std::uint32_t>(what.tag);
  std::uint64_t before = 0;
  switch (what.kind) {
    case kind::put:
      co_return co_await tell(&w, what.peer, {.is = is::put, .at = at}, start_of(data), data.bytes());
    case kind::put_signal: {
      const request r{.is = is::put_signal, .number = signal, .at = at, .operand = with.value};
      co_return co_await tell(&w, what.peer, r, start_of(data), data.bytes());
    }
    case kind::accumulate: {
      // Whole elements.
      const std::size_t most = accumulate_bytes / data.element_bytes * data.element_bytes;
      for (std::size_t done = 0; done < data.bytes(); done += most) {
        const request r{
            .is = is::accumulate, .at = at + done, .operand = static_cast<std::uint64_t>(what.op.kind)};
        co_await tell(&w, what.peer, r, start_of(data) + done, std::min(most, data.bytes() - done));
      }
      co_return;
    }
    case kind::get:
      co_return co_await ask(&w, what.peer, {.is = is::get, .at = at, .operand = data.bytes()}, nullptr, 0,
                             data.data, data.bytes());
    case kind::fetch_add:
      co_await ask(&w, what.peer, {.is = is::fetch_add, .at = signal, .operand = with.value}, nullptr, 0,
                   &before, sizeof before);
      break;
    case kind::compare_exchange:
      co_await ask(&w, what.peer, {.is = is::compare_exchange, .at = signal, .operand = with.expected},
                   &with.value, sizeof with.value, &before, sizeof before);
      break;
    default: {  // flush
      target& t = w.target_of(what.peer);
      const std::uint64_t told = t.told;
      co_await ask(&w, what.peer, {.is = is::flush}, nullptr, 0, nullptr, 0);
      t.flushed = std::max(t.flushed, told);
      co_return;
    }
  }
  op->set_result({.source = what.peer, .bytes = before});
}

// ---- the operation ----

task<> carry_out(operation_state* op) {
  const call& what = op->what();
  window_state& w = window_of(what);
  if (what.kind == kind::wait_signal) {
    window_state::signal_wait wait(w, static_cast<std::size_t>(what.tag), access_of(what));
    const std::uint64_t value = co_await wait;
    op->set_result({.source = what.comm->rank(), .bytes = value});
    co_return;
  }
  target& t = w.target_of(what.peer);
  if (!t.known) {
    place_record told{};
    co_await ask(&w, what.peer, {.is = request::kind::attach}, nullptr, 0, &told, sizeof told);
    check_open(w);
    w.attach(what.peer, told);
  }
  const std::uint64_t at = check_bounds(what, t);
  if (!in_place(what, t)) co_return co_await by_request(op, at);
  for (std::size_t done = 0;;) {
    window_state::turn others(w);
    co_await others;
    check_open(w);
    if (!has_data(what.kind)) break;
    done += copy_slice(what, t, at, done);
    if (done == buffer_of(what).bytes()) break;
  }
  if (what.tag >= 0) op->set_result({.source = what.peer, .bytes = change_signal(what, t)});
}

struct recorded_completion : core::completion {
  flight::handle record{};
};

class one_sided_operation final : public ops::task_operation<one_sided_operation, recorded_completion> {
 public:
  explicit one_sided_operation(operation_state& s) noexcept : task_operation(s, 0) {
    on_expire = [](core::completion& a) noexcept { static_cast<one_sided_operation&>(a).expire(); };
  }
  void stop(errc why, const std::string& text) noexcept override {
    if (!std::exchange(ended_, true)) stop_body(why, text);
  }
  void abandon() noexcept override {
    leave();
    if (!comm().detached()) comm().recorder().end(record, flight::state::cancelled);
    this->~one_sided_operation();
  }
  void report() noexcept {
    if (failure() == errc::success) return;
    const std::string text = take_text();
    const errc why = failure();
    if (why == errc::peer_failed && !comm().detached() && !comm().failure().failed())
      comm().failure().fail(why, text, p2p::subject::other, true);
    operation_.fail(why, fmt::format("{}: {}", ops::title(comm(), operation_.what()), text));
  }

 private:
  // Its communicator has failed, its window was dropped, or it has taken longer than its timeout.
  void expire() noexcept {
    if (window_of(operation_.what()).closed()) return stop(errc::shut_down, dropped_text);
    if (comm().failure().failed()) return stop(comm().failure().why(), comm().failure().text());
    comm::report_hang(comm());
    stop(errc::timed_out, comm().pending().timeout_text());
  }
};
static_assert(sizeof(one_sided_operation) <= operation_state::running_bytes);

bool start_one_sided(operation_state& state) {
  const call& what = state.what();
  communicator_state& c = *what.comm;
  check_open(window_of(what));
  if (const std::string& dead = c.failure().dead_member(); !dead.empty()) {
    const std::string text = dead;
    c.failure().fail(errc::peer_failed, text, p2p::subject::other, true);
    throw error(errc::peer_failed, text);
  }
  if (const auto value = what.on_device() ? std::nullopt : at_once(what)) {
    c.recorder().note(ops::facts_of(c, what, 0), flight::state::done);
    state.set_result({.source = what.peer, .bytes = *value});
    state.release_device();
    return true;
  }
  auto* const running = new (state.running_storage()) one_sided_operation(state);
  const auto body = [&state] {
    const call& given = state.what();
    return given.on_device() ? detail::executor_part_of(given).execute(state) : carry_out(&state);
  };
  if (!running->start(body)) return false;
  running->finish();
  return true;
}

}  // namespace
}  // namespace tutti::rma

template <>
bool tutti::ops::start<tutti::detail::family::one_sided>(detail::operation_state& state) {
  return rma::start_one_sided(state);
}

namespace tutti::detail {

std::string window_access::bad_argument(const call& what) const {
  const comm::communicator_state& c = *what.comm;
  if (what.kind == operation_kind::wait_signal) {
    if (what.tag >= 0 && static_cast<std::size_t>(what.tag) < window->signals()) return {};
    return fmt::format("this rank has {} signals, numbered from 0: window_options::signals",
                       window->signals());
  }
  if (what.peer < 0 || what.peer >= c.size())
    return fmt::format("rank {} is outside the window, which has the ranks 0 to {}", what.peer, c.size() - 1);
  const bool names_signal = what.kind == operation_kind::put_signal ||
                            what.kind == operation_kind::fetch_add ||
                            what.kind == operation_kind::compare_exchange;
  return names_signal && what.tag < 0 ? fmt::format("signal {}; signals are numbered from 0", what.tag) : "";
}

}  // namespace tutti::detail
