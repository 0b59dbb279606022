// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/stripes.hpp"

#include "transport/tcp/header.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport::tcp {
namespace {

// A message of 512 KiB took half as long again in two stripes (perf/NOTES.md).
constexpr std::uint64_t shortest = 2 * slice_bytes;

}  // namespace

stripes::stripes() noexcept {
  for (stripe& p : by_connection_) {
    p.owner = this;
    p.head.kind = frame_kind::data;
    p.done = [](outgoing& self, bool) noexcept {
      auto& ended = static_cast<stripe&>(self);
      ended.owner->left(ended);
    };
  }
}

bool stripes::has(const outgoing& f) const noexcept {
  for (const outgoing* w = whole_.front(); w != nullptr; w = whole_.after(*w))
    if (w == &f) return true;
  return false;
}

void stripes::push(outgoing& f) noexcept {
  f.progress = 0;
  whole_.push_back(f);
}

bool stripes::next(std::size_t by, std::size_t among, outbox& out) noexcept {
  stripe& p = by_connection_[by];
  if (p.of != nullptr) return false;
  outgoing* f = whole_.front();
  while (f != nullptr && f->progress == f->head.length) f = whole_.after(*f);
  if (f == nullptr) return false;
  // Equal shares, in whole slices.
  const std::uint64_t share =
      (f->head.length + among * slice_bytes - 1) / (among * slice_bytes) * slice_bytes;
  const std::uint64_t bytes = std::clamp<std::uint64_t>(share, shortest, bytes_per_call);
  p.of = f;
  p.head = f->head;
  p.head.other_transfer_id += f->progress;
  p.head.length = std::min(bytes, f->head.length - f->progress);
  p.payload = f->payload + f->progress;
  f->progress += p.head.length;
  p.through = &out;
  out.push(p);
  return true;
}

void stripes::left(stripe& p) noexcept {
  outgoing& f = *std::exchange(p.of, nullptr);
  if (f.progress < f.head.length || std::ranges::count(by_connection_, &f, &stripe::of) > 0) return;
  f.unlink();
  f.done(f, true);
}

std::optional<cancel_result> stripes::cancel(outgoing& f) noexcept {
  f.unlink();
  bool leaves = f.progress == f.head.length;
  bool lost = false;
  for (stripe& p : by_connection_) {
    if (p.of != &f) continue;
    const std::optional<cancel_result> outcome = p.through->cancel(p);
    p.of = nullptr;
    lost |= !outcome;
    leaves &= outcome == cancel_result::leaves;
  }
  if (lost) return std::nullopt;
  return leaves ? cancel_result::leaves : cancel_result::gone;
}

void stripes::clear(outbox::list& rest) noexcept {
  for (stripe& p : by_connection_) {
    p.unlink();
    p.of = nullptr;
  }
  rest.splice_back(whole_);
}

}  // namespace tutti::transport::tcp
