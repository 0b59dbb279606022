// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks in several processes that share a device: their chunks pass through the window.
#include "comm/device_group.hpp"

#include <algorithm>
#include <tutti/tutti.hpp>

namespace tutti::gpu::impl {

struct device_group::passage {
  std::uint64_t number = 0;  // of the chunk in the window
  // Tag of its messages. Chunks of several operations are in flight at a time, in any order.
  int tag() const noexcept { return static_cast<int>(number & 0x3fffffff); }
  std::size_t offset = 0, count = 0;
  // Sent to rank 0 once ready() is recorded or, without shared events, has passed. Rank 0 has all ranks', others
  // have their own.
  recycled_vector<single_device_group::arguments> notes;
  reason told;  // the answer of rank 0: the same for done(), or why the collective failed
  recycled_vector<request> telling, hearing;
  mark ready, done;  // set if the host waits for the device before it sends
};

void device_group::begin_passage(const device_arguments& c, const stream_pair& use,
                                 const chunk_layout& layout, passage& p) {
  driver& d = on_->driver();
  void* const slot = window_->slot(rank(), p.number);
  d.wait(use.out->native(), window_->freed(p.number));
  layout.copy(d, side::in, p.offset, p.count, slot, use.out->native());
  const bool waits = !window_->has_events() && rank() != 0;
  if (waits) {
    p.ready.set(*use.out, {window_, c.in.keep});
  } else {
    d.record(window_->ready(rank(), p.number), use.out->native());
    use.out->keep({window_, c.in.keep});
  }
  if (rank() == 0) {
    p.notes.resize(static_cast<std::size_t>(size()));
    p.notes[0] = single_device_group::arguments_of(c);
    for (int r = 1; r < size(); ++r)
      p.hearing.push_back(notes_.irecv(p.notes[static_cast<std::size_t>(r)], r, p.tag()));
  } else {
    p.notes.push_back(single_device_group::arguments_of(c));
    p.hearing.push_back(notes_.irecv(p.told, 0, p.tag()));
    if (!waits) p.telling.push_back(notes_.isend(p.notes[0], 0, p.tag()));
  }
}

// Sends the note of the first chunk when that is ready, and of following chunks that are ready by then.
task<> device_group::tell_ready(recycled_deque<passage>* under_way) {
  for (passage& p : *under_way) {
    if (!p.telling.empty()) continue;
    if (&p != &under_way->front() && !p.ready.has_passed()) co_return;
    co_await p.ready;
    p.telling.push_back(notes_.isend(p.notes[0], 0, p.tag()));
  }
}

void device_group::carry_out(const device_arguments& c, const stream_pair& use, passage& p, bool first) {
  single_device_group::contributions all;
  for (const single_device_group::arguments& n : p.notes) {
    all.push_back(make_recycled<single_device_group::contribution>());
    all.back()->what = n;
  }
  try {
    // Later chunks belong to the same calls.
    if (std::string text = first ? single_device_group::disagreement(all) : std::string(); !text.empty())
      throw error(errc::mismatch, text);
    for (int r = 0; r < size(); ++r) {
      single_device_group::contribution& v = *all[static_cast<std::size_t>(r)];
      const chunk_layout layout(c, r, size());
      v.in = layout.part(side::in, window_->slot(r, p.number), p.count);
      v.out = layout.part(side::out, window_->slot(r, p.number), p.count);
      v.event = window_->ready(r, p.number);
    }
    single_device_group::enqueue(all, on_->shared_driver(), use.in->native());
    if (window_->has_events()) {
      on_->driver().record(window_->done(p.number), use.in->native());
    } else {
      p.done.set(*use.in, {window_});
    }
  } catch (const error& e) {
    p.told.set(e);
  }
}

task<> device_group::find_window() {
  std::string why;
  window_ = co_await window::open(on_, notes_, chunk_bytes_, &why);
  if (window_) co_return;
  notes_ = {};
  apart_ = std::move(why);
}

task<> device_group::through_window(work_state* w, stream_pair use, turn* mine, bool* told) {
  const device_arguments& c = w->what;
  driver& d = on_->driver();
  w->keep_until_done(make_recycled<frees_hold>(on_->shared_driver()));
  co_await take_turn(w, &use, mine);
  const chunk_layout layout(c, rank(), size());
  std::size_t most = std::max<std::size_t>(1, layout.most_in(window_->slot_bytes()));
  if (most > 16) most -= most % 16;  // aligned, so that kernels read 16 bytes at a time
  const std::size_t count = layout.chunks_of(most);
  const std::uint64_t first = window_->take(count);

  recycled_deque<passage> under_way;
  std::size_t begun = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; begun < std::min(count, i + window::slots); ++begun) {
      while (!window_->is_free(first + begun)) co_await waits_in(*on_, awaiting_slot_);
      passage& p = under_way.emplace_back();
      p.number = first + begun;
      p.offset = begun * most;
      p.count = std::min(most, layout.block() - p.offset);
      begin_passage(c, use, layout, p);
    }
    if (begun == count) mine->end();

    passage& p = under_way.front();
    if (p.ready.is_set()) co_await tell_ready(&under_way);
    for (request& r : p.hearing) co_await r;
    if (rank() == 0) {
      carry_out(c, use, p, i == 0);
      if (p.done.is_set()) co_await p.done;
      for (int r = 1; r < size(); ++r) p.telling.push_back(notes_.isend(p.told, r, p.tag()));
    }
    for (request& r : p.telling) co_await r;
    if (p.told.why != 0) {
      // No rank fails the communicator before all ranks have the verdict: members pass a failure on, and it
      // may overtake the message.
      std::byte heard{};
      if (rank() != 0) co_await as_result(notes_.send(heard, 0, p.tag()));
      for (int r = 1; rank() == 0 && r < size(); ++r) co_await as_result(notes_.recv(heard, r, p.tag()));
      *told = rank() != 0;
      throw error(static_cast<errc>(p.told.why), std::string(p.told.text));
    }
    if (window_->has_events()) d.wait(use.in->native(), window_->done(p.number));
    layout.copy(d, side::out, p.offset, p.count, window_->slot(rank(), p.number), use.in->native());
    d.record(window_->freed(p.number), use.in->native());
    use.in->keep({window_, c.out.keep});
    window_->set_free(p.number);
    on_->resume_soon(awaiting_slot_);
    under_way.pop_front();
  }
}

}  // namespace tutti::gpu::impl
