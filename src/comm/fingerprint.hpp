// SPDX-License-Identifier: Apache-2.0
// fingerprint: what the ranks of a collective must agree on, in the bytes that its frames carry.
#pragma once

#include "p2p/transfer_states.hpp"

#include <cstdint>
#include <string>

namespace tutti::comm {

// All that ranks must agree on. `describe` converts its fingerprint back to text.
inline constexpr std::uint8_t being_prepared = 0x80, on_device = 0x40, in_two_levels = 0x80;
struct collective_description {
  std::uint8_t kind = 0;       // detail::operation_kind, with the first two flags
  std::uint8_t type = 0;       // element_type
  std::uint8_t reduction = 0;  // reduce_kind
  std::uint8_t algorithm = 0;  // tutti::algorithm, with the last flag
  std::int32_t root = -1;
  std::uint64_t count : 48 = 0;  // elements
  // detail::reduction::callable; for opaque elements combined by exclusive or with their size, or from
  // least_hashed_bytes on with that bit and a hash of their size.
  std::uint64_t callable : 16 = 0;

  static constexpr std::uint16_t least_hashed_bytes = 0x8000;
};

p2p::fingerprint fingerprint_of(const collective_description& d) noexcept;
// "all_reduce(4 elements of float, sum)".
std::string describe(const p2p::fingerprint& print);
// "ring"; "automatic" if the ranks need not agree on an algorithm.
std::string describe_algorithm(const p2p::fingerprint& print);
// Whether each rank's part of such a collective ends only after all ranks have called it.
bool waits_for_all(const p2p::fingerprint& print) noexcept;

}  // namespace tutti::comm
