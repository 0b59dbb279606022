// SPDX-License-Identifier: Apache-2.0
// operation_state: from a call to the operation state that carries it out, and back to a result or an error
// text.
#include "comm/communicator_state.hpp"
#include "ops/arguments.hpp"
#include "ops/running_operation.hpp"

#include <fmt/format.h>

#include <boost/asio/error.hpp>
#include <memory>
#include <new>
#include <tutti/detail/operation_state.hpp>
#include <tutti/matched_message.hpp>
#include <tutti/prepared.hpp>
#include <utility>

namespace tutti::detail {
namespace {

// A completion in the storage of an operation state, which is free when the operation completed at once.
// (Asio's own queue could allocate: its caches belong to one run() or poll(), and the loop polls from inside
// a handler.)
static_assert(sizeof(core::completion) <= operation_state::running_bytes);

bool is_plain_message(const communicator_state& c, const call& what) noexcept {
  return ops::plainly_good(c, what) && !c.detached() && c.loop().on_this_thread() && !c.failure().failed() &&
         ops::checks_of_buffers() == ops::buffer_checks::off;
}

// ---- prepared calls ----

[[noreturn]] void refuse_to_prepare(const call& what, const std::string& why) {
  throw error(errc::invalid_argument, fmt::format("prepare of {}: {}", name_of(what.kind), why));
}

// Says why no operation of a prepared call may start; empty if one may.
std::string why_not_now(const prepared_call& prepared, const call& what) {
  if (prepared.in_use)
    return "the operation before of the same prepared one has not ended: await it first, or prepare another";
  if (what.wanted != prepared.what.wanted)
    return "its algorithm was chosen by prepare: say with(...) of the operation that is prepared";
  return {};
}

}  // namespace

bool operation_state::start(completion on_complete, void* owner) noexcept {
  on_complete_ = on_complete;
  owner_ = owner;
  if (what_.comm && is_plain_message(*what_.comm, what_)) return ops::start_message(*this);
  return start_with_care();
}

// Starts a call that may be rejected, or needs more than its start.
[[gnu::noinline]] bool operation_state::start_with_care() noexcept {
  bool complete = true;
  try {
    complete = begin();
  } catch (...) {
    const core::thrown what = core::what_of(std::current_exception(), errc::resources);
    fail(what.code,
         fmt::format("{}: {}", what_.comm ? ops::title(*what_.comm, what_) : name_of(what_.kind), what.text));
  }
  if (complete && running_ != nullptr) abandon();  // there was no memory to start it
  if (complete && noted_) forget_notes();
  return complete;
}

bool operation_state::begin() {
  if (is_of_stream(what_)) return stream_part_of(what_).start(*this);
  const auto refuse = [this](errc why, std::string text) noexcept {
    fail(why, std::move(text));
    return true;
  };
  if (!what_.comm)
    return refuse(errc::invalid_argument, fmt::format("{}: {}", name_of(what_.kind), ops::empty_text));
  communicator_state& c = *what_.comm;
  // The loop of a detached communicator is gone.
  if (!c.detached() && !c.loop().on_this_thread())
    return refuse(errc::wrong_thread, fmt::format("{} on {}: {}", name_of(what_.kind), c.group().name(),
                                                  core::wrong_thread_text()));
  const bool mends = what_.kind == operation_kind::shrink;
  const bool goes_on = !is_pairwise(what_.kind) && !c.failure().ends(c.order().next());
  if (c.detached() || (c.failure().failed() && !mends && !goes_on))
    return refuse(c.failure().report(), fmt::format("{}: the communicator failed earlier: {}",
                                                    ops::title(c, what_), c.failure().text()));
  prepared_call* const prepared = what_.prepared;
  if (prepared != nullptr || !(ops::plainly_good(c, what_) || ops::plainly_good_collective(what_))) {
    const std::string wrong =
        prepared != nullptr ? why_not_now(*prepared, what_) : ops::bad_argument(c, what_);
    if (!wrong.empty())
      return refuse(errc::invalid_argument, fmt::format("{} on {}, rank {}: {}", name_of(what_.kind),
                                                        c.group().name(), c.rank(), wrong));
  }
  if (ops::checks_of_buffers() != ops::buffer_checks::off) {
    // Before the start: the operation may be complete and destroyed when start returns.
    noted_ = true;
    if (std::string wrong = ops::record_buffers(*this); !wrong.empty())
      return refuse(errc::invalid_argument, std::move(wrong));
  }
  if (prepared != nullptr) noted_ = prepared->in_use = true;
  switch (row_of(what_.kind).of) {
    case family::message:
      return ops::start<family::message>(*this);
    case family::repair:
      return ops::start<family::repair>(*this);
    case family::one_sided:
      return ops::start<family::one_sided>(*this);
    default:
      return ops::start<family::collective>(*this);
  }
}

void operation_state::forget_notes() noexcept {
  ops::forget_buffers(*this);
  noted_ = false;
  prepared_call* const prepared = std::exchange(what_.prepared, nullptr);
  if (prepared == nullptr) return;
  prepared->in_use = false;
  if (prepared->dropped) drop_prepared(prepared);
}

void operation_state::stop(errc why, const std::string& text) noexcept {
  if (running_ == nullptr || (what_.comm && what_.comm->detached())) return;
  if (is_of_stream(what_)) return stream_part_of(what_).stop(*this, why, text);
  static_cast<ops::running_operation*>(running_)->stop(why, text);
}

bool operation_stop::start(stop_scope& scope, operation_state::completion on_complete, void* owner) noexcept {
  if (scope.stopped() && is_pairwise(state_.what().kind)) {
    state_.fail(scope.why(),
                fmt::format("{} was not started: {}", name_of(state_.what().kind), scope.text()));
    return true;
  }
  if (scope.has_deadline()) state_.set_deadline();
  if (state_.start(on_complete, owner)) return true;
  join_or_stop(&scope);
  return false;
}

void operation_state::abandon() noexcept {
  if (noted_) forget_notes();
  if (std::exchange(late_, false)) {
    auto* const late = std::launder(reinterpret_cast<core::completion*>(storage_));
    static_cast<base::list_hook<core::ready_tag>&>(*late).unlink();
    std::destroy_at(late);
    return;
  }
  void* const running = std::exchange(running_, nullptr);
  if (running == nullptr) return;
  if (is_of_stream(what_)) return stream_part_of(what_).abandon(running);
  static_cast<ops::running_operation*>(running)->abandon();
}

void operation_state::fail(errc code, std::string text) noexcept {
  failure_ = code;
  text_ = decltype(text_)(new std::string(std::move(text)));
}

void operation_state::throw_failure() const { throw error(failure_, failure_text()); }

boost::system::error_code operation_state::asio_code() const noexcept {
  if (failure_ == errc::success) return {};
  if (failure_ == errc::cancelled) return boost::asio::error::operation_aborted;
  return make_error_code(failure_);
}

void refuse_empty_message() {
  throw error(errc::invalid_argument,
              "recv of a matched message: it holds none; it was moved from, or not made by matched_probe");
}

void require_loop(const call& what) {
  if (is_of_stream(what) || (what.comm && !what.comm->detached())) return;
  operation_state refused(what);
  refused.start(nullptr, nullptr);
  refused.rethrow();
}

void require_algorithms(const call& what) {
  if (row_of(what.kind).of != family::collective)
    throw error(errc::invalid_argument,
                fmt::format("{} has no algorithms: with(...) is for collectives", name_of(what.kind)));
}

bool complete_later(operation_state& state) noexcept {
  communicator_state* const c = state.what().comm.get();
  if (c == nullptr || c->detached() || !c->loop().on_this_thread()) return false;
  auto* late = new (state.running_storage()) core::completion;
  state.set_late(true);
  late->user = &state;
  late->on_done = [](core::completion& a) noexcept {
    auto& s = *static_cast<operation_state*>(a.user);
    s.set_late(false);
    std::destroy_at(&a);
    s.complete();
  };
  c->loop().engine().complete(*late);
  return true;
}

prepared_call* make_prepared(const call& what) {
  if (!what.comm) refuse_to_prepare(what, ops::empty_text);
  const family of = row_of(what.kind).of;
  if (of == family::set_up || of == family::repair)
    refuse_to_prepare(what, "each call makes a communicator; call it each time");
  if (const std::string wrong = ops::bad_argument(*what.comm, what); !wrong.empty())
    refuse_to_prepare(what, fmt::format("{} on {}, rank {}: {}", name_of(what.kind),
                                        what.comm->group().name(), what.comm->rank(), wrong));
  auto made = std::make_unique<prepared_call>(what);
  if (of == family::collective) made->what.prepared = made.get();
  return made.release();
}

const call& call_of(const prepared_call& prepared) noexcept { return prepared.what; }

call agreement_on(prepared_call& prepared) noexcept {
  call what(operation_kind::prepare, prepared.what.comm, prepared.what.where);
  what.wanted = prepared.what.wanted;
  what.prepared = &prepared;
  return what;
}

void drop_prepared(prepared_call* prepared) noexcept {
  if (prepared->in_use) {
    prepared->dropped = true;
  } else {
    delete prepared;
  }
}

boost::asio::io_context::executor_type executor_of(const call& what) noexcept {
  return is_of_stream(what) ? stream_part_of(what).executor() : executor_of(*what.comm);
}

}  // namespace tutti::detail
