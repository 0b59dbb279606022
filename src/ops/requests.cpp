// SPDX-License-Identifier: Apache-2.0
// The pool of request slots: one per thread, never shrunk in steady state.
#include "base/object_pool.hpp"
#include "comm/communicator_state.hpp"
#include "ops/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tutti/chunked.hpp>
#include <tutti/request.hpp>
#include <utility>

namespace tutti::detail {

std::size_t default_chunk(std::size_t count, std::size_t element_bytes) noexcept {
  const std::size_t least = std::max<std::size_t>(1, std::size_t{64} * 1024 / element_bytes);
  const std::size_t most = std::max<std::size_t>(1, std::size_t{1024} * 1024 / element_bytes);
  return std::clamp(count / 8, least, most);
}

struct request_pool {
  base::object_pool<request_slot> slots;  // never freed before the pool: their last readers may come late
  bool left = false;                      // its thread has ended

  void give_back(request_slot& slot) noexcept {
    slots.give_back(slot);
    end_if_unused();
  }
  void leave() noexcept {
    left = true;
    end_if_unused();
  }

 private:
  void end_if_unused() noexcept {
    if (left && slots.in_use() == 0) delete this;
  }
};

namespace {

// Requests may outlive the thread that started them, such as static ones.
request_pool& pool() {
  struct owner {
    request_pool* instance = new request_pool;
    ~owner() { instance->leave(); }
  };
  static thread_local const owner of_thread;
  return *of_thread.instance;
}

// A pending request whose runtime has ended will not complete: nothing calls its waiter any more.
bool is_left_over(const request_slot& slot) noexcept {
  return slot.state->pending() && slot.state->what().comm && slot.state->what().comm->detached();
}

// Starts the operation whose state is made of `parts`.
template <class... Parts>
request_slot* start_in_slot(Parts&&... parts) {
  request_pool& home = pool();
  request_slot* const slot = &home.slots.take();
  slot->home = &home;
  slot->state.emplace(std::forward<Parts>(parts)...).start(&operation_state::nobody_waits, nullptr);
  return slot;
}

request_slot* on_loop_thread(request_slot* slot) {
  if (slot->state->failure() == errc::wrong_thread) [[unlikely]] {
    const owned_request_slot dropped(slot);
    slot->state->rethrow();
  }
  return slot;
}

}  // namespace

request_slot* start_slot(call&& what) { return start_in_slot(std::move(what)); }

request_slot* start_request(call&& what) { return on_loop_thread(start_slot(std::move(what))); }

request_slot* start_request(operation_kind kind, const communicator_ref& comm, const buffer_view& data,
                            int peer, int tag, call_site where) {
  return on_loop_thread(start_in_slot(std::in_place, kind, comm, data, peer, tag, where));
}

bool request_done(const request_slot& slot) noexcept { return !slot.state->pending() || is_left_over(slot); }
operation_state& request_state(request_slot& slot) noexcept {
  if (is_left_over(slot) && slot.state->owner() == nullptr) [[unlikely]] {
    const call& what = slot.state->what();
    slot.state->abandon();
    slot.state->fail(errc::shut_down,
                     fmt::format("{}: {}", ops::title(*what.comm, what), what.comm->failure().text()));
  }
  return *slot.state;
}

void drop_request(request_slot* slot) noexcept {
  slot->state.reset();  // abandons a pending operation
  slot->home->give_back(*slot);
}

// ---- handlers ----

static constinit thread_local waiting_handler* first_handler = nullptr;

void waiting_handler::join(const asio::io_context* loop) noexcept {
  loop_ = loop;
  list_member::join(first_handler);
}

template <class Ended>
void waiting_handler::discard_all(Ended ended) noexcept {
  // One may destroy others.
  for (waiting_handler* h = first_handler; h != nullptr;) {
    if (ended(*h)) {
      h->discard();
      h = first_handler;
    } else {
      h = h->next();
    }
  }
}

void discard_handlers(const asio::io_context* ended) noexcept {
  waiting_handler::discard_all([ended](const waiting_handler& h) {
    if (h.of_ == nullptr) return false;
    const call& what = h.of_->what();
    return what.comm ? what.comm->detached() : &executor_of(what).context() == ended;
  });
}

void end_tasks(const asio::io_context& of) noexcept {
  for (waiting_handler* h = first_handler; h != nullptr; h = h->next())
    if (h->loop_ == &of) h->loop_ = nullptr;
}

void discard_ended_tasks() noexcept {
  waiting_handler::discard_all(
      [](const waiting_handler& h) { return h.of_ == nullptr && h.loop_ == nullptr; });
}

}  // namespace tutti::detail
