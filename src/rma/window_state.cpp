// SPDX-License-Identifier: Apache-2.0
#include "rma/window_state.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/shared_memory.hpp"
#include "coll/reduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <tutti/detail/flow.hpp>
#include <tutti/extend/window_part.hpp>
#include <tutti/shared_memory.hpp>
#include <utility>

namespace tutti::rma {
namespace {

// ---- control blocks ----

// Those that no window uses, for the next one. They never become other memory.
struct free_blocks {
  std::mutex mutex;
  std::multimap<std::size_t, control_block*> all;  // by bytes
};
free_blocks& freed() {
  static auto& blocks = *new free_blocks;  // windows may be dropped after static objects
  return blocks;
}

constexpr std::size_t room_for(std::size_t signals) noexcept {
  constexpr std::size_t page = 4096;
  return (control_block::bytes_for(signals) + page - 1) / page * page;
}

control_block* take_block(std::size_t signals) {
  const std::size_t bytes = room_for(signals);
  {
    const std::scoped_lock hold(freed().mutex);
    if (const auto found = freed().all.find(bytes); found != freed().all.end())
      return freed().all.extract(found).mapped();
  }
  return new (detail::allocate_shared_bytes(bytes, alignof(control_block))) control_block();
}

// The longest wait for visitors, who copy some hundred KiB each.
constexpr auto patience_with_visitors = std::chrono::seconds(1);

}  // namespace

// ---- requests ----

p2p::fingerprint request::print() const noexcept {
  p2p::fingerprint print{};
  const std::uint64_t first = at << 8 | static_cast<std::uint64_t>(p2p::for_taker);
  std::memcpy(print.data(), &first, sizeof first);
  std::memcpy(print.data() + sizeof first, &operand, sizeof operand);
  return print;
}

request request::from(const p2p::frame& head) noexcept {
  request r;
  if (head.fingerprint[0] != p2p::for_taker) return r;
  std::uint64_t first = 0;
  std::memcpy(&first, head.fingerprint.data(), sizeof first);
  std::memcpy(&r.operand, head.fingerprint.data() + sizeof first, sizeof r.operand);
  const auto tag = static_cast<std::uint32_t>(head.tag);
  r.at = first >> 8;
  r.is = static_cast<kind>(tag & ((1U << kind_bits) - 1));
  r.number = tag >> kind_bits;
  return r;
}

// ---- making and closing ----

window_state::window_state(detail::communicator_ref comm, const detail::buffer_view& mine,
                           std::size_t signals)
    : comm_(std::move(comm)),
      mine_(mine),
      signals_(signals),
      control_(take_block(signals)),
      targets_(static_cast<std::size_t>(comm_->size())) {
  for (std::size_t i = 0; i < signals; ++i) new (&control_->signals()[i]) std::atomic<std::uint64_t>(0);
  const std::uint64_t mark = comm_->loop().engine().platform().random() | 1;
  control_->mark.store(mark, std::memory_order_release);
  target& self = target_of(comm_->rank());
  self = {.known = true,
          .bytes = mine.bytes(),
          .signals = signals,
          .mark = mark,
          .control = control_,
          .data = start_of(mine)};
  requests_have_come_.user = this;
  requests_have_come_.on_done = [](core::completion& c) noexcept {
    auto& w = *static_cast<window_state*>(c.user);
    for (auto& [peer, of] : w.origins_)
      if (!of->empty() && !of->serving.running()) of->serving.start(w.serve(of.get()));
  };
  comm_->endpoint().set_taker(comm_->numbers().messages(), this);
}

window_state::~window_state() { close(); }

void window_state::context_closes() noexcept {
  if (std::exchange(detached_, true)) return;
  static_cast<base::list_hook<core::ready_tag>&>(requests_have_come_).unlink();
  if (std::exchange(watched_, false)) comm_->loop().engine().remove(*this);
  for (auto& [peer, of] : origins_) {
    of->serving.stop();
    while (!of->empty()) comm_->endpoint().put_back(of->take_first());
  }
}

void window_state::close() noexcept {
  if (std::exchange(closed_, true)) return;
  if (!detached_) {
    comm_->endpoint().set_taker(comm_->numbers().messages(), nullptr);
    comm_->pending().end_unless([](const core::completion&) { return false; });
    context_closes();
    // An operation that has ended, but was not awaited, still keeps the communicator.
    comm_->announce_closing();
  }
  // Sequentially consistent, as the two steps of a visitor: it sees the mark gone, or is seen.
  control_->mark.store(0, std::memory_order_seq_cst);
  const auto until = std::chrono::steady_clock::now() + patience_with_visitors;
  const auto any = [this] {
    return std::ranges::any_of(control_->of, [](const control_block::counter& c) {
      return c.visitors.load(std::memory_order_seq_cst) != 0;
    });
  };
  bool visited = any();
  while (visited && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
    visited = any();
  }
  if (visited) {
    // The block is not used again: this rank would wait for them each time.
    base::log_warning(fmt::format(
        "the window {} at {} was dropped while another rank was stopped, or died, in the middle of "
        "a copy to or from it: if that rank goes on, it writes to this memory; do not reuse it",
        comm_->group().name(), mine_.data));
    return;
  }
  const std::scoped_lock hold(freed().mutex);
  freed().all.emplace(room_for(signals_), std::exchange(control_, nullptr));
}

// ---- other ranks' parts ----

target& window_state::target_of(int rank) {
  std::unique_ptr<target>& t = targets_[static_cast<std::size_t>(rank)];
  if (t == nullptr) t = std::make_unique<target>();
  return *t;
}

transport::neighbours* window_state::neighbours_of(int rank) const noexcept {
  if (rank == comm_->rank()) return nullptr;
  return comm_->home().memory_of({comm_->group().world_rank(comm_->rank()), comm_->group().world_rank(rank)});
}

void window_state::attach(int rank, const place_record& told) {
  target& t = target_of(rank);
  if (t.known) return;
  const int peer = comm_->group().world_rank(rank);
  if (told.bytes > limits::longest_buffer_bytes || told.signals > most_numbers) {
    comm_->endpoint().reject(peer, "a window that is longer than any memory");
    throw error(errc::protocol,
                fmt::format("{} has a window longer than any memory", comm_->group().describe(rank)));
  }
  t.known = true;
  t.bytes = told.bytes;
  t.signals = told.signals;
  t.mark = told.mark;
  transport::neighbours* const near = neighbours_of(rank);
  if (near == nullptr || told.control_region == 0 || told.mark == 0 ||
      told.control_offset % alignof(control_block) != 0)
    return;
  std::byte* const control = near->find_writable(peer, told.control_region, told.control_offset,
                                                 control_block::bytes_for(told.signals));
  t.sleeps = near->sleeps(peer);
  if (control == nullptr || t.sleeps == nullptr) return;
  t.near = near;
  t.control = reinterpret_cast<control_block*>(control);
  if (told.data_region != 0)
    t.data = near->find_writable(peer, told.data_region, told.data_offset, told.bytes);
}

void window_state::notify(int rank, const target& t) noexcept {
  if (rank == comm_->rank()) return comm_->loop().wake();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (t.sleeps->load(std::memory_order_relaxed) != 0) t.near->notify(comm_->group().world_rank(rank));
}

std::atomic<std::uint32_t>& begin_visit(window_state& w, int rank, target& t) {
  std::atomic<std::uint32_t>& visitors =
      t.control->of[static_cast<std::size_t>(w.comm().rank()) % control_block::counters].visitors;
  visitors.fetch_add(1, std::memory_order_seq_cst);
  if (t.control->mark.load(std::memory_order_seq_cst) == t.mark) return visitors;
  visitors.fetch_sub(1, std::memory_order_release);
  throw error(
      errc::peer_left,
      fmt::format("{} has dropped its part of {}: keep a window on every rank until all are done with "
                  "it, as after a barrier",
                  w.comm().group().describe(rank), w.comm().group().name()));
}

place_record window_state::place_for(int peer) noexcept {
  place_record told{
      .bytes = mine_.bytes(), .signals = signals_, .mark = control_->mark.load(std::memory_order_relaxed)};
  const int rank = comm_->group().rank_of(peer);
  transport::neighbours* const near = neighbours_of(rank);
  if (near == nullptr) return told;
  const auto show = [&](const void* data, std::size_t bytes, std::uint64_t& region, std::uint64_t& offset) {
    const auto place = base::find_shared(data, bytes);
    if (!place || !near->show(peer, *place)) return;
    region = place->region;
    offset = place->offset;
  };
  show(control_, control_block::bytes_for(signals_), told.control_region, told.control_offset);
  written_in_place_ = written_in_place_ || told.control_region != 0;
  if (mine_.bytes() > 0) show(mine_.data, mine_.bytes(), told.data_region, told.data_offset);
  return told;
}

// ---- serving ----

void window_state::take(p2p::unexpected& held) noexcept {
  std::unique_ptr<origin>& of = origins_[held.peer];
  if (of == nullptr) of = std::make_unique<origin>();
  of->waiting.push_back(&held);
  if (!static_cast<base::list_hook<core::ready_tag>&>(requests_have_come_).linked())
    comm_->loop().engine().complete(requests_have_come_);
}

// Ends a message that nobody wants: its sender counts it as sent.
void window_state::drop(p2p::unexpected& held) noexcept {
  p2p::receive nothing;
  comm_->endpoint().start(nothing, held, nullptr, 0);
}

// Says what is wrong with a request; empty if it is good. Its sender has checked it too: an honest one asks for
// nothing of this.
std::string window_state::why_bad(const request& r, const p2p::frame& head) const {
  const auto inside = [&](std::uint64_t bytes) {
    return r.at <= mine_.bytes() && bytes <= mine_.bytes() - r.at && r.at % mine_.element_bytes == 0 &&
           bytes % mine_.element_bytes == 0;
  };
  using kind = request::kind;
  switch (r.is) {
    case kind::attach:
    case kind::flush:
      return head.length == 0 ? "" : "data with a request of a window that has none";
    case kind::put:
      return inside(head.length) ? "" : "a put past the end of a window";
    case kind::put_signal:
      if (!inside(head.length)) return "a put past the end of a window";
      return r.number < signals_ ? "" : "a signal that a window does not have";
    case kind::get:
      return head.length == 0 && inside(r.operand) ? "" : "a get past the end of a window";
    case kind::accumulate: {
      const auto op = static_cast<reduce_kind>(r.operand);
      if (!inside(head.length) || head.length > accumulate_bytes)
        return "an accumulate past the end of a window";
      const bool known = r.operand <= static_cast<std::uint64_t>(reduce_kind::bxor) &&
                         op != reduce_kind::none && mine_.type != element_type::opaque &&
                         detail::fits(op, mine_.type);
      return known ? "" : "an accumulate with a reduction that does not fit its window";
    }
    case kind::fetch_add:
    case kind::compare_exchange:
      if (r.at >= signals_) return "a signal that a window does not have";
      return head.length == (r.is == kind::fetch_add ? 0 : sizeof(std::uint64_t))
                 ? ""
                 : "a request of a window with a wrong length";
    case kind::answer:
      break;
  }
  return "a request that no window knows";
}

task<> window_state::serve(origin* of) {
  while (!of->empty()) {
    p2p::unexpected& held = of->take_first();
    const request r = request::from(held.head);
    const std::string wrong = why_bad(r, held.head);
    // An answer whose operation has ended early is no error.
    const bool late =
        r.is == request::kind::answer && held.head.fingerprint == p2p::point_to_point &&
        request{.number = static_cast<std::uint32_t>(held.head.tag) >> request::kind_bits}.tag() ==
            held.head.tag;
    held.head.fingerprint = p2p::point_to_point;  // of a message that a receive takes
    const int peer = held.peer;
    if (!wrong.empty()) {
      drop(held);
      if (!late) comm_->endpoint().reject(peer, wrong.c_str());
      continue;
    }
    try {
      co_await carry_out(r, &held);
    } catch (const error&) {
      // Its origin has taken it back, or has gone: nobody waits for an answer.
    } catch (const std::bad_alloc&) {
      comm_->endpoint().lose(peer, "a request to a window");
    }
  }
}

task<> window_state::carry_out(request r, p2p::unexpected* held) {
  using kind = request::kind;
  p2p::endpoint& endpoint = comm_->endpoint();
  const int peer = held->peer;
  const std::uint64_t length = held->head.length;
  const std::uint32_t context = comm_->numbers().messages();
  std::byte* const place = start_of(mine_) + (mine_.bytes() > 0 ? r.at : 0);
  const void* answer = nullptr;
  std::uint64_t answer_bytes = 0;
  std::uint64_t word = 0;
  place_record told{};
  switch (r.is) {
    case kind::put:
    case kind::put_signal: {
      p2p::receiving data(endpoint, std::ref(*held), place, length);
      co_await data;
      if (r.is == kind::put_signal) signal(r.number).fetch_add(r.operand, std::memory_order_seq_cst);
      co_return;
    }
    case kind::accumulate: {
      const auto memory = comm_->scratch().take(length);
      p2p::receiving data(endpoint, std::ref(*held), memory.data(), length);
      co_await data;
      detail::reduction op;
      op.kind = static_cast<reduce_kind>(r.operand);
      coll::combine(op, mine_.type, place, memory.data(), place, length / mine_.element_bytes);
      co_return;
    }
    default: {
      p2p::receiving data(endpoint, std::ref(*held), &word, length);
      co_await data;
    }
  }
  switch (r.is) {
    case kind::get:
      answer = place;
      answer_bytes = r.operand;
      break;
    case kind::fetch_add:
      word = signal(r.at).fetch_add(r.operand, std::memory_order_seq_cst);
      break;
    case kind::compare_exchange: {
      std::uint64_t before = r.operand;
      signal(r.at).compare_exchange_strong(before, word, std::memory_order_seq_cst);
      word = before;
      break;
    }
    case kind::attach:
      told = place_for(peer);
      answer = &told;
      answer_bytes = sizeof told;
      break;
    default:
      break;
  }
  if (r.is == kind::fetch_add || r.is == kind::compare_exchange) {
    answer = &word;
    answer_bytes = sizeof word;
  }
  p2p::sending out(endpoint, context, peer, request{.number = r.number}.tag(), answer, answer_bytes,
                   p2p::point_to_point);
  co_await out;
}

// ---- waiting ----

void window_state::watch() noexcept {
  if (!std::exchange(watched_, true)) comm_->loop().engine().add(*this);
  comm_->loop().wake();
}

bool window_state::poll() noexcept {
  bool any = false;
  turns_.for_each([&](turn& t) {
    static_cast<base::list_hook<turn_tag>&>(t).unlink();
    comm_->loop().engine().complete(t);
    any = true;
  });
  waits_.for_each([&](signal_wait& w) {
    if (!w.check()) return;
    static_cast<base::list_hook<signal_wait_tag>&>(w).unlink();
    comm_->loop().engine().complete(w);
    any = true;
  });
  if (!any && waits_.empty() && turns_.empty()) {
    watched_ = false;
    comm_->loop().engine().remove(*this);
  }
  return any;
}

void window_state::turn::await_suspend(std::coroutine_handle<> h) noexcept {
  waiting_ = h;
  on_done = [](core::completion& c) noexcept { detail::resume_bounded(static_cast<turn&>(c).waiting_); };
  window_.turns_.push_back(*this);
  window_.watch();
}

window_state::signal_wait::signal_wait(window_state& w, std::size_t signal,
                                       const detail::window_access& until) noexcept
    : window_(w), signal_(signal), until_(until) {}

window_state::signal_wait::~signal_wait() {
  static_cast<base::list_hook<signal_wait_tag>&>(*this).unlink();
  static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();
  if (!window_.comm().detached()) window_.comm().endpoint().release(never_);
}

bool window_state::signal_wait::check() noexcept {
  value_ = window_.signal(signal_).load(std::memory_order_seq_cst);
  try {
    return until_.holds(value_);
  } catch (...) {
    thrown_ = std::current_exception();
    return true;
  }
}

bool window_state::signal_wait::await_ready() {
  if (check()) return true;
  // No request has this tag: only the end of a member ends it.
  constexpr std::int32_t nothing = (1 << request::kind_bits) - 1;
  comm::communicator_state& c = window_.comm();
  never_.user = this;
  never_.on_done = [](core::completion& gone) noexcept {
    auto& self = *static_cast<signal_wait*>(gone.user);
    static_cast<base::list_hook<signal_wait_tag>&>(self).unlink();
    if (gone.failure() == errc::success)
      self.set_failure(errc::protocol, "a rank sent a message that no window knows");
    else
      self.set_failure(gone.failure(), gone.take_text());
    if (self.waiting_ && !static_cast<base::list_hook<core::ready_tag>&>(self).linked())
      self.window_.comm().loop().engine().complete(self);
  };
  if (!c.endpoint().start(never_, c.numbers().messages(), any_source, nothing, nullptr, 0,
                          p2p::point_to_point))
    return false;
  set_failure(never_.failure(), never_.take_text());
  return true;
}

void window_state::signal_wait::await_suspend(std::coroutine_handle<> h) noexcept {
  waiting_ = h;
  on_done = [](core::completion& c) noexcept {
    detail::resume_bounded(static_cast<signal_wait&>(c).waiting_);
  };
  window_.waits_.push_back(*this);
  window_.comm().pending().expect_anyone();
  window_.watch();
}

std::uint64_t window_state::signal_wait::await_resume() {
  if (thrown_) std::rethrow_exception(thrown_);
  if (failure() != errc::success) throw error(failure(), take_text());
  return value_;
}

}  // namespace tutti::rma

