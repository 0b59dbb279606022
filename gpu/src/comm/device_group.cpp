// SPDX-License-Identifier: Apache-2.0
#include "comm/device_group.hpp"

#include "kernels/reduce_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tutti/error.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::gpu::detail {

// One stream per direction, so that copies overlap. Only one operation uses a pair at a time.
class device_group::streams {
 public:
  explicit streams(device_group& g) : group_(g) {
    if (g.spare_streams_.empty()) {
      const auto make = [&g] {
        return std::make_shared<stream_state>(g.on_, g.on_->driver().make_stream(true), true);
      };
      pair = {make(), make()};
    } else {
      pair = std::move(g.spare_streams_.back());
      g.spare_streams_.pop_back();
    }
  }
  streams(const streams&) = delete;
  streams& operator=(const streams&) = delete;
  ~streams() { group_.spare_streams_.push_back(std::move(pair)); }
  stream_pair pair;

 private:
  device_group& group_;
};

// Makes both streams wait for `ready`, then waits for the operation's turn.
task<> device_group::take_turn(const stream_pair* use, const turn* mine, void* ready) {
  on_->driver().wait(use->out->native(), ready);
  on_->driver().wait(use->in->native(), ready);
  co_await its_turn(mine);
}

task<> device_group::its_turn(const turn* mine) {
  while (!mine->has_come()) co_await turn_changed_.changed();
}

// ---- one chunk ----

struct device_group::chunk_state {
  std::size_t offset = 0;  // first element, in each block
  std::size_t count = 0;
  std::shared_ptr<allocation> memory;
  mark loaded;
  mark unloaded;
  request moving;
};

request device_group::reduce_chunk(const call& c, const chunk_layout& layout, chunk_state& k) {
  tutti::detail::call what(c.kind, tutti::detail::reference_to(chunks_));
  what.peer = std::max(c.peer, 0);
  what.op = c.op;
  what.in = layout.in(k.memory->data, k.count);
  what.out = layout.out(k.memory->data, k.count);
  return request(std::move(what));
}

// ---- the pipeline ----

// Chunk i is loaded while chunk i - 1 is in the CPU communicator and chunk i - 2 is on its way back. Two
// chunks are in the communicator at a time, so that it does not idle between them.
task<> device_group::staged_collective(work_state* w, stream_pair use, turn* mine, void* ready,
                                       chunks_in_flight* chunks) {
  chunks_in_flight& slots = *chunks;
  const call& c = w->what;
  driver& d = on_->driver();
  co_await take_turn(&use, mine, ready);
  const std::size_t block = block_of(c, size());
  const chunk_layout layout(c, rank(), size(), block);
  const std::size_t most = std::max<std::size_t>(1, layout.most_in(chunk_bytes_));
  const std::size_t count = layout.chunks_of(most);
  const std::size_t depth =
      std::max<std::size_t>(2, std::min<std::size_t>(count, static_cast<std::size_t>(std::max(3, depth_))));
  for (std::size_t i = 0; i < depth; ++i) {
    slots.emplace_back().memory = staging_->take(std::min(most, std::max<std::size_t>(block, 1)) *
                                                 layout.blocks() * c.in.element_bytes);
  }
  const auto slot = [&slots, depth](std::size_t i) -> chunk_state& { return slots[i % depth]; };

  std::size_t loaded = 0;  // chunks of which the load is enqueued
  for (std::size_t i = 0; i <= count; ++i) {
    // Loads as far ahead as there are slots. A slot is free once its chunk is back on the device.
    const std::size_t ahead = std::min(count, i + depth - 1);
    for (; loaded < ahead; ++loaded) {
      chunk_state& next = slot(loaded);
      if (next.unloaded.is_set()) co_await next.unloaded;
      next.offset = loaded * most;
      next.count = std::min(most, block - next.offset);
      layout.copy_in(d, next.offset, next.count, next.memory->data, use.out->native());
      point& p = use.out->signal();
      p.alive = {next.memory, c.in.keep};
      next.loaded.set(*on_, p);
    }
    if (i < count) {
      co_await slot(i).loaded;
      slot(i).moving = reduce_chunk(c, layout, slot(i));
      if (i + 1 == count) mine->end();
    }
    if (i > 0) {
      chunk_state& previous = slot(i - 1);
      co_await previous.moving;
      layout.copy_out(d, previous.offset, previous.count, previous.memory->data, use.in->native());
      point& p = use.in->signal();
      p.alive = {previous.memory, c.out.keep};
      previous.unloaded.set(*on_, p);
    }
  }
  w->set_enqueued(*use.in);
  w->finish_with(*use.in);
}

