// SPDX-License-Identifier: Apache-2.0
// Chooses the algorithm of a collective by kind, bytes, ranks and hosts, from the rows of coll/algorithms.hpp and the
// costs of coll/cost.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tutti/algorithm.hpp>
#include <tutti/detail/operation_state.hpp>
#include <vector>

namespace tutti::coll {

using detail::name_of;
using detail::operation_kind;

// The input of the choice; the same on all ranks.
struct situation {
  operation_kind kind{};
  std::size_t bytes = 0;  // of one rank's whole vector; for blocks, of the largest buffer
  int ranks = 1;
  bool one_host = false;    // of all ranks
  bool neighbours = false;  // all ranks reach each other through shared memory
  bool hierarchy = false;   // several hosts, some with several ranks
  bool even_hosts = false;  // all hosts have the same number of ranks
  bool even_blocks = true;
  bool shared_memory = false;  // there are segments, or making them pays
  bool one_segment = false;    // there is one, or making it pays
  bool halves = false;         // whose partial results are floats

  bool operator==(const situation&) const = default;
};

// The buffer of this rank whose type all ranks must agree on, and its count if blocks are even.
inline const detail::buffer_view& agreed_buffer(const detail::call& what) noexcept {
  return detail::row_of(what.kind).agreed == detail::side::in ? what.in : what.out;
}

// The situation of a call.
situation situation_of(const comm::communicator_state& c, const detail::call& what);

struct rule {
  operation_kind kind{};
  bool hierarchy = false;  // only with several hosts, some with several ranks
  int ranks = 0;           // minimum
  std::size_t bytes = 0;   // maximum
  algorithm use{};
};

bool has(operation_kind kind, algorithm a) noexcept;
// Whether the collective has the algorithm, and it can do this call.
bool fits(algorithm a, const situation& s) noexcept;

// Parses one rule per line. Rules are tried in order, before the built-in ones; # begins a comment:
//   all_reduce ranks>=2 bytes<=65536 recursive_doubling
//   all_reduce ranks>=4 bytes<=any ring hierarchical
// Throws errc::invalid_argument naming `source` and the line.
std::vector<rule> parse_rules(std::string_view text, const std::string& source);

// Chooses in this order: `wanted` by the call; TUTTI_ALGORITHMS (all_reduce=ring,broadcast=binomial); the
// rules of the file TUTTI_TUNING; the rows. Throws errc::invalid_argument if `wanted` does not fit,
// or a variable is invalid.
algorithm choose(const situation& s, algorithm wanted);

}  // namespace tutti::coll
