// SPDX-License-Identifier: Apache-2.0
#include "comm/device_group.hpp"

#include "kernels/reduce_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tutti/error.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::gpu::detail {

// Collectives start their chunks one operation after the other, in the same order on all ranks.
task<> device_group::take_turn(stream_pair use, std::uint64_t ticket, void* ready) {
  on().driver().wait(use.out->native(), ready);
  on().driver().wait(use.in->native(), ready);
  while (turns_.front() != ticket) co_await turn_changed_.changed();
}
void device_group::end_turn(std::uint64_t ticket) noexcept {
  std::erase(turns_, ticket);
  turn_changed_.notify_all();
}

// ---- one chunk ----

struct device_group::chunk_state {
  std::size_t offset = 0;  // elements, in each block
  std::size_t count = 0;
  std::shared_ptr<allocation> memory;
  mark loaded;
  mark unloaded;
  request moving;
};

namespace {

tutti::detail::buffer_view plain(const view& of) noexcept {
  tutti::detail::buffer_view v;
  v.data = of.data;
  v.count = of.count;
  v.element_bytes = of.element_bytes;
  v.type = of.type;
  return v;
}

tutti::detail::operation_kind kind_of(operation_kind kind) noexcept {
  using k = tutti::detail::operation_kind;
  switch (kind) {
    case operation_kind::broadcast:
      return k::broadcast;
    case operation_kind::reduce:
      return k::reduce;
    case operation_kind::all_reduce:
      return k::all_reduce;
    case operation_kind::scatter:
      return k::scatter;
    case operation_kind::gather:
      return k::gather;
    case operation_kind::all_gather:
      return k::all_gather;
    case operation_kind::reduce_scatter:
      return k::reduce_scatter;
    case operation_kind::all_to_all:
      return k::all_to_all;
    default:
      return k::barrier;
  }
}

}  // namespace

request device_group::reduce_chunk(const call& c, const chunk_layout& layout, chunk_state& k) {
  const tutti::operation<> any = chunks_.barrier();  // for the communicator behind the handle
  tutti::detail::call what(kind_of(c.kind), any.what().comm);
  what.peer = std::max(c.peer, 0);
  what.op = c.op;
  what.in = plain(layout.in(k.memory->data, k.count));
  what.out = plain(layout.out(k.memory->data, k.count));
  return request(std::move(what));
}

// ---- the pipeline ----

// Chunk i is loaded while chunk i - 1 is with the CPU's communicator and chunk i - 2 on its way back. Two
// chunks are with the communicator at a time: the next has begun when one ends.
task<> device_group::staged_collective(work_state* w, stream_pair use, std::uint64_t ticket, void* ready) {
  const call& c = w->what;
  driver& d = on().driver();
  co_await take_turn(use, ticket, ready);
  const std::size_t block = block_of(c, size());
  const chunk_layout layout(c, rank(), size(), block);
  const std::size_t most = std::max<std::size_t>(1, layout.most_in(how_.chunk_bytes));
  const std::size_t count = layout.chunks_of(most);
  const std::size_t depth = std::max<std::size_t>(
      2, std::min<std::size_t>(count, static_cast<std::size_t>(std::max(3, how_.depth))));
  std::vector<std::unique_ptr<chunk_state>> slots;
  for (std::size_t i = 0; i < depth; ++i) {
    slots.push_back(std::make_unique<chunk_state>());
    slots.back()->memory = staging_->take(std::min(most, std::max<std::size_t>(block, 1)) * layout.blocks() *
                                          c.in.element_bytes);
  }
  const auto slot = [&slots, depth](std::size_t i) -> chunk_state& { return *slots[i % depth]; };

  std::size_t loaded = 0;  // chunks of which the load is enqueued
  for (std::size_t i = 0; i <= count; ++i) {
    // As far ahead as there are slots; one is free again when its chunk is back on the device.
    const std::size_t ahead = std::min(count, i + depth - 1);
    for (; loaded < ahead; ++loaded) {
      chunk_state& next = slot(loaded);
      if (next.unloaded.is_set()) co_await next.unloaded;
      next.offset = loaded * most;
      next.count = std::min(most, block - next.offset);
      layout.copy_in(d, next.offset, next.count, next.memory->data, use.out->native());
      point& p = use.out->signal();
      p.alive = {next.memory, c.in.keep};
      next.loaded.set(on(), p);
    }
    if (i < count) {
      co_await slot(i).loaded;
      slot(i).moving = reduce_chunk(c, layout, slot(i));
      if (i + 1 == count) end_turn(ticket);
    }
    if (i > 0) {
      chunk_state& previous = slot(i - 1);
      co_await previous.moving;
      layout.copy_out(d, previous.offset, previous.count, previous.memory->data, use.in->native());
      point& p = use.in->signal();
      p.alive = {previous.memory, c.out.keep};
      previous.unloaded.set(on(), p);
    }
  }
  w->set_enqueued(*use.in);
  w->finish_with(*use.in);
}

