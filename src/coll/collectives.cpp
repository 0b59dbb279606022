// SPDX-License-Identifier: Apache-2.0
// The operation state of a collective: from the operation to the coroutine that carries it out, and its end
// on every path.
#include "coll/algorithms.hpp"
#include "coll/choice.hpp"
#include "coll/segment_steps.hpp"
#include "comm/fingerprint.hpp"
#include "comm/world.hpp"
#include "ops/arguments.hpp"
#include "ops/running_operation.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <optional>
#include <span>

namespace tutti::coll {
namespace {

using comm::communicator_state;
using detail::call;
using detail::family;
using detail::operation_row;
using detail::operation_state;
using detail::shape;
using ops::facts_of;
using ops::title;

void succeed(operation_state& state, const communicator_state& c) noexcept {
  const call& what = state.what();
  state.set_result({.source = c.rank(), .bytes = what.list.at == nullptr ? what.out.bytes() : 0});
}

class collective_operation_state final
    : public ops::task_operation<collective_operation_state, comm::running_collective> {
 public:
  collective_operation_state(operation_state& s, std::uint32_t number) noexcept
      : task_operation(s, number, number) {
    on_expire = [](core::completion& a) noexcept {
      auto& self = static_cast<collective_operation_state&>(a);
      comm::report_hang(self.comm());
      self.comm().progress().explain_and_fail(
          self.sequence, errc::timed_out,
          fmt::format("{} on {}: {} on {}", self.describe(), self.comm().group().name(),
                      self.comm().pending().timeout_text(),
                      self.comm().group().describe(self.comm().rank())));
    };
  }

  ~collective_operation_state() {
    const bool made = ended_ && failure() == errc::success;
    if (!made && detail::row_of(operation_.what().kind).of == family::set_up && !comm().detached())
      comm::world_of(comm()).note_unmade();
  }

  // ops::running_operation
  void stop(errc why, const std::string& text) noexcept override {
    if (ended_) return;
    const std::string failure_text =
        fmt::format("{} on {} was {} on {}{}{}", describe(), comm().group().name(),
                    why == errc::cancelled ? "cancelled" : "ended", comm().group().describe(comm().rank()),
                    text == "cancelled" ? "" : ": ", text == "cancelled" ? "" : text);
    if (why == errc::timed_out)
      comm().progress().explain_and_fail(sequence, why, failure_text);
    else
      comm().failure().fail(why, failure_text, p2p::subject::collective, true);
  }
  void abandon() noexcept override {
    const bool complete = ended_ && failure() == errc::success;
    const std::string text = fmt::format("{} on {} was dropped before its end on {}", describe(),
                                         comm().group().name(), comm().group().describe(comm().rank()));
    if (!comm().detached()) comm().recorder().end(record, flight::state::cancelled);
    const std::uint32_t first = comm().order().first_open(sequence);
    leave();
    // Also if it had failed and nobody had been told. Before the body goes: its messages come after this one.
    if (!complete && !comm().failure().ends(sequence))
      comm().failure().fail(errc::cancelled, text, p2p::subject::collective, true, p2p::extent::one, first);
    this->~collective_operation_state();
  }

  // comm::running_collective
  void end(errc why, const std::string& text) noexcept override {
    told_ = true;
    stop_body(why, text);
  }
  std::string describe() const override {
    return fmt::format("{} #{}", name_of(operation_.what().kind), sequence);
  }

  // Removes it from all lists; the transfers of its body are taken back.
  void leave() noexcept {
    static_cast<base::list_hook<comm::running_tag>&>(*this).unlink();
    task_operation::leave();
  }

  void report() noexcept { failure() != errc::success ? fail() : succeed(operation_, comm()); }

 private:
  [[gnu::noinline]] void fail() noexcept {
    errc why = failure();
    std::string text = take_text();
    // What another rank's failure takes with it does not hide the reason.
    if (!told_ && comm().failure().ends(sequence)) {
      why = comm().failure().why();
      comm().failure().report();  // by this
      text = comm().failure().text_for(*this, comm().failure().text(), comm().failure().names());
    }
    // A failure that this rank found first fails the collective on all ranks.
    if (!comm().failure().ends(sequence)) {
      // The link that has ended does not know this communicator's numbers.
      const bool is_death = comm().failure().dead_member().starts_with(text);
      text = fmt::format("{} on {}: {}", describe(), comm().group().name(),
                         is_death ? comm().failure().dead_member() : text);
      comm().failure().fail(why, text, p2p::subject::collective, true, p2p::extent::one, sequence);
    }
    operation_.fail(why, std::move(text));
  }
  bool told_ = false;  // the communicator has failed, and has ended it
};
static_assert(sizeof(collective_operation_state) <= operation_state::running_bytes);

// Returns true if already complete. `make` makes the coroutine that carries it out. If it throws, the others
// still count on this rank, which has taken its place in the order.
template <class Make>
bool start_running(operation_state& state, communicator_state& c, std::uint32_t sequence, const Make& make) {
  auto* const running = new (state.running_storage()) collective_operation_state(state, sequence);
  c.progress().add(*running);
  if (!running->start(make)) return false;
  running->finish();
  return true;
}

// Whether there is nothing to move: the same on all ranks, as the fingerprint ensures.
bool is_empty(const communicator_state& c, const call& what) noexcept {
  if (what.on_device()) return false;  // it must wait for its stream
  if (what.kind == operation_kind::barrier) return c.size() == 1;
  const operation_row& row = detail::row_of(what.kind);
  return row.of == family::collective && !row.uneven() && agreed_buffer(what).count == 0;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

template <class Number>
std::uint64_t hash_of(std::span<const Number> numbers) noexcept {
  std::uint64_t hash = numbers.size();
  for (const Number n : numbers) hash = mixed(hash, static_cast<std::uint64_t>(n));
  return hash;
}

// The size of elements that have no arithmetic, or its hash.
std::uint16_t size_mark(std::size_t bytes) noexcept {
  constexpr std::uint16_t hashed = comm::collective_description::least_hashed_bytes;
  return static_cast<std::uint16_t>(bytes < hashed ? bytes : hashed | mixed(0, bytes) >> 49);
}

// The count that all ranks must agree on, or a hash of several.
std::uint64_t agreed_count(const call& what, const operation_row& row) noexcept {
  if (what.kind == operation_kind::group)
    return hash_of(std::span(static_cast<const int*>(what.in.data), what.in.count));
  if (row.of != family::collective || what.kind == operation_kind::barrier) return 0;
  if (!row.uneven()) return agreed_buffer(what).count;
  if (!row.counts_known()) return 0;
  return hash_of(row.in == shape::blocks ? what.in_counts : what.out_counts);
}

// Describes what all ranks must agree on, including the algorithm chosen. Throws what choose() throws.
comm::collective_description describe_call(communicator_state& c, const call& what) {
  const operation_row& row = detail::row_of(what.kind);
  comm::collective_description d;
  d.kind = static_cast<std::uint8_t>(what.kind);
  d.count = agreed_count(what, row);
  d.type = static_cast<std::uint8_t>(agreed_buffer(what).type);
  if (row.rooted) d.root = what.peer;
  if (what.list.at != nullptr) d.root = static_cast<std::int32_t>(what.list.size);
  d.reduction = static_cast<std::uint8_t>(what.op.kind);
  d.callable = what.op.callable;
  if (agreed_buffer(what).type == element_type::opaque)
    d.callable ^= size_mark(agreed_buffer(what).element_bytes);
  if (row.of != family::collective) return d;
  if (what.on_device()) {
    d.kind |= comm::on_device;
  } else {
    const algorithm chosen = choose(situation_of(c, what), what.wanted);
    d.algorithm = static_cast<std::uint8_t>(chosen);
    if (chosen == algorithm::shared_memory) {
      c.segments()->want();
      if (c.segments()->groups() != nullptr) d.algorithm |= comm::in_two_levels;
    }
  }
  return d;
}

task<> nothing() { co_return; }

algorithm algorithm_of(const comm::collective_description& d) noexcept {
  return static_cast<algorithm>(d.algorithm & ~comm::in_two_levels);
}

// What the ranks compare, and the algorithm.
struct plan {
  p2p::fingerprint print;
  algorithm with;
};

plan plan_of(communicator_state& c, const call& what) {
  if (what.kind == operation_kind::prepare) {
    detail::prepared_call& made = *what.prepared;
    comm::collective_description d = describe_call(c, made.what);
    made.print = comm::fingerprint_of(d);
    made.with = algorithm_of(d);
    d.kind |= comm::being_prepared;
    return {comm::fingerprint_of(d), algorithm::automatic};
  }
  if (what.prepared != nullptr) return {what.prepared->print, what.prepared->with};
  const comm::collective_description d = describe_call(c, what);
  return {comm::fingerprint_of(d), algorithm_of(d)};
}

// Runs an operation with few bytes on a free collective segment, which often ends before an operation state
// is needed. Returns true if complete.
bool start_posting(operation_state& state, communicator_state& c, const collective& place,
                   const posted& what) {
  comm::collective_segment& b = place.segment();
  b.begin(place.sequence(), place.print());
  const publication mine(place, what.bytes);
  bool written = false;
  std::exception_ptr thrown;  // by a user's reduction
  try {
    if (publish_at_once(place, what, mine, written)) {
      b.finish();
      c.recorder().note(facts_of(c, state.what(), place.sequence()), flight::state::done);
      succeed(state, c);
      return true;
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  return start_running(state, c, place.sequence(), [&] {
    if (thrown) std::rethrow_exception(thrown);
    return publish_rest(place, what, mine, written);
  });
}

// The same in two levels: one step after the other.
bool start_steps(operation_state& state, communicator_state& c, const collective& place,
                 const posted_steps& steps) {
  std::size_t at = 0;
  std::optional<publication> mine;
  bool written = false;
  std::exception_ptr thrown;  // by a user's reduction
  try {
    for (; steps.has(at); ++at) {
      const auto& [on, what] = *steps.all[at];
      on.segment().begin(on.sequence(), on.print());
      mine.emplace(on, what.bytes);
      written = false;
      if (!publish_at_once(on, what, *mine, written)) break;
      on.segment().finish();
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (!thrown && !steps.has(at)) {
    c.recorder().note(facts_of(c, state.what(), place.sequence()), flight::state::done);
    succeed(state, c);
    return true;
  }
  return start_running(state, c, place.sequence(), [&] {
    if (thrown) std::rethrow_exception(thrown);
    return publish_rest_of_steps(steps, at, *mine, written);
  });
}

// Whether no operation is in progress or waiting for its turn.
bool are_free(comm::host_segments& s) noexcept {
  return s.near().segment.free() && (s.groups() == nullptr || s.across().segment.free());
}

bool start_collective(operation_state& state) {
  const call& what = state.what();
  communicator_state& c = *what.comm;
  const plan todo = plan_of(c, what);
  const std::uint32_t sequence = c.next_sequence(todo.print);
  if (!c.failure().failed() && !c.failure().dead_member().empty()) {
    c.failure().fail(errc::peer_failed, c.failure().dead_member(), p2p::subject::other, true,
                     p2p::extent::one, sequence);
    state.fail(errc::peer_failed, fmt::format("{}: {}", title(c, what), c.failure().dead_member()));
    return true;
  }
  if (c.failure().ends(sequence)) {
    state.fail(c.failure().why(), c.failure().text());
    return true;
  }
  const collective place(c, sequence, todo.print);
  if (todo.with == algorithm::shared_memory && are_free(*c.segments()) && !is_empty(c, what)) {
    if (place.groups() != nullptr) {
      if (const posted_steps steps = steps_for(what, place); !steps.none())
        return start_steps(state, c, place, steps);
    } else if (const posted all = posted_for(what, place); all.is_short()) {
      return start_posting(state, c, place, all);
    }
  }
  return start_running(state, c, sequence,
                       [&] { return is_empty(c, what) ? nothing() : execute(state, place, todo.with); });
}

}  // namespace
}  // namespace tutti::coll

template <>
bool tutti::ops::start<tutti::detail::family::collective>(detail::operation_state& state) {
  return coll::start_collective(state);
}
