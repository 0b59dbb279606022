// SPDX-License-Identifier: Apache-2.0
#include "launch/rank_records.hpp"

#include <algorithm>
#include <system_error>
#include <tutti/error.hpp>

#include "base/cycles.hpp"
#include "flight/explanation.hpp"

namespace tutti::launch {
namespace {

constexpr std::size_t most_last = 6;
constexpr std::size_t recent = 8;

}  // namespace

rank_records::rank_records(int ranks, std::size_t operations, bool elastic)
    : places_(static_cast<std::size_t>(ranks)), elastic_(elastic) {
  try {
    all_ = std::make_unique<flight::recordings>(ranks, flight::shape{operations});
  } catch (const std::system_error&) {
    // The kernel or a limit does not allow it: the job itself needs none of this.
  }
}

std::string rank_records::variable(int local_rank) const {
  return all_ == nullptr ? "" : flight::variable_for(*all_, local_rank);
}

void rank_records::begin_start(int first_rank, int world_size) {
  first_rank_ = first_rank;
  world_size_ = world_size;
  started_ns_ = base::steady_ns();
  std::fill(places_.begin(), places_.end(), place{});
  if (all_ != nullptr) all_->clear();
}

void rank_records::starting(int local_rank) {
  places_[static_cast<std::size_t>(local_rank)] = place{};
  // The records of a predecessor no longer matter.
  if (all_ != nullptr) all_->of(local_rank).head().ready.store(0, std::memory_order_relaxed);
}

void rank_records::started(int local_rank, pid_t pid) {
  places_[static_cast<std::size_t>(local_rank)].pid = pid;
}

void rank_records::ended(outcome& end) {
  const auto local = static_cast<std::size_t>(end.rank - first_rank_);
  const exception e = thrown(local);
  end.thrown = e.kind;
  end.thrown_after = std::chrono::microseconds(std::max<std::int64_t>(e.at_ns - started_ns_, 0) / 1000);
  flight::rank_snapshot last = read(local);
  if (end.failed() || last.at != flight::phase::left) last.end = describe(end);
  places_[local].end = std::move(last);
}

rank_records::exception rank_records::thrown(std::size_t local_rank) const {
  if (all_ == nullptr) return {};
  const flight::head& h = all_->of(static_cast<int>(local_rank)).head();
  if (h.ready.load(std::memory_order_acquire) != flight::magic ||
      h.phase_.load(std::memory_order_acquire) != static_cast<std::uint64_t>(flight::phase::failed))
    return {};
  const std::int64_t at =
      std::min(static_cast<std::int64_t>(h.failed_ns.load(std::memory_order_relaxed)), base::steady_ns());
  if (at <= 0) return {};  // not written by this version of the library
  switch (static_cast<errc>(h.failed_code.load(std::memory_order_relaxed))) {
    case errc::peer_failed:
    case errc::peer_left:
    case errc::communicator_failed:
    case errc::cancelled:
      return {outcome::exception::of_peer, at};
    default:
      return {outcome::exception::own, at};
  }
}

pid_t rank_records::ends_by_exception(std::chrono::nanoseconds age) const {
  const place* first = nullptr;
  std::int64_t first_ns = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const exception e = thrown(i);
    if (e.kind != outcome::exception::own || (first != nullptr && first_ns <= e.at_ns)) continue;
    first = &places_[i];
    first_ns = e.at_ns;
  }
  return first == nullptr || first->end || base::steady_ns() - first_ns > age.count() ? -1 : first->pid;
}

flight::rank_snapshot rank_records::read(std::size_t local_rank) const {
  const place& p = places_[local_rank];
  if (p.end) return *p.end;
  flight::rank_snapshot r;
  if (all_ != nullptr) r = flight::read(all_->of(static_cast<int>(local_rank)), recent);
  // Where nodes come and go, only the rank knows its number.
  if (!elastic_ || r.at == flight::phase::none) {
    r.rank = first_rank_ + static_cast<int>(local_rank);
    r.world_size = world_size_;
  }
  if (r.at == flight::phase::none) r.pid = p.pid;
  return r;
}

std::vector<flight::rank_snapshot> rank_records::read() const {
  std::vector<flight::rank_snapshot> ranks;
  for (std::size_t i = 0; i < places_.size(); ++i) ranks.push_back(read(i));
  return ranks;
}

std::string rank_records::last_operations(int rank) const {
  const place& p = places_[static_cast<std::size_t>(rank - first_rank_)];
  if (!p.end || p.end->at == flight::phase::none) return {};
  return flight::last_operations(*p.end, most_last, "  > ");
}

std::uint64_t rank_records::progress() const {
  std::uint64_t sum = 0;
  for (int i = 0; all_ != nullptr && i < all_->ranks(); ++i) {
    const flight::head& h = all_->of(i).head();
    for (const flight::word* w : {&h.ready, &h.phase_, &h.started, &h.ended, &h.spans, &h.compute_running})
      sum += w->load(std::memory_order_relaxed);
  }
  return sum;
}

bool rank_records::any_pending() const {
  for (int i = 0; all_ != nullptr && i < all_->ranks(); ++i) {
    const flight::head& h = all_->of(i).head();
    if (h.ready.load(std::memory_order_acquire) == flight::magic &&
        h.started.load(std::memory_order_relaxed) != h.ended.load(std::memory_order_relaxed))
      return true;
  }
  return false;
}

}  // namespace tutti::launch