// ---- messages ----

// An announcement with the length and the name of what follows goes by the user's tag, so that messages are
// matched in the order in which they were sent; the chunks go under a tag of their own.
task<> device_group::staged_send(work_state* w, stream_pair use, void* ready, std::uint64_t head[2]) {
  const call& c = w->what;
  const std::uint64_t mine[2] = {head[0], head[1]};
  request announcing = heads_.isend(std::span<const std::uint64_t>(mine), c.peer, c.tag);
  on().driver().wait(use.out->native(), ready);
  const std::size_t bytes = c.in.bytes(), most = how_.chunk_bytes, count = (bytes + most - 1) / most;
  const std::size_t depth = static_cast<std::size_t>(std::max(2, how_.depth));
  std::vector<std::unique_ptr<chunk_state>> slots;
  for (std::size_t i = 0; i < std::min(depth, count); ++i) {
    slots.push_back(std::make_unique<chunk_state>());
    slots.back()->memory = staging_->take(std::min(most, bytes));
  }
  std::size_t loaded = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; loaded < std::min(count, i + slots.size()); ++loaded) {
      chunk_state& next = *slots[loaded % slots.size()];
      if (next.moving) co_await next.moving;
      next.offset = loaded * most;
      next.count = std::min(most, bytes - next.offset);
      on().driver().copy(next.memory->data, static_cast<std::byte*>(c.in.data) + next.offset, next.count,
                         use.out->native());
      point& p = use.out->signal();
      p.alive = {next.memory, c.in.keep};
      next.loaded.set(on(), p);
    }
    chunk_state& k = *slots[i % slots.size()];
    co_await k.loaded;
    k.moving = payload_.isend(std::span<const std::byte>(static_cast<std::byte*>(k.memory->data), k.count),
                              c.peer, static_cast<int>(mine[1]));
  }
  for (const auto& k : slots)
    if (k->moving) co_await k->moving;
  co_await announcing;
  w->set_enqueued(*use.out);
  w->finish_with(*use.out);
}

task<> device_group::staged_receive(work_state* w, stream_pair use, void* ready) {
  const call& c = w->what;
  std::uint64_t head[2] = {};
  request announced = heads_.irecv(std::span<std::uint64_t>(head), c.peer, c.tag);
  on().driver().wait(use.in->native(), ready);
  const status from = co_await announced;
  w->result = from;
  w->result.bytes = static_cast<std::size_t>(head[0]);
  const std::size_t bytes = w->result.bytes, most = how_.chunk_bytes, count = (bytes + most - 1) / most;
  // What is too long is received, and thrown away, so that the sender is not held up.
  const bool fits = bytes <= c.out.bytes();
  const std::size_t depth = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(2, how_.depth)));
  std::vector<std::unique_ptr<chunk_state>> slots;
  for (std::size_t i = 0; i < depth; ++i) {
    slots.push_back(std::make_unique<chunk_state>());
    slots.back()->memory = staging_->take(std::min(most, bytes));
  }
  std::size_t asked = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; asked < std::min(count, i + depth); ++asked) {
      chunk_state& next = *slots[asked % depth];
      if (next.unloaded.is_set()) co_await next.unloaded;
      next.offset = asked * most;
      next.count = std::min(most, bytes - next.offset);
      next.moving =
          payload_.irecv(std::span<std::byte>(static_cast<std::byte*>(next.memory->data), next.count),
                         from.source, static_cast<int>(head[1]));
    }
    chunk_state& k = *slots[i % depth];
    co_await k.moving;
    if (!fits) continue;
    on().driver().copy(static_cast<std::byte*>(c.out.data) + k.offset, k.memory->data, k.count,
                       use.in->native());
    point& p = use.in->signal();
    p.alive = {k.memory, c.out.keep};
    k.unloaded.set(on(), p);
  }
  if (!fits)
    throw error(errc::truncated, fmt::format("{}: the message from rank {} has {} bytes, the buffer {}",
                                             title(c), from.source, bytes, c.out.bytes()));
  w->set_enqueued(*use.in);
  w->finish_with(*use.in);
}