// Carries out in one piece what cannot be split into chunks.
task<> device_group::staged_whole(work_state* w, stream_pair use, turn* mine, void* ready,
                                  chunks_in_flight* chunks) {
  const tutti::detail::call& c = *w->what.whole;
  const tutti::detail::operation_row& row = row_of(c.kind);
  const bool is_root = c.peer == rank();
  const bool reads = row.in != shape::nothing && includes(row.reads, is_root);
  // An exclusive scan has no result on rank 0.
  const bool writes = row.out != shape::nothing && includes(row.writes, is_root) &&
                      !(c.kind == operation_kind::exclusive_scan && rank() == 0);
  driver& d = on_->driver();
  co_await take_turn(&use, mine, ready);
  tutti::detail::call host(c.kind, tutti::detail::reference_to(chunks_), c.where);
  host.peer = c.peer;
  host.op = c.op;
  host.in_counts = c.in_counts;
  host.out_counts = c.out_counts;
  host.in = c.in;
  host.out = c.out;
  // Also for buffers that this rank only names: the host's operation checks that they do not overlap.
  const auto in = staging_->take(c.in.bytes());
  const bool in_place = c.list.at != nullptr;
  const auto out = in_place ? in : staging_->take(c.out.bytes());
  host.in.data = in->data;
  host.out.data = out->data;
  const auto for_each_piece = [&c](const tutti::detail::buffer_view& all, std::byte* at, auto copy) {
    if (c.list.at == nullptr) return copy(all, at);
    for (std::size_t i = 0; i < c.list.size; ++i) {
      const tutti::detail::buffer_view piece = c.list.at(c.list.list, i);
      copy(piece, at);
      at += piece.bytes();
    }
  };
  using bytes = std::byte*;
  if (reads)
    for_each_piece(c.in, static_cast<bytes>(in->data), [&](const tutti::detail::buffer_view& v, bytes at) {
      if (v.bytes() > 0) d.copy(at, v.data, v.bytes(), use.out->native());
    });
  mark loaded;
  point& p = use.out->signal();
  p.alive = {in, w->what.in.keep};
  loaded.set(*on_, p);
  co_await loaded;
  chunk_state& all = chunks->emplace_back();
  all.moving = request(std::move(host));
  mine->end();
  co_await all.moving;
  if (writes)
    for_each_piece(c.out, static_cast<bytes>(out->data), [&](const tutti::detail::buffer_view& v, bytes at) {
      if (v.bytes() > 0) d.copy(v.data, at, v.bytes(), use.in->native());
    });
  w->keep_until_done(out);
  w->set_enqueued(*use.in);
  w->finish_with(*use.in);
}

// ---- messages ----

// The header has the length and the tag of the chunks. It is sent with the user's tag, so that messages are
// matched in the order of their sends.
task<> device_group::staged_send(work_state* w, stream_pair use, void* ready, std::uint64_t head[2]) {
  const call& c = w->what;
  const std::uint64_t mine[2] = {head[0], head[1]};
  request announcing = heads_.isend(std::span<const std::uint64_t>(mine), c.peer, c.tag);
  on_->driver().wait(use.out->native(), ready);
  const std::size_t bytes = c.in.bytes(), most = chunk_bytes_, count = (bytes + most - 1) / most;
  const std::size_t depth = static_cast<std::size_t>(std::max(2, depth_));
  chunks_in_flight slots;
  for (std::size_t i = 0; i < std::min(depth, count); ++i) {
    slots.emplace_back().memory = staging_->take(std::min(most, bytes));
  }
  std::size_t loaded = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; loaded < std::min(count, i + slots.size()); ++loaded) {
      chunk_state& next = slots[loaded % slots.size()];
      if (next.moving) co_await next.moving;
      next.offset = loaded * most;
      next.count = std::min(most, bytes - next.offset);
      on_->driver().copy(next.memory->data, static_cast<std::byte*>(c.in.data) + next.offset, next.count,
                         use.out->native());
      point& p = use.out->signal();
      p.alive = {next.memory, c.in.keep};
      next.loaded.set(*on_, p);
    }
    chunk_state& k = slots[i % slots.size()];
    co_await k.loaded;
    k.moving = payload_.isend(std::span<const std::byte>(static_cast<std::byte*>(k.memory->data), k.count),
                              c.peer, static_cast<int>(mine[1]));
  }
  for (chunk_state& k : slots)
    if (k.moving) co_await k.moving;
  co_await announcing;
  w->set_enqueued(*use.out);
  w->finish_with(*use.out);
}