namespace tutti::extend::inline v1 {

window_visit::window_visit(const window_ref& w, int rank) {
  rma::target& t = w->target_of(rank);
  if (t.control == nullptr)
    throw error(errc::not_supported,
                fmt::format("{} shares no memory of the host with this rank: it is on another host, or the "
                            "transport is not shm",
                            w->comm().group().describe(rank)));
  visitors_ = &rma::begin_visit(*w, rank, t);
}

}  // namespace tutti::extend::inline v1

namespace tutti::detail {

window_ref open_window(const communicator_ref& comm, const buffer_view& mine, std::size_t signals) {
  return std::make_shared<rma::window_state>(comm, mine, signals);
}
void close_window(rma::window_state& w) noexcept { w.close(); }
const communicator_ref& communicator_of(const rma::window_state& w) noexcept { return w.reference(); }

std::uint64_t read_signal(const rma::window_state& w, int signal) {
  if (signal < 0 || static_cast<std::size_t>(signal) >= w.signals() || w.closed())
    throw error(errc::invalid_argument,
                fmt::format("signal {} of {}: this rank has signals 0 to {}: window_options::signals", signal,
                            w.comm().group().name(), w.signals() - 1));
  return w.signal(static_cast<std::size_t>(signal)).load(std::memory_order_seq_cst);
}

void require_window(bool is_one) {
  if (!is_one)
    throw error(
        errc::invalid_argument,
        "an operation on a window that is empty: it was moved from, or not made by communicator::window");
}

}  // namespace tutti::detail