// ---- one device ----

namespace {

// Polled by the loop: the last rank to come settles the contribution from its own thread.
class contribution_awaiter : suspended, attachment::listener {
 public:
  contribution_awaiter(attachment& on, single_device_group::contribution& v) noexcept
      : suspended(&stop), on_(on), contribution_(v) {}
  ~contribution_awaiter() { leave(); }
  bool await_ready() const noexcept { return contribution_.settled.load(std::memory_order_acquire); }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> h) {
    if (!begin(h, "the operation")) return false;
    on_.listen(*this);
    on_.begin_other_wait();
    listening_ = true;
    joined();
    return true;
  }
  void await_resume() const { rethrow(); }

 private:
  bool poll() noexcept override {
    if (!listening_ || !contribution_.settled.load(std::memory_order_acquire)) return false;
    leave();
    on_.resume_soon(*this);
    return true;
  }
  void leave() noexcept {
    if (!std::exchange(listening_, false)) return;
    on_.unlisten(*this);
    on_.end_other_wait();
  }
  static void stop(suspended& self, errc why, const std::string& text) noexcept {
    auto& a = static_cast<contribution_awaiter&>(self);
    a.leave();
    a.set_failure(why, text);
    a.on_.resume_soon(a);
  }
  attachment& on_;
  single_device_group::contribution& contribution_;
  bool listening_ = false;
};

class contribution_operation {
 public:
  contribution_operation(attachment& on, single_device_group::contribution& v) noexcept
      : on_(on), contribution_(v) {}
  contribution_awaiter operator co_await() && noexcept { return contribution_awaiter(on_, contribution_); }

 private:
  attachment& on_;
  single_device_group::contribution& contribution_;
};

}  // namespace

task<> device_group::on_one_device(work_state* w, stream_pair use,
                                   std::shared_ptr<single_device_group::contribution> here) {
  const std::chrono::milliseconds limit = on().timeout();
  bool late = false;
  try {
    co_await with_timeout(contribution_operation(on(), *here), limit);
  } catch (const error& e) {
    if (e.code() != errc::timed_out) throw;
    late = true;
  }
  if (late && !here->settled.load(std::memory_order_acquire))
    throw error(errc::timed_out, fmt::format("{}: {} ms have passed, and not all ranks have called it",
                                             title(w->what), limit.count()));
  if (here->failure != errc::success)
    throw error(here->failure, fmt::format("{}: {}", title(w->what), here->text));
  on().driver().wait(use.in->native(), here->done.get());
  w->keep_until_done(here);
  w->set_enqueued(*use.in);
  w->finish_with(*use.in);
}

// ---- operations ----

device_group::device_group(std::shared_ptr<attachment> on, communicator chunks, communicator heads,
                           communicator payload, std::string name, communicator_options how)
    : group(std::move(on), std::move(name), chunks.rank(), chunks.size()),
      chunks_(std::move(chunks)),
      heads_(std::move(heads)),
      payload_(std::move(payload)),
      how_(how),
      staging_(std::make_shared<staging>(on_->shared_driver())),
      turn_changed_(*on_),
      slot_changed_(*on_) {}

device_group::~device_group() {
  if (single_device_)
    single_device_->break_up(errc::peer_left, fmt::format("rank {} has left {}", rank(), name()));
  if (!is_idle()) {
    // The others would wait for chunks that do not come.
    chunks_.abort();
    if (window_) notes_.abort();
  }
  end_all(fmt::format("the last handle of {} has gone", name()));
}

device_group::stream_pair device_group::take_streams() {
  if (!spare_streams_.empty()) {
    stream_pair l = std::move(spare_streams_.back());
    spare_streams_.pop_back();
    return l;
  }
  const auto make = [this] {
    return std::make_shared<stream_state>(on_, on().driver().make_stream(true), true);
  };
  return {make(), make()};
}

