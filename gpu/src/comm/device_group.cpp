// SPDX-License-Identifier: Apache-2.0
#include "comm/device_group.hpp"

#include "kernels/host_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/detached.hpp>
#include <tutti/error.hpp>
#include <tutti/extend/failure.hpp>
#include <tutti/extend/side_channel.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::gpu::impl {

std::shared_ptr<device_group::stream_pair> device_group::lend_streams() {
  if (spare_streams_.empty())
    spare_streams_.emplace_back(new stream_pair{stream_state::make(on_), stream_state::make(on_)});
  std::unique_ptr<stream_pair> taken = std::move(spare_streams_.back());
  spare_streams_.pop_back();
  return {taken.release(), [this](stream_pair* p) { spare_streams_.emplace_back(p); },
          frame_allocator<std::byte>()};
}

// Makes both streams wait until the operation may start, then waits for its turn.
task<> device_group::take_turn(const work_state* w, const stream_pair* use, const turn* mine) {
  on_->driver().wait(use->out->native(), w->what.ready.get());
  on_->driver().wait(use->in->native(), w->what.ready.get());
  co_await its_turn(mine);
}

task<> device_group::its_turn(const turn* mine) {
  while (turns_.front() != mine) co_await waits_in(*on_, awaiting_turn_);
}

request device_group::reduce_chunk(const device_arguments& c, const chunk_layout& layout, chunk_state& k) {
  tutti::extend::call what(c.kind, tutti::extend::reference_to(chunks_));
  what.peer = std::max(c.peer, 0);
  what.op = c.op;
  what.in = layout.part(side::in, k.memory->data, k.count);
  what.out = layout.part(side::out, k.memory->data, k.count);
  return request(std::move(what));
}

// ---- the pipeline ----

// Chunk i is loaded while chunk i - 1 is in the CPU communicator and chunk i - 2 is on its way back. Two
// chunks are in the communicator at a time, so that it does not idle between them.
task<> device_group::staged_collective(work_state* w, stream_pair use, turn* mine, chunks_in_flight* chunks) {
  chunks_in_flight& slots = *chunks;
  const device_arguments& c = w->what;
  driver& d = on_->driver();
  co_await take_turn(w, &use, mine);
  const chunk_layout layout(c, rank(), size());
  const std::size_t most = std::max<std::size_t>(1, layout.most_in(chunk_bytes_));
  const std::size_t count = layout.chunks_of(most);
  const std::size_t depth =
      std::max<std::size_t>(2, std::min<std::size_t>(count, static_cast<std::size_t>(std::max(3, depth_))));
  for (std::size_t i = 0; i < depth; ++i) {
    slots.emplace_back().memory = staging_->take(std::min(most, std::max<std::size_t>(layout.block(), 1)) *
                                                 layout.blocks() * c.in.element_bytes);
  }
  const auto slot = [&slots, depth](std::size_t i) -> chunk_state& { return slots[i % depth]; };

  std::size_t loaded = 0;  // chunks of which the load is enqueued
  for (std::size_t i = 0; i <= count; ++i) {
    // Loads as far ahead as there are slots. A slot is free once its chunk is back on the device.
    const std::size_t ahead = std::min(count, i + depth - 1);
    for (; loaded < ahead; ++loaded) {
      chunk_state& next = slot(loaded);
      if (next.copied.is_set()) co_await next.copied;
      next.offset = loaded * most;
      next.count = std::min(most, layout.block() - next.offset);
      layout.copy(d, side::in, next.offset, next.count, next.memory->data, use.out->native());
      next.copied.set(*use.out, {next.memory, c.in.keep});
    }
    if (i < count) {
      co_await slot(i).copied;
      slot(i).moving = reduce_chunk(c, layout, slot(i));
      if (i + 1 == count) mine->end();
    }
    if (i > 0) {
      chunk_state& previous = slot(i - 1);
      co_await previous.moving;
      layout.copy(d, side::out, previous.offset, previous.count, previous.memory->data, use.in->native());
      previous.copied.set(*use.in, {previous.memory, c.out.keep});
    }
  }
}