task<> device_group::staged_receive(work_state* w, stream_pair use, void* ready) {
  const call& c = w->what;
  std::uint64_t head[2] = {};
  on_->driver().wait(use.in->native(), ready);
  status from;
  if (const auto known = find_probed(c.peer, c.tag); known != probed_.end()) {
    from = known->from;
    std::copy(std::begin(known->head), std::end(known->head), head);
    probed_.erase(known);
  } else {
    request announced = heads_.irecv(std::span<std::uint64_t>(head), c.peer, c.tag);
    from = co_await announced;
  }
  w->result = from;
  w->result.bytes = static_cast<std::size_t>(head[0]);
  const std::size_t bytes = w->result.bytes, most = chunk_bytes_, count = (bytes + most - 1) / most;
  // A message that is too long is received and discarded, so that its sender completes.
  const bool fits = bytes <= c.out.bytes();
  const std::size_t depth = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(2, depth_)));
  chunks_in_flight slots;
  for (std::size_t i = 0; i < depth; ++i) {
    slots.emplace_back().memory = staging_->take(std::min(most, bytes));
  }
  std::size_t asked = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; asked < std::min(count, i + depth); ++asked) {
      chunk_state& next = slots[asked % depth];
      if (next.unloaded.is_set()) co_await next.unloaded;
      next.offset = asked * most;
      next.count = std::min(most, bytes - next.offset);
      next.moving =
          payload_.irecv(std::span<std::byte>(static_cast<std::byte*>(next.memory->data), next.count),
                         from.source, static_cast<int>(head[1]));
    }
    chunk_state& k = slots[i % depth];
    co_await k.moving;
    if (!fits) continue;
    on_->driver().copy(static_cast<std::byte*>(c.out.data) + k.offset, k.memory->data, k.count,
                       use.in->native());
    point& p = use.in->signal();
    p.alive = {k.memory, c.out.keep};
    k.unloaded.set(*on_, p);
  }
  if (!fits)
    throw error(errc::truncated, fmt::format("the message from rank {} has {} bytes, the buffer {}",
                                             from.source, bytes, c.out.bytes()));
  w->set_enqueued(*use.in);
  w->finish_with(*use.in);
}

// Takes the header of the message, which has the length, and keeps it for the receive.
task<> device_group::probe(work_state* w) {
  const call& c = w->what;
  while (find_probed(c.peer, c.tag) == probed_.end()) {
    const status there = co_await heads_.probe(c.peer, c.tag);
    announcement next;
    request taking = heads_.irecv(std::span<std::uint64_t>(next.head), there.source, there.tag);
    if (!taking.done()) continue;  // a receive took it first
    next.from = co_await taking;
    probed_.push_back(next);
  }
  const announcement& first = *find_probed(c.peer, c.tag);
  w->result = first.from;
  w->result.bytes = static_cast<std::size_t>(first.head[0]);
}

recycled_deque<device_group::announcement>::iterator device_group::find_probed(int source, int tag) {
  return std::find_if(probed_.begin(), probed_.end(), [source, tag](const announcement& a) {
    return (source == any_source || source == a.from.source) && (tag == any_tag || tag == a.from.tag);
  });
}

// ---- one device ----

namespace {

// Polls a contribution, which the last rank settles from its own thread.
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
  const std::chrono::milliseconds limit = on_->timeout();
  bool late = false;
  try {
    co_await with_timeout(contribution_operation(*on_, *here), limit);
  } catch (const error& e) {
    if (e.code() != errc::timed_out) throw;
    late = true;
  }
  if (late && !here->settled.load(std::memory_order_acquire))
    throw error(errc::timed_out,
                fmt::format("{} ms have passed, and not all ranks have called it", limit.count()));
  if (here->failure != errc::success) throw error(here->failure, here->text);
  on_->driver().wait(use.in->native(), here->event);
  w->keep_until_done(here);
  w->set_enqueued(*use.in);
  w->finish_with(*use.in);
}

// ---- operations ----

device_group::device_group(std::shared_ptr<attachment> on, communicator chunks, communicator heads,
                           communicator payload, const open_options& how)
    : on_(std::move(on)),
      chunks_(std::move(chunks)),
      heads_(std::move(heads)),
      payload_(std::move(payload)),
      chunk_bytes_(how.chunk_bytes),
      depth_(how.depth),
      staging_(std::make_shared<staging>(on_->shared_driver())),
      turn_changed_(*on_),
      slot_changed_(*on_) {}

device_group::~device_group() {
  if (single_device_)
    single_device_->break_up(errc::peer_left, fmt::format("rank {} has closed the communicator", rank()));
}

std::string_view device_group::why_not_on_one_device(const call& c) const noexcept {
  if (!single_device_ && !window_) return apart_;
  if (is_message(c.kind)) return "messages are staged";
  if (!has_chunks(c)) return "uneven blocks, lists, scans and barriers are staged";
  // An all_to_all in place would need more memory than a window has.
  if (!single_device_ && c.kind == operation_kind::all_to_all)
    return "all_to_all between processes is staged";
  if (c.op.kind == reduce_kind::none) return {};
  if (size() > static_cast<int>(most_operands)) return "there is no kernel for so many ranks";
  const bool wide_factor = c.op.kind == reduce_kind::premul_sum &&
                           (c.in.type == element_type::int64 || c.in.type == element_type::uint64);
  if (kernels::can_reduce(c.op.kind, c.in.type) && !wide_factor && on_->driver().can().kernels) return {};
  return "there is no kernel for this reduction of this type here";
}

