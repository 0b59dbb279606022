// SPDX-License-Identifier: Apache-2.0
// operation_state: from what the user asked for to the machine that does it, and back to a result or an error in words.
#include "coll/algorithms.hpp"
#include "coll/choice.hpp"
#include "comm/communicator_state.hpp"
#include "comm/world.hpp"
#include "core/running_task.hpp"

#include <fmt/format.h>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <new>
#include <optional>
#include <tutti/detail/operation_state.hpp>

namespace tutti::detail {
namespace {

using comm::communicator_state;

const char* verb(operation_kind kind) noexcept {
  switch (kind) {
    case operation_kind::send: return "send";
    case operation_kind::receive: return "recv";
    case operation_kind::barrier: return "barrier";
    case operation_kind::broadcast: return "broadcast";
    case operation_kind::all_reduce: return "all_reduce";
  }
  return "?";
}

std::string peer_words(const communicator_state& c, const call& what) {
  std::string words;
  if (what.kind == operation_kind::send) {
    words = fmt::format("to {}, tag {}", c.describe(what.peer), what.tag);
  } else {
    words = what.peer == any_source ? "from any rank" : fmt::format("from {}", c.describe(what.peer));
    words += what.tag == any_tag ? ", any tag" : fmt::format(", tag {}", what.tag);
  }
  return words;
}

std::string title(const communicator_state& c, const call& what) {
  if (what.kind == operation_kind::send || what.kind == operation_kind::receive)
    return fmt::format("{} of {} bytes {} on {}, rank {}", verb(what.kind), what.in.bytes(), peer_words(c, what), c.name(),
                       c.rank());
  return fmt::format("{} on {}, rank {}", verb(what.kind), c.name(), c.rank());
}

std::string timeout_text(const communicator_state& c) {
  return fmt::format("timed out after {} s", std::chrono::duration<double>(c.timeout()).count());
}

// ---- point to point ----

// Machine of a send or a receive: the endpoint's activity, with the way back to the operation.
template <class Activity>
struct message_machine {
  operation_state& operation;
  Activity activity;

  explicit message_machine(operation_state& s) noexcept : operation(s) {
    activity.user = this;
    activity.on_done = [](core::activity& a) noexcept {
      auto& self = *static_cast<message_machine*>(a.user);
      operation_state& state = self.operation;
      self.finish();
      state.complete();
    };
    activity.on_expire = [](core::activity& a) noexcept {
      auto& self = *static_cast<message_machine*>(a.user);
      communicator_state& c = *self.operation.what().comm;
      if (c.failed()) {
        self.end(c.failure(), c.failure_text());
      } else {
        self.end(errc::timed_out,
                 timeout_text(c) + (self.operation.what().kind == operation_kind::send
                                        ? ": no receive that matches was posted there"
                                        : ": no message that matches has come; does the other side send with this "
                                          "tag, on this communicator?"));
      }
    };
  }
  void end(errc why, const std::string& text) noexcept {
    operation.what().comm->endpoint().fail(activity, why, text);
  }
  // Moves the outcome into the operation and destroys the machine.
  void finish() noexcept {
    operation_state& state = operation;
    const communicator_state& c = *state.what().comm;
    if (activity.failure() != errc::success) {
      state.fail(activity.failure(), fmt::format("{}: {}", title(c, state.what()), activity.take_text()));
    } else if (state.what().kind == operation_kind::receive) {
      status result = activity.result;
      result.source = c.rank_of(result.source);
      state.set_result(result);
    } else {
      status result;
      result.source = c.rank();
      result.tag = state.what().tag;
      result.bytes = state.what().in.bytes();
      state.set_result(result);
    }
    state.set_machine(nullptr);
    this->~message_machine();
  }
};

using send_machine = message_machine<p2p::send>;
using receive_machine = message_machine<p2p::receive>;
static_assert(sizeof(send_machine) <= operation_state::machine_bytes);
static_assert(sizeof(receive_machine) <= operation_state::machine_bytes);

template <class Machine, class Start>
bool start_message(operation_state& state, Start start) noexcept {
  auto* machine = new (state.machine_storage()) Machine(state);
  state.set_machine(machine);
  if (start(machine->activity)) {
    machine->finish();
    return true;
  }
  state.what().comm->watch(machine->activity);
  return false;
}

// ---- collectives ----

class collective_machine final : public core::activity, public comm::running_collective {
 public:
  collective_machine(operation_state& s, communicator_state& c, std::uint32_t sequence) noexcept
      : operation_(s), comm_(c), sequence_(sequence) {
    user = this;
    on_done = [](core::activity& a) noexcept {
      auto& self = *static_cast<collective_machine*>(a.user);
      operation_state& state = self.operation_;
      self.finish();
      state.complete();
    };
    on_expire = [](core::activity& a) noexcept {
      auto& self = *static_cast<collective_machine*>(a.user);
      self.comm_.fail(errc::timed_out,
                      fmt::format("{} on {}: {} on {}; some rank has not called it yet, or is slower than the timeout "
                                  "allows (init_options::timeout, TUTTI_TIMEOUT)",
                                  self.describe(), self.comm_.name(), timeout_text(self.comm_),
                                  self.comm_.describe(self.comm_.rank())),
                      true);
    };
  }