// Carries out in one piece what cannot be split into chunks.
task<> device_group::staged_whole(work_state* w, stream_pair use, turn* mine, chunks_in_flight* chunks) {
  const tutti::extend::call& c = *w->what.whole;
  const tutti::extend::operation_row& row = row_of(c.kind);
  const bool is_root = c.peer == rank();
  const bool reads = row.in != shape::nothing && includes(row.reads, is_root);
  // An exclusive scan has no result on rank 0.
  const bool writes = row.out != shape::nothing && includes(row.writes, is_root) &&
                      !(c.kind == operation_kind::exclusive_scan && rank() == 0);
  driver& d = on_->driver();
  co_await take_turn(w, &use, mine);
  tutti::extend::call host(c.kind, tutti::extend::reference_to(chunks_), c.where);
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
  const auto copy_pieces = [&](const tutti::extend::buffer_view& all, void* staged, bool to_host,
                               void* stream) {
    auto* at = static_cast<std::byte*>(staged);
    for (std::size_t i = 0; i < (in_place ? c.list.size : 1); ++i) {
      const tutti::extend::buffer_view piece = in_place ? c.list.at(c.list.list, i) : all;
      if (piece.bytes() > 0)
        d.copy(to_host ? at : piece.data, to_host ? piece.data : at, piece.bytes(), stream);
      at += piece.bytes();
    }
  };
  if (reads) copy_pieces(c.in, in->data, true, use.out->native());
  mark loaded;
  loaded.set(*use.out, {in, w->what.in.keep});
  co_await loaded;
  chunk_state& all = chunks->emplace_back();
  all.moving = request(std::move(host));
  mine->end();
  co_await all.moving;
  if (writes) copy_pieces(c.out, out->data, false, use.in->native());
  w->keep_until_done(out);
}

// ---- messages ----

// The header has the length and the tag of the chunks. It is sent with the user's tag, so that messages are
// matched in the order of their sends.

namespace {

bool accepts(const device_arguments& c, const status& from) noexcept {
  return (c.peer == any_source || c.peer == from.source) && (c.tag == any_tag || c.tag == from.tag);
}

}  // namespace

// A receive or probe that waits for a header. It may get one that another receive gives back.
class device_group::awaited_header {
 public:
  awaited_header(device_group& g, const device_arguments& c) : what(c), group_(g) {
    group_.awaited_.push_back(this);
  }
  awaited_header(const awaited_header&) = delete;
  awaited_header& operator=(const awaited_header&) = delete;
  ~awaited_header() {
    std::erase(group_.awaited_, this);
    if (given) group_.give_back(std::move(*given));
  }

  const device_arguments& what;
  request waiting;
  bool called = false;           // `waiting` was cancelled, because a header was given back
  std::optional<message> given;  // to a receive

 private:
  device_group& group_;
};

// Gives the message to the receive that has waited longest, or else keeps it.
void device_group::give_back(message m) {
  for (awaited_header* a : awaited_) {
    if (a->called || a->waiting.done() || !accepts(a->what, m.from)) continue;
    a->called = true;
    const bool takes = a->what.kind == operation_kind::receive;
    if (takes) a->given = std::move(m);
    a->waiting.cancel();
    if (takes) return;
  }
  probed_.push_front(std::move(m));
}

// A receive of `m` ends early. It gives the message back with the chunks that have come; the next receive asks for the
// others, within its own time. If it has used some, the message is lost, and the rest of it is received and dropped,
// so that its sender completes.
void device_group::end_early(message m) noexcept {
  try {
    std::size_t came = m.used;
    for (; came < m.asked; ++came) {
      const request& r = m.chunks[came % m.chunks.size()].moving;
      if (!r || !r.done() || r.state()->failure() != errc::success) break;
      if (r.state()->result().bytes == 0) return;  // the sender has given it up
    }
    for (; m.asked > came; --m.asked) m.chunks[(m.asked - 1) % m.chunks.size()].moving = {};
    if (m.used == 0) return give_back(std::move(m));
    m.used = came;
    m.chunks.clear();  // their copies may wait in a stream
    drains_.spawn(drain(std::move(m)));
  } catch (const std::exception&) {
    // The sender waits until its deadline.
  }
}

task<> device_group::drain(message m) {
  try {
    co_await receive_chunks(&m, nullptr, nullptr);
  } catch (const error&) {
    // The communicator has failed or ended, and the sender knows.
  }
}

task<> device_group::staged_send(work_state* w, stream_pair use) {
  const device_arguments& c = w->what;
  const std::uint64_t head[2] = {c.in.bytes(), next_message_++ & 0x3fffffff};
  const int tag = static_cast<int>(head[1]);
  request sending_rts = heads_.isend(std::span<const std::uint64_t>(head), c.peer, c.tag);
  on_->driver().wait(use.out->native(), c.ready.get());
  const std::size_t bytes = c.in.bytes(), most = chunk_bytes_, count = (bytes + most - 1) / most;
  bool chunks_follow = count > 0;
  // A header that has left cannot be taken back. So a send that ends early sends a chunk without bytes: the
  // receiver then waits for the next header. It comes after the requests of the chunks.
  const scope_exit give_up([this, &chunks_follow, peer = c.peer, tag] {
    if (!chunks_follow) return;
    try {
      request farewell = payload_.isend(std::span<const std::byte>(), peer, tag);
      farewell(boost::asio::detached);
    } catch (const std::exception&) {
      // The communicator has ended, and the receiver with it.
    }
  });
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
      next.copied.set(*use.out, {next.memory, c.in.keep});
    }
    chunk_state& k = slots[i % slots.size()];
    co_await k.copied;
    k.moving = payload_.isend(std::span<const std::byte>(static_cast<std::byte*>(k.memory->data), k.count),
                              c.peer, tag);
  }
  for (chunk_state& k : slots)
    if (k.moving) co_await k.moving;
  chunks_follow = false;
  co_await sending_rts;
}

