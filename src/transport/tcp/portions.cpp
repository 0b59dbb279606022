// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/portions.hpp"

#include "transport/tcp/header.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport::tcp {
namespace {

// A message of 512 KiB took half as long again in two portions (perf/NOTES.md).
constexpr std::uint64_t shortest = 2 * slice_bytes;

}  // namespace

portions::portions() noexcept {
  for (portion& p : by_connection_) {
    p.owner = this;
    p.head.kind = frame_kind::data;
    p.done = [](outgoing& self, bool) noexcept {
      auto& ended = static_cast<portion&>(self);
      ended.owner->left(ended);
    };
  }
}

bool portions::has(const outgoing& f) const noexcept {
  for (const outgoing* w = whole_.front(); w != nullptr; w = whole_.after(*w))
    if (w == &f) return true;
  return false;
}

void portions::push(outgoing& f) noexcept {
  f.progress = 0;
  whole_.push_back(f);
}

bool portions::next(std::size_t by, std::size_t among, outbox& out) noexcept {
  portion& p = by_connection_[by];
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
  p.head.other_cookie += f->progress;
  p.head.length = std::min(bytes, f->head.length - f->progress);
  p.payload = f->payload + f->progress;
  f->progress += p.head.length;
  out.push(p);
  return true;
}

bool portions::under_way(const outgoing& f) const noexcept {
  return std::ranges::any_of(by_connection_, [&f](const portion& p) { return p.of == &f; });
}

void portions::left(portion& p) noexcept {
  outgoing& f = *std::exchange(p.of, nullptr);
  if (f.progress < f.head.length || under_way(f)) return;
  f.unlink();
  f.done(f, true);
}

std::optional<withdrawal> portions::withdraw(outgoing& f, std::span<outbox* const> boxes) noexcept {
  f.unlink();
  bool leaves = f.progress == f.head.length;
  bool lost = false;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    portion& p = by_connection_[i];
    if (p.of != &f) continue;
    const std::optional<withdrawal> outcome = boxes[i]->withdraw(p);
    p.of = nullptr;
    lost |= !outcome;
    leaves &= outcome == withdrawal::leaves;
  }
  if (lost) return std::nullopt;
  return leaves ? withdrawal::leaves : withdrawal::gone;
}

void portions::clear(outbox::list& rest) noexcept {
  for (portion& p : by_connection_) {
    p.unlink();
    p.of = nullptr;
  }
  rest.splice_back(whole_);
}

}  // namespace tutti::transport::tcp