  // True: complete already.
  bool start(task<> body) {
    comm_.add(*this);
    body_.start(std::move(body), &ended, this);
    if (ended_) return true;
    waits_ = true;
    comm_.engine().begin_wait();
    comm_.watch(*this);
    return false;
  }

  // comm::running_collective
  void end(errc why, const std::string& text) noexcept override {
    body_.stop();
    detach();
    set_failure(why, text);
    comm_.engine().complete(*this);
  }
  std::uint32_t sequence() const noexcept override { return sequence_; }
  std::string describe() const override { return fmt::format("{} #{}", verb(operation_.what().kind), sequence_); }

  // Takes it out of everything; the body's transfers are taken back.
  void detach() noexcept {
    static_cast<base::list_hook<comm::running_tag>&>(*this).unlink();
    static_cast<base::list_hook<core::waiting_tag>&>(*this).unlink();
    static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();
    if (waits_) comm_.engine().end_wait();
    waits_ = false;
  }
  bool ended() const noexcept { return ended_; }
  communicator_state& comm() noexcept { return comm_; }

  void finish() noexcept {
    operation_state& state = operation_;
    if (failure() != errc::success) {
      const errc why = failure();
      std::string text = take_text();
      // A failure that this rank found first fails the collective on all ranks.
      if (!comm_.failed())
        comm_.fail(why, text = fmt::format("{} on {}: {}", describe(), comm_.name(), text), true);
      state.fail(why, std::move(text));
    } else {
      status moved;
      moved.source = comm_.rank();
      moved.bytes = state.what().out.bytes();
      state.set_result(moved);
    }
    detach();
    state.set_machine(nullptr);
    this->~collective_machine();
  }

 private:
  static void ended(void* self, std::exception_ptr failure) noexcept {
    auto& m = *static_cast<collective_machine*>(self);
    m.ended_ = true;
    if (failure) {
      try {
        std::rethrow_exception(failure);
      } catch (const error& e) {
        m.set_failure(static_cast<errc>(e.code().value()), e.what());
      } catch (const std::bad_alloc&) {
        m.set_failure(errc::resources, "out of memory");
      } catch (const std::exception& e) {
        m.set_failure(errc::system, e.what());
      }
    }
    if (!m.waits_) return;   // still inside start()
    m.detach();
    m.comm_.engine().complete(m);
  }

