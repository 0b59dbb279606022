// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"
#include "base/log.hpp"
#include "ops/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tutti::ops {
namespace {

using detail::call;
using detail::operation_state;

struct buffer_in_flight {
  const std::byte* begin;
  const std::byte* end;
  bool written;
  const operation_state* of;
};

// Those of the operation's loop; null if it has no list yet and none is to be made. Several threads in turn may be one loop
// (core/loop_driver.hpp), so they are not of a thread.
std::vector<buffer_in_flight>* buffers_in_flight(const operation_state& state, bool make) {
  static std::mutex mutex;
  // Outlives static objects of the program.
  static auto* const all = new std::unordered_map<const core::loop*, std::vector<buffer_in_flight>>;
  const core::loop* const loop = &state.what().comm->loop();
  const std::scoped_lock hold(mutex);
  if (make) return &(*all)[loop];
  const auto found = all->find(loop);
  return found != all->end() ? &found->second : nullptr;
}

// Calls f(view, written) for every buffer that the call uses on this rank. Device memory is used in stream
// order, which is not known here.
template <class F>
void for_each_buffer(const call& w, F f) {
  if (w.on_device()) return;
  const bool is_root = w.comm->rank() == w.peer;
  const detail::operation_row& row = detail::row_of(w.kind);
  if (w.list.at != nullptr) {
    for (std::size_t i = 0; i < w.list.size; ++i) f(w.list.at(w.list.list, i), true);
    return;
  }
  const bool writes = includes(row.writes, is_root);
  if (includes(row.reads, is_root) && !(writes && w.in.data == w.out.data)) f(w.in, false);
  if (writes) f(w.out, true);
}

std::string place_of(const call& w) {
  return fmt::format("{} at {}:{}", name_of(w.kind), w.where.file_name(), w.where.line());
}

// Describes an overlap, naming both calls and their places in the program; empty if there is none.
std::string overlap_of(const operation_state& state, const std::vector<buffer_in_flight>& others) {
  std::string found;
  for_each_buffer(state.what(), [&](const detail::buffer_view& view, bool written) {
    const auto* const begin = static_cast<const std::byte*>(view.data);
    const std::byte* const end = begin + view.bytes();
    for (const buffer_in_flight& r : others) {
      if (!found.empty() || begin >= r.end || r.begin >= end || !(written || r.written)) continue;
      found = fmt::format(
          "its buffer overlaps that of an operation that is still in flight, by {} bytes: {} is not "
          "complete, "
          "and {} would {} what it {}; await the first before, or give them buffers of their own",
          std::min(end, r.end) - std::max(begin, r.begin), place_of(r.of->what()), place_of(state.what()),
          written ? "write" : "read", r.written ? "writes" : "reads");
    }
  });
  return found;
}

}  // namespace

buffer_checks checks_of_buffers() {
#ifdef NDEBUG
  constexpr buffer_checks otherwise = buffer_checks::off;
#else
  constexpr buffer_checks otherwise = buffer_checks::warn;
#endif
  static const buffer_checks chosen = [] {
    const std::string given = base::env_string("TUTTI_CHECK_BUFFERS").value_or("");
    if (given.empty()) return otherwise;
    if (given == "off" || given == "0") return buffer_checks::off;
    if (given == "warn") return buffer_checks::warn;
    if (given == "error" || given == "1") return buffer_checks::error;
    base::log_warning(fmt::format("TUTTI_CHECK_BUFFERS is '{}'; it is off, warn or error", given));
    return otherwise;
  }();
  return chosen;
}

std::string record_buffers(const operation_state& state) {
  std::vector<buffer_in_flight>& in_flight = *buffers_in_flight(state, true);
  if (const std::string found = overlap_of(state, in_flight); !found.empty()) {
    std::string wrong = fmt::format("{}: {}", title(*state.what().comm, state.what()), found);
    if (checks_of_buffers() == buffer_checks::error) return wrong;
    constexpr int most_warnings = 5;  // of a process
    static std::atomic<int> said{0};
    if (said.fetch_add(1, std::memory_order_relaxed) < most_warnings) base::log_warning(wrong);
  }
  for_each_buffer(state.what(), [&](const detail::buffer_view& view, bool written) {
    if (view.bytes() == 0) return;
    const auto* const begin = static_cast<const std::byte*>(view.data);
    in_flight.push_back({begin, begin + view.bytes(), written, &state});
  });
  return {};
}

void forget_buffers(const operation_state& state) noexcept {
  if (checks_of_buffers() == buffer_checks::off) return;
  if (std::vector<buffer_in_flight>* const in_flight = buffers_in_flight(state, false))
    std::erase_if(*in_flight, [&state](const buffer_in_flight& r) { return r.of == &state; });
}

}  // namespace tutti::ops