task<> device_group::staged_receive(work_state* w, stream_pair use) {
  const device_arguments& c = w->what;
  on_->driver().wait(use.in->native(), c.ready.get());
  for (bool came = false; !came;) {
    message m;
    const auto known = find_probed(c);
    if (known != probed_.end()) {
      m = std::move(*known);
      probed_.erase(known);
    } else {
      awaited_header next(*this, c);
      next.waiting = heads_.irecv(std::span<std::uint64_t>(m.head), c.peer, c.tag);
      try {
        m.from = co_await next.waiting;
      } catch (const error&) {
        if (!next.given) throw;
        m = *std::exchange(next.given, std::nullopt);
      }
    }
    const scope_exit unless_ended([this, &m] {
      if (!m.ended) end_early(std::move(m));
    });
    w->result = m.from;
    w->result.bytes = static_cast<std::size_t>(m.head[0]);
    // A message that is too long is received and discarded, so that its sender completes.
    const bool fits = w->result.bytes <= c.out.bytes();
    came = co_await receive_chunks(&m, fits ? &c.out : nullptr, use.in.get());
    if (came && !fits)
      throw error(errc::truncated, fmt::format("the message from rank {} has {} bytes, the buffer {}",
                                               m.from.source, w->result.bytes, c.out.bytes()));
  }
}

// Receives what is left of `m`, and copies it to `to` in the order of `in`; null: drops it. Returns false if the sender
// has given the message up.
task<bool> device_group::receive_chunks(message* m, const view* to, stream_state* in) {
  const std::size_t bytes = m->head[0], most = chunk_bytes_, count = (bytes + most - 1) / most;
  const std::size_t depth = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(2, depth_)));
  while (m->chunks.size() < depth) m->chunks.emplace_back().memory = staging_->take(std::min(most, bytes));
  while (m->used < count) {
    for (; m->asked < std::min(count, m->used + depth); ++m->asked) {
      chunk_state& next = m->chunks[m->asked % depth];
      if (next.copied.is_set()) co_await next.copied;
      next.offset = m->asked * most;
      next.count = std::min(most, bytes - next.offset);
      next.moving =
          payload_.irecv(std::span<std::byte>(static_cast<std::byte*>(next.memory->data), next.count),
                         m->from.source, static_cast<int>(m->head[1]));
    }
    chunk_state& k = m->chunks[m->used % depth];
    const status s = co_await k.moving;
    m->ended = s.bytes == 0;
    if (m->ended) co_return false;
    ++m->used;
    if (to == nullptr) continue;
    on_->driver().copy(static_cast<std::byte*>(to->data) + k.offset, k.memory->data, k.count, in->native());
    k.copied.set(*in, {k.memory, to->keep});
  }
  m->ended = true;
  co_return true;
}

// Takes the header of the message, which has the length, and keeps it for the receive.
task<> device_group::probe(work_state* w) {
  const device_arguments& c = w->what;
  while (find_probed(c) == probed_.end()) {
    awaited_header there(*this, c);
    there.waiting = start(heads_.probe(c.peer, c.tag));
    status found;
    try {
      found = co_await there.waiting;
    } catch (const error&) {
      if (!there.called) throw;
      continue;
    }
    message next;
    request taking = heads_.irecv(std::span<std::uint64_t>(next.head), found.source, found.tag);
    if (!taking.done()) continue;  // a receive took it first
    next.from = co_await taking;
    probed_.push_back(std::move(next));
  }
  const message& first = *find_probed(c);
  w->result = first.from;
  w->result.bytes = static_cast<std::size_t>(first.head[0]);
}