  operation_state& operation_;
  communicator_state& comm_;
  const std::uint32_t sequence_;
  core::running_task body_;
  bool ended_ = false;
  bool waits_ = false;
};
static_assert(sizeof(collective_machine) <= operation_state::machine_bytes);

task<> nothing() { co_return; }

task<> body_of(const call& what, const coll::collective& c, coll::all_reduce_algorithm algorithm) {
  switch (what.kind) {
    case operation_kind::barrier: return coll::barrier_dissemination(c);
    case operation_kind::broadcast: return coll::broadcast_binomial(c, what.out.data, what.out.bytes(), what.peer);
    default: break;
  }
  if (what.in.data != what.out.data && what.in.bytes() > 0) std::memcpy(what.out.data, what.in.data, what.in.bytes());
  const coll::reduce_call r(what.out.data, what.out.count, what.out.element_bytes, what.out.type, what.op);
  return algorithm == coll::all_reduce_algorithm::ring ? coll::all_reduce_ring(c, r)
                                                       : coll::all_reduce_recursive_doubling(c, r);
}

bool start_collective(operation_state& state) {
  const call& what = state.what();
  communicator_state& c = *what.comm;
  if (!c.dead_member().empty()) {
    c.fail(errc::peer_failed, c.dead_member(), true);
    state.fail(errc::peer_failed, fmt::format("{}: {}", title(c, what), c.dead_member()));
    return true;
  }
  comm::collective_description d;
  d.kind = static_cast<std::uint8_t>(what.kind);
  d.count = what.out.count;
  d.type = static_cast<std::uint8_t>(what.out.type);
  coll::all_reduce_algorithm algorithm{};
  if (what.kind == operation_kind::broadcast) d.root = what.peer;
  if (what.kind == operation_kind::all_reduce) {
    d.reduction = static_cast<std::uint8_t>(what.op.kind);
    algorithm = coll::choose_all_reduce(what.out.bytes(), c.size());
    d.algorithm = static_cast<std::uint8_t>(algorithm);
  }
  const p2p::fingerprint print = comm::fingerprint_of(d);
  const std::uint32_t sequence = c.next_sequence(print);
  if (c.failed()) {
    state.fail(c.failure(), c.failure_text());
    return true;
  }
  auto* machine = new (state.machine_storage()) collective_machine(state, c, sequence);
  state.set_machine(machine);
  const bool needs_others = c.size() > 1 && (what.kind == operation_kind::barrier || what.out.count > 0);
  const coll::collective place(c, sequence, print);
  if (!machine->start(needs_others || what.in.data != what.out.data ? body_of(what, place, algorithm) : nothing()))
    return false;
  machine->finish();
  return true;
}

// Why the call cannot be meant, or empty.
std::string bad_argument(const communicator_state& c, const call& what) {
  const auto outside = [&](int rank) { return rank < 0 || rank >= c.size(); };
  const bool any_allowed = what.kind == operation_kind::receive;
  switch (what.kind) {
    case operation_kind::send:
    case operation_kind::receive:
      if (outside(what.peer) && !(any_allowed && what.peer == any_source))
        return fmt::format("rank {} is outside {}, whose ranks are 0 to {}", what.peer, c.name(), c.size() - 1);
      if (what.tag < 0 && !(any_allowed && what.tag == any_tag))
        return fmt::format("the tag {} is negative; tags are 0 to 2147483647", what.tag);
      break;
    case operation_kind::broadcast:
      if (outside(what.peer))
        return fmt::format("the root {} is outside {}, whose ranks are 0 to {}", what.peer, c.name(), c.size() - 1);
      break;
    case operation_kind::all_reduce:
      if (what.in.count != what.out.count)
        return fmt::format("the input has {} elements, the result {}; they must be equal", what.in.count,
                           what.out.count);
      break;
    default: break;
  }
  if ((what.in.count > 0 && what.in.data == nullptr) || (what.out.count > 0 && what.out.data == nullptr))
    return fmt::format("the buffer of {} elements is a null pointer", what.in.count);
  return {};
}

}  // namespace

bool operation_state::start(completion on_complete, void* owner) noexcept {
  on_complete_ = on_complete;
  owner_ = owner;
  if (!what_.comm) {
    fail(errc::invalid_argument, fmt::format("{}: this communicator has no members here (it is empty); test it with "
                                             "`if (comm)` first",
                                             verb(what_.kind)));
    return true;
  }
  communicator_state& c = *what_.comm;
  // The loop of an orphan is gone.
  if (!c.orphaned() && !c.loop().on_this_thread()) {
    fail(errc::wrong_thread,
         fmt::format("{} on {}: called outside the communicator's loop thread; use boost::asio::post or "
                     "boost::asio::co_spawn on communicator::get_executor()",
                     verb(what_.kind), c.name()));
    return true;
  }
  if (c.orphaned() || c.failed()) {
    fail(c.failure() == errc::shut_down ? errc::shut_down : errc::communicator_failed,
         fmt::format("{}: the communicator failed earlier: {}", title(c, what_), c.failure_text()));
    return true;
  }
  if (std::string wrong = bad_argument(c, what_); !wrong.empty()) {
    fail(errc::invalid_argument, fmt::format("{} on {}, rank {}: {}", verb(what_.kind), c.name(), c.rank(), wrong));
    return true;
  }
  static constexpr p2p::fingerprint none{};
  try {
    switch (what_.kind) {
      case operation_kind::send:
        return start_message<send_machine>(*this, [&](p2p::send& s) {
          return c.endpoint().start(s, c.message_context(), c.world_rank(what_.peer), what_.tag, what_.in.data,
                                    what_.in.bytes(), none);
        });
      case operation_kind::receive:
        return start_message<receive_machine>(*this, [&](p2p::receive& r) {
          const int source = what_.peer == any_source ? any_source : c.world_rank(what_.peer);
          return c.endpoint().start(r, c.message_context(), source, what_.tag, what_.out.data, what_.out.bytes(), none);
        });
      default: return start_collective(*this);
    }
  } catch (const error& e) {
    fail(static_cast<errc>(e.code().value()), fmt::format("{}: {}", title(c, what_), e.what()));
  } catch (const std::exception& e) {
    fail(errc::resources, fmt::format("{}: {}", title(c, what_), e.what()));
  }
  return true;
}

void operation_state::cancel() noexcept {
  if (machine_ == nullptr || what_.comm->orphaned()) return;
  switch (what_.kind) {
    case operation_kind::send: static_cast<send_machine*>(machine_)->end(errc::cancelled, "cancelled"); break;
    case operation_kind::receive: static_cast<receive_machine*>(machine_)->end(errc::cancelled, "cancelled"); break;
    default: {
      auto& m = *static_cast<collective_machine*>(machine_);
      if (!m.ended())
        m.comm().fail(errc::cancelled,
                      fmt::format("{} on {} was cancelled on {}", m.describe(), m.comm().name(),
                                  m.comm().describe(m.comm().rank())),
                      true);
    }
  }
}

void operation_state::abandon() noexcept {
  void* machine = std::exchange(machine_, nullptr);
  if (machine == nullptr) return;
  switch (what_.kind) {
    case operation_kind::send: {
      auto* m = static_cast<send_machine*>(machine);
      if (!what_.comm->orphaned()) what_.comm->endpoint().release(m->activity);
      m->~send_machine();
      break;
    }
    case operation_kind::receive: {
      auto* m = static_cast<receive_machine*>(machine);
      if (!what_.comm->orphaned()) what_.comm->endpoint().release(m->activity);
      m->~receive_machine();
      break;
    }
    default: {
      auto* m = static_cast<collective_machine*>(machine);
      const bool was_running = !m->ended() && m->failure() == errc::success;
      const std::string text =
          fmt::format("{} on {} was dropped before its end on {}", m->describe(), m->comm().name(),
                      m->comm().describe(m->comm().rank()));
      communicator_state& c = m->comm();
      m->detach();
      m->~collective_machine();
      if (was_running) c.fail(errc::cancelled, text, true);
    }
  }
}

void operation_state::fail(errc code, std::string text) noexcept {
  failure_ = code;
  text_ = std::make_unique<std::string>(std::move(text));
}

void operation_state::throw_failure() const { throw error(failure_, text_ ? *text_ : std::string()); }

boost::system::error_code operation_state::asio_code() const noexcept {
  if (failure_ == errc::success) return {};
  if (failure_ == errc::cancelled) return boost::asio::error::operation_aborted;
  return make_error_code(failure_);
}

void complete_later(operation_state& state) noexcept {
  // What is complete at once has left its machine's place free. (Asio's own queue would allocate, where it does not find
  // memory to recycle: its caches are of one run() or poll(), and the loop polls from inside a handler.)
  struct late_completion : core::activity {};
  static_assert(sizeof(late_completion) <= operation_state::machine_bytes);
  communicator_state& c = *state.what().comm;
  if (c.orphaned() || !c.loop().on_this_thread()) {
    post_to_loop(state, [](void* s) noexcept { static_cast<operation_state*>(s)->complete(); }, &state);
    return;
  }
  auto* late = new (state.machine_storage()) late_completion;
  late->user = &state;
  late->on_done = [](core::activity& a) noexcept {
    auto& s = *static_cast<operation_state*>(a.user);
    static_cast<late_completion&>(a).~late_completion();
    s.complete();
  };
  c.engine().complete(*late);
}

void post_to_loop(const operation_state& state, void (*f)(void*) noexcept, void* owner) {
  boost::asio::post(executor_of(*state.what().comm), [f, owner] { f(owner); });
}

}  // namespace tutti::detail
