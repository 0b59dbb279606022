// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tutti/error.hpp>
#include <tutti/request.hpp>
#include <tutti/train/reshard.hpp>
#include <utility>

namespace tutti {
namespace {

using run = reshard_plan::run;
using slice = reshard_plan::slice;

// Elements of a whole dimension that one part has side by side, and where the first of them is in it.
struct block_of_part {
  std::size_t begin = 0, end = 0;
  std::size_t local = 0;
};

std::size_t block_size(const dimension& d) noexcept {
  if (d.block > 0) return d.block;
  const auto parts = static_cast<std::size_t>(d.parts);
  return std::max<std::size_t>(1, (d.size + parts - 1) / parts);
}

std::vector<block_of_part> blocks_of(const dimension& d, int part) {
  const std::size_t block = block_size(d), stride = block * static_cast<std::size_t>(d.parts);
  std::vector<block_of_part> all;
  std::size_t local = 0;
  for (std::size_t at = block * static_cast<std::size_t>(part); at < d.size; at += stride) {
    const std::size_t end = std::min(at + block, d.size);
    all.push_back({at, end, local});
    local += end - at;
  }
  return all;
}

std::size_t size_of_part(const dimension& d, int part) {
  std::size_t size = 0;
  for (const block_of_part& b : blocks_of(d, part)) size += b.end - b.begin;
  return size;
}

// The part of each dimension that a rank has; none: the layout does not use it.
bool parts_of(const layout& l, int rank, std::array<int, 3>& parts) noexcept {
  int place = rank - l.first_rank;
  if (place < 0 || place >= l.ranks()) return false;
  for (std::size_t d = 3; d-- > 0;) {
    parts[d] = place % l.shape[d].parts;
    place /= l.shape[d].parts;
  }
  return true;
}

std::array<std::size_t, 3> extent_of(const layout& l, int rank) {
  std::array<int, 3> parts{};
  if (!parts_of(l, rank, parts)) return {};
  return {size_of_part(l.shape[0], parts[0]), size_of_part(l.shape[1], parts[1]),
          size_of_part(l.shape[2], parts[2])};
}

std::vector<run> common(const dimension& from, int from_part, const dimension& to, int to_part) {
  const std::vector<block_of_part> a = blocks_of(from, from_part), b = blocks_of(to, to_part);
  std::vector<run> runs;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const std::size_t begin = std::max(i->begin, j->begin), end = std::min(i->end, j->end);
    if (begin < end) runs.push_back({i->local + begin - i->begin, j->local + begin - j->begin, end - begin});
    i->end < j->end ? ++i : ++j;
  }
  return runs;
}

// What `giver` has and `taker` wants.
slice between(const layout& from, int giver, const layout& to, int taker) {
  slice s;
  std::array<int, 3> has{}, wants{};
  if (!parts_of(from, giver, has) || !parts_of(to, taker, wants)) return s;
  for (std::size_t d = 0; d < 3; ++d) s.runs[d] = common(from.shape[d], has[d], to.shape[d], wants[d]);
  return s;
}

// Calls f(where it begins, number of elements) for what lies side by side in memory of this extent, in the order in
// which it is sent.
template <class F>
void for_each_piece(const slice& s, std::size_t run::* side, const std::array<std::size_t, 3>& extent, F f) {
  for (const run& a : s.runs[0])
    for (std::size_t i = 0; i < a.count; ++i)
      for (const run& b : s.runs[1])
        for (std::size_t j = 0; j < b.count; ++j)
          for (const run& c : s.runs[2])
            f(((a.*side + i) * extent[1] + b.*side + j) * extent[2] + c.*side, c.count);
}

// Where the slice begins if it is one piece of memory on this side.
bool is_one_piece(const slice& s, std::size_t run::* side, const std::array<std::size_t, 3>& extent,
                  std::size_t& begin) {
  std::size_t end = 0;
  bool one = true, first = true;
  for_each_piece(s, side, extent, [&](std::size_t at, std::size_t count) {
    if (first) begin = end = at;
    one = one && at == end;
    end = at + count;
    first = false;
  });
  return one;
}

}  // namespace

std::size_t layout::elements(int rank) const noexcept {
  const std::array<std::size_t, 3> extent = extent_of(*this, rank);
  return extent[0] * extent[1] * extent[2];
}

std::size_t reshard_plan::slice::elements() const noexcept {
  std::size_t all = 1;
  for (const std::vector<run>& in : runs) {
    std::size_t here = 0;
    for (const run& r : in) here += r.count;
    all *= here;
  }
  return all;
}