// Tells the other ranks about an operation that failed here, so that they do not wait for this rank.
class device_group::breach {
 public:
  breach(device_group& g, const work_state& w, backend by)
      : group_(g), kind_(w.what.kind), by_(by), of_(w.what.whole->comm) {}
  breach(const breach&) = delete;
  breach& operator=(const breach&) = delete;
  ~breach() {
    if (!averted && !is_message(kind_)) tell();
  }
  bool averted = false;
  bool told = false;  // rank 0 tells all ranks
  errc why = errc::success;
  std::string text;

 private:
  // Uses the reason of the operation's communicator if that has failed, so that both paths give the same.
  void tell() {
    if (const auto failed = tutti::detail::failure_of(of_); failed.why != errc::success) {
      why = failed.why;
      text = failed.text;
    } else if (why == errc::success) {
      why = errc::cancelled;
      text = "it was ended early";
    }
    device_group& g = group_;
    if (by_ == backend::staged) {
      tutti::detail::fail(g.chunks_, why, text);
    } else if (g.single_device_) {
      g.single_device_->break_up(why,
                                 fmt::format("{} has failed on rank {}: {}", name_of(kind_), g.rank(), text));
    } else {
      g.window_->give_up();
      g.slot_changed_.notify_all();
      if (!told) tutti::detail::fail(g.notes_, why, text);
    }
  }
  device_group& group_;
  const operation_kind kind_;
  const backend by_;
  const communicator of_;
};

// This rank's contribution to a collective on one device. The last rank may enqueue the collective until it
// learns that this rank has given up. The memory must then stay although nothing here waits for it.
class device_group::brought {
 public:
  explicit brought(device_group& g) noexcept : group_(g) {}
  brought(const brought&) = delete;
  brought& operator=(const brought&) = delete;
  ~brought() {
    if (!what || !what->settled.load(std::memory_order_acquire) || what->failure != errc::success) return;
    try {
      const streams use(group_);
      group_.on_->driver().wait(use.pair.in->native(), what->event);
      use.pair.in->keep({what});
    } catch (const std::exception&) {
      // The device has failed.
    }
  }
  std::shared_ptr<single_device_group::contribution> what;  // null once the operation keeps it

 private:
  device_group& group_;
};

task<> device_group::perform(work_state* w, backend by, turn* mine) {
  void* const ready = w->what.ready.get();
  const operation_kind kind = w->what.kind;
  const bool meets = by == backend::one_device && single_device_;
  const std::uint64_t sequence = meets ? single_device_->next(rank()) : 0;
  chunks_in_flight chunks;
  brought one_device(*this);
  breach others(*this, *w, by);
  if (meets) mine->end();
  try {
    const streams use(*this);
    if (meets) {
      const auto here = make_recycled<single_device_group::contribution>();
      here->kind = kind;
      here->in = w->what.in;
      here->out = w->what.out;
      here->root = w->what.peer;
      here->op = w->what.op.kind;
      if (here->op == reduce_kind::premul_sum) here->factor = factor_in(w->what.op, w->what.in.type);
      here->event = ready;
      here->waker = on_->shared_doorbell();
      one_device.what = here;
      single_device_->come(sequence, rank(), here, on_->shared_driver(), use.pair.out->native());
      co_await on_one_device(w, use.pair, one_device.what);
      one_device.what.reset();
    } else if (by == backend::one_device) {
      co_await through_window(w, use.pair, mine, ready, &others.told);
    } else if (kind == operation_kind::send) {
      std::uint64_t head[2] = {w->what.in.bytes(), next_message_++ & 0x3fffffff};
      co_await staged_send(w, use.pair, ready, head);
    } else if (kind == operation_kind::receive) {
      co_await staged_receive(w, use.pair, ready);
    } else if (kind == operation_kind::probe) {
      co_await probe(w);
      w->set_enqueued(*use.pair.in);
      w->finish_with(*use.pair.in);
    } else if (has_chunks(w->what)) {
      co_await staged_collective(w, use.pair, mine, ready, &chunks);
    } else {
      co_await staged_whole(w, use.pair, mine, ready, &chunks);
    }
    others.averted = true;
  } catch (const error& e) {
    others.why = static_cast<errc>(e.code().value());
    others.text = e.what();
    // Every rank has found the mismatch.
    others.averted = meets && e.code() == errc::mismatch;
    if (!meets || e.code() != errc::timed_out) throw;
    throw error(errc::timed_out, others.text += ": " + single_device_->missing(sequence) + " did not come");
  }
}

}  // namespace tutti::gpu::detail
