// SPDX-License-Identifier: Apache-2.0
#include "coll/arguments.hpp"

#include "coll/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace tutti::coll {
namespace {

using comm::communicator_state;
using detail::call;
using kind = operation_kind;

std::string peer_text(const communicator_state& c, const call& what) {
  if (what.kind == kind::send) return fmt::format("to {}, tag {}", c.describe(what.peer), what.tag);
  const std::string from =
      what.peer == any_source ? "from any rank" : fmt::format("from {}", c.describe(what.peer));
  return from + (what.tag == any_tag ? ", any tag" : fmt::format(", tag {}", what.tag));
}

// Element counts of the two buffers, as the collective wants them: one block here, one per rank there.
std::string wrong_counts(const communicator_state& c, const char* whole_name, std::size_t whole,
                         const char* block_name, std::size_t block) {
  const auto ranks = static_cast<std::size_t>(c.size());
  if (whole == block * ranks) return {};
  return fmt::format("the {} has {} elements, but the {} has {}: {} ranks need {}", whole_name, whole,
                     block_name, block, ranks, block * ranks);
}

std::string wrong_list(const communicator_state& c, const char* name, const detail::counts_view& counts,
                       std::size_t buffer, const char* buffer_name, std::size_t own, const char* own_name) {
  const auto ranks = static_cast<std::size_t>(c.size());
  if (counts.size != ranks)
    return fmt::format("{} has {} numbers; one per rank is needed: {}", name, counts.size, ranks);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    if (counts.data[i] > std::numeric_limits<std::size_t>::max() - sum)
      return fmt::format("{}[{}] is {}: no buffer is as long as these {} together", name, i, counts.data[i],
                         name);
    sum += counts.data[i];
  }
  if (sum != buffer)
    return fmt::format("the {} add up to {}, but the {} has {} elements", name, sum, buffer_name, buffer);
  const std::size_t mine = counts.data[static_cast<std::size_t>(c.rank())];
  if (own_name != nullptr && mine != own)
    return fmt::format("{}[{}] is {}, but the {} of this rank has {} elements", name, c.rank(), mine,
                       own_name, own);
  return {};
}

bool overlap(const detail::buffer_view& a, const detail::buffer_view& b) noexcept {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  return a.bytes() > 0 && b.bytes() > 0 && begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

// Whether `block` is `whole`'s block of this rank (of `counts`, or even).
bool is_own_block(const communicator_state& c, const detail::buffer_view& whole,
                  const detail::buffer_view& block, const detail::counts_view& counts) noexcept {
  std::size_t before = static_cast<std::size_t>(c.rank()) * block.count;
  if (counts.size != 0) {
    before = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(c.rank()); ++i) before += counts.data[i];
  }
  return static_cast<const char*>(block.data) ==
         static_cast<const char*>(whole.data) + before * whole.element_bytes;
}

std::string wrong_overlap(const communicator_state& c, const call& what) {
  if (!overlap(what.in, what.out)) return {};
  const bool is_root = c.rank() == what.peer;
  switch (what.kind) {
    case kind::reduce:
    case kind::all_reduce:
    case kind::scan:
    case kind::exclusive_scan:
    case kind::all_to_all:
      if (what.in.data == what.out.data) return {};
      return "the input and the result overlap; give the same buffer for both, or separate ones";
    case kind::gather:
    case kind::gather_v:
      if (!is_root || is_own_block(c, what.out, what.in, what.out_counts)) return {};
      break;
    case kind::all_gather:
    case kind::all_gather_v:
      if (is_own_block(c, what.out, what.in, what.out_counts)) return {};
      break;
    case kind::scatter:
    case kind::scatter_v:
      if (!is_root || is_own_block(c, what.in, what.out, what.in_counts)) return {};
      break;
    case kind::reduce_scatter:
    case kind::reduce_scatter_v:
      if (is_own_block(c, what.in, what.out, what.in_counts)) return {};
      break;
    case kind::all_to_all_v:
      return "the input and the result overlap; give separate buffers";
    default:
      return {};
  }
  return "the input and the result overlap elsewhere than in this rank's own block; give that block, or "
         "separate buffers";
}

// A null pointer in a list, or a place that would be written twice. Memory for sorting is kept for the next
// call.
std::string wrong_pieces(const detail::buffer_list& list) {
  struct piece {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t number;
  };
  thread_local std::vector<piece> pieces;
  pieces.clear();
  for (std::size_t i = 0; i < list.size; ++i) {
    const detail::buffer_view b = list.at(list.list, i);
    if (b.count > 0 && b.data == nullptr) return fmt::format("buffer {} of the list is a null pointer", i);
    const auto begin = reinterpret_cast<std::uintptr_t>(b.data);
    if (b.bytes() > 0) pieces.push_back({begin, begin + b.bytes(), i});
  }
  const auto before = [](const piece& a, const piece& b) { return a.begin < b.begin; };
  if (!std::is_sorted(pieces.begin(), pieces.end(), before)) std::sort(pieces.begin(), pieces.end(), before);
  for (std::size_t i = 1; i < pieces.size(); ++i)
    if (pieces[i].begin < pieces[i - 1].end)
      return fmt::format("the buffers {} and {} of the list overlap",
                         std::min(pieces[i - 1].number, pieces[i].number),
                         std::max(pieces[i - 1].number, pieces[i].number));
  return {};
}