recycled_deque<device_group::message>::iterator device_group::find_probed(const device_arguments& c) {
  return std::find_if(probed_.begin(), probed_.end(), [&c](const message& m) { return accepts(c, m.from); });
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
      staging_(std::make_shared<pinned_pool>(on_->shared_driver(), true)) {}

device_group::~device_group() {
  if (single_device_)
    single_device_->break_up(
        error(errc::peer_left, fmt::format("rank {} has closed the communicator", rank())));
}

std::string_view device_group::why_not_on_one_device(const device_arguments& c) const noexcept {
  if (!single_device_ && !window_) return apart_;
  if (!has_chunks(c)) return "uneven blocks, lists, scans and barriers are staged";
  // An all_to_all in place would need more memory than a window has.
  if (!single_device_ && c.kind == operation_kind::all_to_all)
    return "all_to_all between processes is staged";
  if (c.op.kind == reduce_kind::none) return {};
  if (size() > kernels::most_operands) return "there is no kernel for so many ranks";
  const bool wide_factor = c.op.kind == reduce_kind::premul_sum &&
                           (c.in.type == element_type::int64 || c.in.type == element_type::uint64);
  const bool has_kernel = kernels::find_reduction(c.op.kind, c.in.type) != nullptr;
  if (has_kernel && !wide_factor && on_->driver().can().kernels) return {};
  return "there is no kernel for this reduction of this type here";
}

// Tells the other ranks about an operation that failed here, so that they do not wait for this rank. Uses the
// reason of the operation's communicator if that has failed, so that both paths give the same.
void device_group::tell(const breach& b, operation_kind kind, backend by, const communicator& of) {
  tutti::extend::failure failed = tutti::extend::failure_of(of);
  if (failed.code == errc::success && b.why) failed = {code_of(*b.why), b.why->what()};
  if (failed.code == errc::success) failed = {errc::cancelled, "it was ended early"};
  if (by == backend::staged) {
    tutti::extend::fail(chunks_, failed.code, failed.text);
  } else if (single_device_) {
    single_device_->break_up(
        error(failed.code, fmt::format("{} has failed on rank {}: {}", name_of(kind), rank(), failed.text)));
  } else {
    window_->give_up();
    on_->resume_soon(awaiting_slot_);
    if (!b.told) tutti::extend::fail(notes_, failed.code, failed.text);
  }
}

// Keeps this rank's contribution to a collective that has ended early here. The last rank may enqueue the
// collective until it learns of that.
void device_group::keep(std::shared_ptr<single_device_group::contribution> here) noexcept {
  if (!here || !here->settled.load(std::memory_order_acquire) || here->failure) return;
  try {
    const std::shared_ptr<stream_pair> use = lend_streams();
    on_->driver().wait(use->in->native(), here->event);
    use->in->keep({std::move(here)});
  } catch (const std::exception&) {
    // The device has failed.
  }
}

task<> device_group::perform(work_state* w, backend by, turn* mine) {
  const operation_kind kind = w->what.kind;
  const bool meets = by == backend::one_device && single_device_;
  chunks_in_flight chunks;
  std::shared_ptr<single_device_group::contribution> here;  // null once the operation keeps it
  const scope_exit keep_here([this, &here] { keep(std::move(here)); });
  breach others;
  const scope_exit unless_averted([&, of = communicator(w->what.whole->comm)] {
    if (!others.averted && !is_pairwise(kind)) tell(others, kind, by, of);
  });
  if (meets) mine->end();
  try {
    if (kind == operation_kind::probe) {
      co_await probe(w);
      co_return w->set_done();  // in no stream: those that are lent may be behind a gate
    }
    const std::shared_ptr<stream_pair> use = lend_streams();
    if (meets) {
      here = make_recycled<single_device_group::contribution>();
      here->what = single_device_group::arguments_of(w->what);
      here->in = w->what.in;
      here->out = w->what.out;
      here->event = w->what.ready.get();
      here->waker = on_->shared_doorbell();
      single_device_->come(rank(), here, on_->shared_driver(), use->out->native());
      co_await polled_flag(*on_, here->settled);
      if (here->failure) throw *here->failure;
      on_->driver().wait(use->in->native(), here->event);
      w->keep_until_done(here);
    } else if (by == backend::one_device) {
      co_await through_window(w, *use, mine, &others.told);
    } else if (kind == operation_kind::send) {
      co_await staged_send(w, *use);
    } else if (kind == operation_kind::receive) {
      co_await staged_receive(w, *use);
    } else if (has_chunks(w->what)) {
      co_await staged_collective(w, *use, mine, &chunks);
    } else {
      co_await staged_whole(w, *use, mine, &chunks);
    }
    w->finish_in(kind == operation_kind::send ? *use->out : *use->in);
    here.reset();
    others.averted = true;
  } catch (const error& e) {
    others.why = e;
    // Every rank has found the mismatch.
    others.averted = meets && e.code() == errc::mismatch;
    throw;
  }
}

}  // namespace tutti::gpu::impl
