// SPDX-License-Identifier: Apache-2.0
#include "flight/snapshot.hpp"

#include "base/cycles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

namespace tutti::flight {
namespace {

constexpr std::size_t most_pending = 64;
constexpr std::size_t most_doing = 16;

// A thread's time on a core as the kernel has counted it; 0 if it does not.
std::uint64_t processor_ns(const std::string& thread) {
  std::uint64_t ns = 0;
  std::ifstream(thread + "/schedstat") >> ns;
  return ns;
}

constexpr std::int64_t surely_asleep_ns = 300'000'000;
constexpr std::chrono::milliseconds second_read{10};
constexpr std::uint64_t has_run_ns = 2'000'000;

// Whether the loop's thread computes for some milliseconds while its loop sleeps.
bool keeps_running(const head& h) {
  const std::uint64_t owner = h.owner.load(std::memory_order_relaxed);
  const std::uint64_t asleep = h.asleep.load(std::memory_order_relaxed);
  const std::string thread = fmt::format("/proc/{}/task/{}", high_of(owner), low_of(owner));
  const std::uint64_t before = processor_ns(thread);
  std::this_thread::sleep_for(second_read);
  return h.asleep.load(std::memory_order_relaxed) == asleep && processor_ns(thread) > before + has_run_ns;
}

std::string text_at(const char* from, std::size_t room) { return std::string(from, ::strnlen(from, room)); }

}  // namespace

time_map::time_map(const head& of) noexcept
    : base_cycles_(of.base_cycles.load(std::memory_order_relaxed)),
      base_ns_(static_cast<std::int64_t>(of.base_ns.load(std::memory_order_relaxed))),
      now_ns_(base::steady_ns()) {
  const std::uint64_t cycles = base::cycles();
  // A recorder with a clock of its own counts nanoseconds.
  const bool counts_ns = base_cycles_ == static_cast<std::uint64_t>(base_ns_);
  ns_per_cycle_ = counts_ns || cycles <= base_cycles_
                      ? 1
                      : static_cast<double>(now_ns_ - base_ns_) / static_cast<double>(cycles - base_cycles_);
}

std::int64_t time_map::ns(std::uint64_t cycles) const noexcept {
  const auto passed = static_cast<double>(static_cast<std::int64_t>(cycles - base_cycles_)) * ns_per_cycle_;
  // The data read may be anything: half a century either way suffices.
  constexpr double most = 1.6e18;
  return std::clamp(base_ns_, -static_cast<std::int64_t>(most), static_cast<std::int64_t>(most)) +
         static_cast<std::int64_t>(std::clamp(passed, -most, most));
}

std::string operation_snapshot::where() const {
  if (text.empty()) return {};
  return fmt::format("{}:{}", text.substr(text.find_last_of('/') + 1), line);
}

const communicator_snapshot* rank_snapshot::communicator(std::uint32_t id) const {
  const auto found = std::ranges::find(communicators, id, &communicator_snapshot::id);
  return found == communicators.end() ? nullptr : &*found;
}

bool read(const entry& from, operation_snapshot& into, const recording_view& of, const time_map& times) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const std::uint64_t mark = from.mark.load(std::memory_order_acquire);
  const auto how = static_cast<state>(mark & 0xff);
  if (how == state::none || how > state::cancelled) return false;
  const std::uint64_t start = from.start.load(relaxed), end = from.end.load(relaxed),
                      bytes = from.bytes.load(relaxed), what = from.what.load(relaxed),
                      place = from.place.load(relaxed), whom = from.whom.load(relaxed),
                      detail = from.detail.load(relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (from.mark.load(relaxed) != mark) return false;
  into.number = mark >> 8;
  into.how = how;
  into.kind = static_cast<std::uint8_t>(what >> 56);
  into.start_ns = times.ns(start);
  into.end_ns = how == state::pending ? 0 : times.ns(end);
  into.bytes = bytes;
  into.moved = detail & 0xffff'ffff'ffff;
  into.waits_for = static_cast<int>(detail >> 48) - 1;
  into.communicator = high_of(place);
  into.sequence = low_of(place);
  into.peer = static_cast<int>(high_of(whom));
  into.tag = static_cast<int>(low_of(whom));
  into.line = low_of(what);
  const std::uint64_t text = what >> 40 & 0xffff;
  into.text.clear();
  if (text < texts) {
    const text_entry& t = of.text_entries()[text];
    if (t.ready.load(std::memory_order_acquire) == 1) into.text = text_at(t.text, sizeof t.text);
  }
  return true;
}

std::optional<communicator_snapshot> read(const communicator_entry& from, bool even_closed) {
  constexpr auto relaxed = std::memory_order_relaxed;
  const std::uint64_t key = from.key.load(std::memory_order_acquire);
  if (key == 0 || (!even_closed && (key & communicator_entry::closed) != 0)) return std::nullopt;
  communicator_snapshot into{.id = static_cast<std::uint32_t>(key - 1),
                             .rank = static_cast<int>(high_of(from.place.load(relaxed))),
                             .size = static_cast<int>(low_of(from.place.load(relaxed))),
                             .last = static_cast<std::uint32_t>(from.last.load(relaxed)),
                             .failed = from.failed.load(relaxed) != 0,
                             .name = text_at(from.name, sizeof from.name)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (((from.key.load(relaxed) ^ key) & ~communicator_entry::closed) != 0) return std::nullopt;
  return into;
}

rank_snapshot read(const recording_view& from, std::size_t recent) {
  rank_snapshot r;
  const head& h = from.head();
  if (!h.is_written()) return r;
  constexpr auto relaxed = std::memory_order_relaxed;
  const time_map times(h);
  r.at = std::min(h.at(), phase::failed);
  r.rank = h.world_rank();
  r.world = h.world.load(relaxed);
  r.pid = h.pid();
  // In another namespace its number is that of another process, or of none.
  if (h.pid_space.load(relaxed) == base::namespace_of("pid"))
    r.thread = base::state_of_thread(r.pid, static_cast<int>(low_of(h.owner.load(relaxed))));
  r.now_ns = times.now_ns();
  r.since_ns = times.ns(h.joined.load(relaxed));
  r.turned_ns = times.ns(h.turned.load(relaxed));
  if (const std::uint64_t asleep = h.asleep.load(relaxed); asleep != 0) r.asleep_ns = times.ns(asleep);
  // A thread that runs although its loop sleeps may just be waking up.
  if (r.asleep_ns != 0 && r.now_ns - r.asleep_ns > surely_asleep_ns &&
      r.thread == base::process_state::runs && !keeps_running(h))
    r.thread = base::process_state::sleeps;
  r.compute_running = h.compute_running.load(relaxed);
  if (r.at == phase::failed) r.failure_text = text_at(h.failure_text, sizeof h.failure_text);

  operation_snapshot one;
  for (std::size_t i = 0; i < from.sizes().operations; ++i)
    if (read(from.operations()[i], one, from, times))
      (one.how == state::pending ? r.pending : r.recent).push_back(one);
  for (std::size_t i = 0; i < from.sizes().spans(); ++i)
    if (read(from.spans()[i], one, from, times) && one.how == state::pending) r.doing.push_back(one);
  std::ranges::sort(r.pending, {}, &operation_snapshot::number);
  std::ranges::sort(r.doing, {}, &operation_snapshot::number);
  std::ranges::sort(r.recent, std::greater(), &operation_snapshot::number);
  if (r.recent.size() > recent) r.recent.resize(recent);
  if (r.pending.size() > most_pending) r.pending.resize(most_pending);
  if (r.doing.size() > most_doing) r.doing.resize(most_doing);

  for (std::size_t i = 0; i < communicators; ++i) {
    auto known = read(from.communicator_entries()[i]);
    if (known) r.communicators.push_back(std::move(*known));
  }
  // Of entries with one number the live one counts: ranks that have met again restart their numbers.
  std::partition(r.communicators.begin(), r.communicators.end(),
                 [](const communicator_snapshot& c) { return !c.failed; });
  return r;
}

}  // namespace tutti::flight