std::string wrong_group(const communicator_state& c, const call& what) {
  std::vector<bool> seen(static_cast<std::size_t>(c.size()));
  for (std::size_t i = 0; i < what.in.count; ++i) {
    const int rank = what.members[i];
    if (rank < 0 || rank >= c.size())
      return fmt::format("rank {} is outside {}, whose ranks are 0 to {}", rank, c.name(), c.size() - 1);
    if (seen[static_cast<std::size_t>(rank)]) return fmt::format("rank {} is named twice", rank);
    seen[static_cast<std::size_t>(rank)] = true;
  }
  return {};
}

std::string wrong_shape(const communicator_state& c, const call& what) {
  const auto outside = [&](int rank) { return rank < 0 || rank >= c.size(); };
  const bool is_root = c.rank() == what.peer;
  switch (what.kind) {
    case kind::send:
    case kind::receive:
    case kind::probe: {
      const bool any_allowed = what.kind != kind::send;
      if (outside(what.peer) && !(any_allowed && what.peer == any_source))
        return fmt::format("rank {} is outside {}, whose ranks are 0 to {}", what.peer, c.name(),
                           c.size() - 1);
      if (what.tag < 0 && !(any_allowed && what.tag == any_tag))
        return fmt::format("the tag {} is negative; tags are 0 to 2147483647", what.tag);
      return {};
    }
    case kind::broadcast:
    case kind::reduce:
    case kind::scatter:
    case kind::gather:
    case kind::scatter_v:
    case kind::gather_v:
      if (outside(what.peer))
        return fmt::format("the root {} is outside {}, whose ranks are 0 to {}", what.peer, c.name(),
                           c.size() - 1);
      break;
    default:
      break;
  }
  switch (what.kind) {
    case kind::reduce:
      if (is_root && what.in.count != what.out.count)
        return fmt::format("the input has {} elements, the result {}; they must be equal", what.in.count,
                           what.out.count);
      return {};
    case kind::all_reduce:
    case kind::scan:
    case kind::exclusive_scan:
      if (what.list.at == nullptr && what.in.count != what.out.count)
        return fmt::format("the input has {} elements, the result {}; they must be equal", what.in.count,
                           what.out.count);
      return {};
    case kind::all_to_all:
      if (what.in.count != what.out.count)
        return fmt::format("the input has {} elements, the result {}; they must be equal", what.in.count,
                           what.out.count);
      if (what.in.count % static_cast<std::size_t>(c.size()) != 0)
        return fmt::format("{} elements cannot be divided among {} ranks; use all_to_all_v", what.in.count,
                           c.size());
      return {};
    case kind::scatter:
      return is_root ? wrong_counts(c, "input", what.in.count, "result", what.out.count) : "";
    case kind::gather:
      return is_root ? wrong_counts(c, "result", what.out.count, "input", what.in.count) : "";
    case kind::all_gather:
      return wrong_counts(c, "result", what.out.count, "input", what.in.count);
    case kind::reduce_scatter:
      return wrong_counts(c, "input", what.in.count, "result", what.out.count);
    case kind::scatter_v:
      return is_root
                 ? wrong_list(c, "counts", what.in_counts, what.in.count, "input", what.out.count, "result")
                 : "";
    case kind::gather_v:
      return is_root
                 ? wrong_list(c, "counts", what.out_counts, what.out.count, "result", what.in.count, "input")
                 : "";
    case kind::all_gather_v:
      return wrong_list(c, "counts", what.out_counts, what.out.count, "result", what.in.count, "input");
    case kind::reduce_scatter_v:
      return wrong_list(c, "counts", what.in_counts, what.in.count, "input", what.out.count, "result");
    case kind::all_to_all_v: {
      std::string wrong = wrong_list(c, "in_counts", what.in_counts, what.in.count, "input", 0, nullptr);
      if (wrong.empty())
        wrong = wrong_list(c, "out_counts", what.out_counts, what.out.count, "result", 0, nullptr);
      const auto me = static_cast<std::size_t>(c.rank());
      if (wrong.empty() && what.in_counts.data[me] != what.out_counts.data[me])
        wrong = fmt::format("this rank sends itself {} elements, but expects {}", what.in_counts.data[me],
                            what.out_counts.data[me]);
      return wrong;
    }
    case kind::group:
      return wrong_group(c, what);
    default:
      return {};
  }
}

}  // namespace

std::string bad_argument(const communicator_state& c, const call& what) {
  if (std::string wrong = wrong_shape(c, what); !wrong.empty()) return wrong;
  const auto is_null = [](const detail::buffer_view& b) {
    return b.count > 0 && b.data == nullptr && b.element_bytes > 0;
  };
  if (what.list.at != nullptr) return wrong_pieces(what.list);
  if (is_null(what.in)) return fmt::format("the buffer of {} elements is a null pointer", what.in.count);
  if (is_null(what.out)) return fmt::format("the buffer of {} elements is a null pointer", what.out.count);
  return wrong_overlap(c, what);
}

std::string title(const communicator_state& c, const call& what) {
  const char* const operation = name_of(what.kind);
  if (what.kind == kind::send || what.kind == kind::receive)
    return fmt::format("{} of {} bytes {} on {}, rank {}", operation, what.in.bytes(), peer_text(c, what),
                       c.name(), c.rank());
  if (what.kind == kind::probe)
    return fmt::format("{} {} on {}, rank {}", operation, peer_text(c, what), c.name(), c.rank());
  return fmt::format("{} on {}, rank {}", operation, c.name(), c.rank());
}

std::string timeout_text(const communicator_state& c) {
  return fmt::format("timed out after {} s", std::chrono::duration<double>(c.timeout()).count());
}

}  // namespace tutti::coll