path device_group::choose(const call& c) const {
  path way = c.way != path::automatic ? c.way : how_.way;
  const bool message = c.kind == operation_kind::send || c.kind == operation_kind::receive;
  const bool wide_factor = c.op.kind == reduce_kind::premul_sum &&
                           (c.in.type == element_type::int64 || c.in.type == element_type::uint64);
  const bool reduces = c.op.kind != reduce_kind::none;
  // What is exchanged in place would need more room than a window has.
  const bool possible =
      (single_device_ || (window_ && c.kind != operation_kind::all_to_all)) && !message &&
      (!reduces || (kernels::can_reduce(c.op.kind, c.in.type) && !wide_factor &&
                    on().driver().can().kernels && size() <= static_cast<int>(most_operands)));
  if (way == path::automatic) way = possible ? path::one_device : path::staged;
  if (way == path::one_device && !possible)
    throw error(errc::not_supported,
                fmt::format("{}: not possible on one device: {}", title(c),
                            !single_device_ && !window_ ? apart_
                            : message                   ? "messages are staged"
                            : !reduces                  ? "all_to_all between processes is staged"
                                                        : fmt::format("there is no kernel for {} of {} here",
                                                                      tutti::name_of(c.op.kind), tutti::name_of(c.in.type))));
  return way;
}

std::shared_ptr<void> device_group::after(const call& c) {
  std::shared_ptr<void> event(on().take_event(), [home = on_](void* e) { home->give_event(e); });
  on().driver().record(event.get(), c.on->native());
  return event;
}

std::shared_ptr<work_state> device_group::start(call what) {
  std::shared_ptr<work_state> w = begin(std::move(what));
  const path way = choose(w->what);
  const bool message = w->what.kind == operation_kind::send || w->what.kind == operation_kind::receive;
  std::uint64_t ticket = 0;
  std::shared_ptr<void> ready = after(w->what);
  if (!message && (way == path::staged || window_)) turns_.push_back(ticket = next_ticket_++);
  running& r = add(w);
  r.tasks.spawn(run(&r, way, ticket, std::move(ready)));
  return w;
}

task<> device_group::run(running* r, path way, std::uint64_t ticket, std::shared_ptr<void> ready) {
  work_state& w = *r->of;
  const operation_kind kind = w.what.kind;
  errc why = errc::success;
  std::string text;
  const bool message = kind == operation_kind::send || kind == operation_kind::receive;
  const bool meets = way == path::one_device && single_device_;
  bool told = false;
  const std::uint64_t sequence = meets ? single_device_->next(rank()) : 0;
  stream_pair use;
  try {
    use = take_streams();
    if (meets) {
      single_device_group::contribution mine;
      mine.kind = kind;
      mine.in = w.what.in;
      mine.out = w.what.out;
      mine.root = w.what.peer;
      mine.op = w.what.op.kind;
      mine.factor = mine.op == reduce_kind::premul_sum ? factor_in(w.what.op, w.what.in.type) : 1.0;
      mine.ready = ready.get();
      mine.waker = on().shared_doorbell();
      auto here = single_device_->come(sequence, rank(), mine, on().driver(), on().shared_driver(),
                                       use.out->native());
      co_await on_one_device(&w, use, std::move(here));
    } else if (way == path::one_device) {
      co_await through_window(&w, use, ticket, ready.get(), &told);
    } else if (kind == operation_kind::send) {
      std::uint64_t head[2] = {w.what.in.bytes(), next_message_++ & 0x3fffffff};
      co_await staged_send(&w, use, ready.get(), head);
    } else if (kind == operation_kind::receive) {
      co_await staged_receive(&w, use, ready.get());
    } else {
      co_await staged_collective(&w, use, ticket, ready.get());
    }
  } catch (const error& e) {
    why = static_cast<errc>(e.code().value());
    text = e.what();
  } catch (const std::exception& e) {
    why = errc::resources;
    text = e.what();
  }
  if (ticket != 0 && why != errc::success) end_turn(ticket);
  if (why == errc::cancelled && r->stopped != errc::success) {
    why = r->stopped;
    text = fmt::format("{}: {}", title(w.what), r->reason);
  }
  if (why != errc::success) {
    if (meets && why != errc::mismatch) {
      if (why == errc::timed_out) text += ": " + single_device_->missing(sequence) + " did not come";
      single_device_->break_up(errc::communicator_failed,
                               fmt::format("{} has failed on rank {}: {}", name_of(kind), rank(), text));
    }
    // The others' chunks would wait for those that do not come. (It has failed already when the reason came
    // from there.)
    if (way == path::staged && !message) chunks_.abort();
    if (way == path::one_device && window_) {
      window_->give_up();
      slot_changed_.notify_all();
      if (!told) notes_.abort();
    }
    if (why == errc::device_failed) on().fail(why, text);
    w.fail(why, fmt::format("{} ({})", text, gpu::name_of(way)));
  }
  ready.reset();
  if (use.in) spare_streams_.push_back(std::move(use));
  r->ended = true;
}

}  // namespace tutti::gpu::detail