reshard_plan::reshard_plan(const layout& from, const layout& to, int rank) {
  for (const layout* l : {&from, &to})
    for (const dimension& d : l->shape)
      if (d.parts < 1)
        throw error(errc::invalid_argument,
                    fmt::format("reshard_plan: a dimension has {} parts: give 1 or more", d.parts));
  for (std::size_t d = 0; d < 3; ++d)
    if (from.shape[d].size != to.shape[d].size)
      throw error(
          errc::invalid_argument,
          fmt::format("reshard_plan: dimension {} has {} elements in one layout and {} in the other: both "
                      "describe the same whole tensor",
                      d, from.shape[d].size, to.shape[d].size));
  extent_before_ = extent_of(from, rank);
  extent_after_ = extent_of(to, rank);
  elements_before_ = from.elements(rank);
  elements_after_ = to.elements(rank);
  staying_ = between(from, rank, to, rank);
  const int first = std::min(from.first_rank, to.first_rank);
  const int ranks = std::max(from.first_rank + from.ranks(), to.first_rank + to.ranks()) - first;
  for (int distance = 1; distance < ranks; ++distance) {
    const int ahead = first + (rank - first + distance) % ranks;
    const int behind = first + (rank - first - distance + ranks) % ranks;
    if (slice s = between(from, behind, to, rank); s.elements() > 0) {
      s.rank = behind;
      incoming_.push_back(std::move(s));
      receives_.push_back(true);
    }
    if (slice s = between(from, rank, to, ahead); s.elements() > 0) {
      s.rank = ahead;
      outgoing_.push_back(std::move(s));
      receives_.push_back(false);
    }
  }
}

namespace {

// A message to or from one rank, with its memory if the slice is not one piece there.
struct transfer {
  const slice* of = nullptr;
  std::vector<std::byte> packed = {};
  request running = {};
};

}  // namespace

// All transfers go by distance, some ahead, and a receive goes before the send of its distance: so a transfer waits
// only for those of less distance, on whichever ranks, and ranks never wait in a circle.
task<> reshard_plan::move_bytes(communicator c, std::span<const std::byte> from, std::span<std::byte> to,
                                std::size_t element_bytes, int tag) const {
  if (from.size() != elements_before_ * element_bytes || to.size() != elements_after_ * element_bytes)
    throw error(
        errc::invalid_argument,
        fmt::format("reshard: rank {} has {} elements in the first layout and {} in the second, but its "
                    "buffers have {} and {}",
                    c.rank(), elements_before_, elements_after_, from.size() / element_bytes,
                    to.size() / element_bytes));
  constexpr std::size_t at_once = 4;  // in each direction
  std::array<transfer, at_once> sends, receives;
  const auto unpack = [&](transfer& t) {
    std::size_t at = 0;
    if (!t.packed.empty())
      for_each_piece(*t.of, &run::to, extent_after_, [&](std::size_t place, std::size_t count) {
        std::memcpy(to.data() + place * element_bytes, t.packed.data() + at, count * element_bytes);
        at += count * element_bytes;
      });
    t = {};
  };

  std::size_t received = 0, posted = 0, sent = 0;
  for (const bool is_receive : receives_) {
    if (is_receive) {
      transfer& t = receives[posted % at_once];
      if (t.of != nullptr) {
        co_await t.running;
        unpack(t);
        ++received;
      }
      t.of = &incoming_[posted++];
      const std::size_t bytes = t.of->elements() * element_bytes;
      std::size_t begin = 0;
      std::span<std::byte> into;
      if (is_one_piece(*t.of, &run::to, extent_after_, begin)) {
        into = to.subspan(begin * element_bytes, bytes);
      } else {
        t.packed.resize(bytes);
        into = t.packed;
      }
      t.running = c.irecv(into, t.of->rank, tag);
    } else {
      transfer& t = sends[sent % at_once];
      if (t.of != nullptr) co_await t.running;
      t = {};
      t.of = &outgoing_[sent++];
      const std::size_t bytes = t.of->elements() * element_bytes;
      std::size_t begin = 0;
      std::span<const std::byte> out;
      if (is_one_piece(*t.of, &run::from, extent_before_, begin)) {
        out = from.subspan(begin * element_bytes, bytes);
      } else {
        t.packed.reserve(bytes);
        for_each_piece(*t.of, &run::from, extent_before_, [&](std::size_t place, std::size_t count) {
          const std::byte* const piece = from.data() + place * element_bytes;
          t.packed.insert(t.packed.end(), piece, piece + count * element_bytes);
        });
        out = t.packed;
      }
      t.running = c.isend(out, t.of->rank, tag);
    }
  }
  // What stays is copied while the last messages are under way.
  std::vector<std::size_t> places;
  for_each_piece(staying_, &run::to, extent_after_,
                 [&](std::size_t place, std::size_t) { places.push_back(place); });
  auto place = places.begin();
  for_each_piece(staying_, &run::from, extent_before_, [&](std::size_t at, std::size_t count) {
    std::memcpy(to.data() + *place++ * element_bytes, from.data() + at * element_bytes,
                count * element_bytes);
  });
  for (; received < incoming_.size(); ++received) {
    transfer& t = receives[received % at_once];
    co_await t.running;
    unpack(t);
  }
  for (transfer& t : sends)
    if (t.of != nullptr) co_await t.running;
}

}  // namespace tutti
