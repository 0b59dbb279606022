// SPDX-License-Identifier: Apache-2.0
// Every rank, or the root, exchanges data with every other one directly.
#include "coll/algorithms.hpp"

#include <optional>
#include <span>

namespace tutti::coll {
namespace {

// In step k a rank sends out(to) to the rank k ahead and receives in(from) from the rank k behind, unless there is
// none; `Most` steps at a time.
template <std::size_t Most, class Out, class In>
task<> exchange(collective c, Out out, In in) {
  in_flight<p2p::sending, Most> sends;
  in_flight<p2p::receiving, Most> receives;
  for (int distance = 1; distance < c.size(); ++distance) {
    const int to = c.ahead(distance);
    const int from = c.ahead(-distance);
    if (const auto coming = in(from)) {
      co_await receives.make_room();
      receives.start([&] { return c.receive(from, coming->data(), coming->size()); });
    }
    if (const auto leaving = out(to)) {
      co_await sends.make_room();
      sends.start([&] { return c.send(to, leaving->data(), leaving->size()); });
    }
  }
  co_await receives.drain();
  co_await sends.drain();
}

task<> exchange_blocks(collective c, const std::byte* data, blocks out_parts, std::byte* result,
                       blocks in_parts) {
  const auto out = [=](int to) { return std::optional(out_parts.of(data, to)); };
  const auto in = [=](int from) { return std::optional(in_parts.of(result, from)); };
  return exchange<4>(c, out, in);
}

// Reduces a block of each rank, in rank order: this rank's at `own`, the others' at `all`, without gaps.
void reduce_blocks(const collective& c, const reduce_call& r, const std::byte* own, const std::byte* all,
                   std::size_t bytes) {
  const auto size = static_cast<std::size_t>(c.size());
  auto lease = c.scratch().take(size * sizeof(const void*));
  auto** const inputs = reinterpret_cast<const void**>(lease.data());
  for (std::size_t i = 0; i < size; ++i) inputs[i] = all + i * bytes;
  inputs[c.rank()] = own;
  reduce_all(r.op, r.type, std::span<const void* const>(inputs, size), r.data, bytes / r.element_bytes);
}

}  // namespace

task<> tell_all(collective c, const void* mine, std::size_t bytes, void* all) {
  const auto out = [=](int) { return std::optional(std::span(static_cast<const std::byte*>(mine), bytes)); };
  const auto in = [=, parts = blocks::even(bytes)](int from) {
    return std::optional(parts.of(static_cast<std::byte*>(all), from));
  };
  return exchange<7>(c, out, in);
}

// Pairwise: every block goes directly to its rank. P-1 messages, no copy on the way. Blocks may be uneven.
task<> all_to_all_pairwise(collective c, const std::byte* data, blocks out_parts, std::byte* result,
                           blocks in_parts) {
  move_bytes(result + in_parts.begin(c.rank()), data + out_parts.begin(c.rank()), out_parts.bytes(c.rank()));
  return exchange_blocks(c, data, out_parts, result, in_parts);
}

// Direct: every rank sends every other one its contribution to that rank's block, and reduces its own block
// from all contributions in rank order. One step of P-1 messages, (P-1)/P n bytes each way, and memory for P
// blocks: for small and medium n.
task<> reduce_scatter_direct(collective c, reduce_call r, blocks parts) {
  const std::size_t own = parts.bytes(c.rank());
  auto contributions = c.scratch().take(static_cast<std::size_t>(c.size()) * own);
  co_await exchange_blocks(c, r.input, parts, contributions.data(), blocks::even(own));
  reduce_blocks(c, r, r.input + parts.begin(c.rank()), contributions.data(), own);
}

// Every rank gets all contributions to its block, reduces them at once, and the results go round. The ring's
// traffic, 2 (P-1)/P n bytes each way, in P steps, and memory for one more n. No partial result travels, so
// halves are sent as they are and still rounded once, where the other algorithms send floats in their place.
task<> all_reduce_direct(collective c, reduce_call r) {
  const blocks parts = blocks::split(r.count, c.size(), r.element_bytes);
  reduce_call own = r;
  own.data = r.data + parts.begin(c.rank());
  co_await reduce_scatter_direct(c, own, parts);
  co_await pass_blocks_round(c, r.data, parts, c.rank());
}

// One shot: every rank sends its whole contribution to every other one, and reduces all in rank order. One
// step of P-1 messages of n bytes each way: for small n between few hosts, where a step's latency is most of
// the time.
task<> all_reduce_one_shot(collective c, reduce_call r) {
  const std::size_t bytes = r.count * r.element_bytes;
  auto contributions = c.scratch().take(static_cast<std::size_t>(c.size()) * bytes);
  co_await tell_all(c, r.input, bytes, contributions.data());
  reduce_blocks(c, r, r.input, contributions.data(), bytes);
}

// Linear: the root exchanges blocks with every other rank, a few at a time: one step, P-1 messages at the root,
// no copy on the way. Blocks may be uneven.
task<> gather_linear(collective c, const std::byte* block, std::byte* data, blocks parts, int root) {
  const std::span own(block, parts.bytes(c.rank()));
  const bool is_root = c.rank() == root;
  if (is_root) move_bytes(data + parts.begin(root), block, own.size());
  const auto out = [=](int to) { return to == root ? std::optional(own) : std::nullopt; };
  const auto in = [=](int from) { return is_root ? std::optional(parts.of(data, from)) : std::nullopt; };
  return exchange<4>(c, out, in);
}

task<> scatter_linear(collective c, const std::byte* data, std::byte* block, blocks parts, int root) {
  const std::span own(block, parts.bytes(c.rank()));
  const bool is_root = c.rank() == root;
  if (is_root) move_bytes(block, data + parts.begin(root), own.size());
  const auto out = [=](int to) { return is_root ? std::optional(parts.of(data, to)) : std::nullopt; };
  const auto in = [=](int from) { return from == root ? std::optional(own) : std::nullopt; };
  return exchange<4>(c, out, in);
}

}  // namespace tutti::coll
