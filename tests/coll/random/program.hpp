// SPDX-License-Identifier: Apache-2.0
// Random programs with a determined outcome: the actions of every rank in order, on which communicators, and
// the result of executing them one after the other.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::test {

enum class action {
  messages,  // some messages to one rank
  collective,
  make,    // new communicators from this one
  drop,    // the handle; operations in flight on it continue
  give_up  // cancel a receive that no rank sends to
};

struct letter {
  int from = 0;  // of the group
  int tag = 0;
  std::size_t size = 0;
};

enum class receive_form {
  named,       // source and tag
  any_tag,     // from the one source
  any_source,  // with a tag of no other step
  any          // both, then a barrier, so that later messages cannot match
};

enum class fold { sum, product, max, bxor };

struct step {
  std::size_t number = 0;
  action what{};
  int group = 0;

  std::vector<letter> letters;
  int to = 0;
  receive_form form{};
  bool probed = false;
  std::size_t room = 0;  // excess of the receiver's buffer over its message

  coll::operation_kind kind{};  // of the collective, or of the operation that makes communicators
  algorithm with = algorithm::automatic;
  std::size_t count = 0;
  int root = 0;
  fold op{};
  bool in_place = false;

  std::vector<int> colors;  // make: by rank of the group; no color: no member
  std::vector<int> keys;
  std::vector<int> made;  // by color: the new group, or -1

  bool at_once = false;  // awaited before the next step
};

// The ranks of a communicator, as ranks of the world.
using members = std::vector<int>;

struct program {
  std::uint64_t seed = 0;
  setting where;
  std::vector<members> groups;  // the first is the world; the others in order of creation
  std::vector<step> steps;

  std::string replay() const;
  std::string words(const step& s) const;
};

// World and steps depend only on the seed; consecutive seeds cover all transports and numbers of ranks.
program random_program(std::uint64_t seed);

// A program for a given world, with `steps` steps and buffers of about `most_bytes`.
program random_program(std::uint64_t seed, setting where, std::size_t steps, std::size_t most_bytes);

// ---- the serial model ----

using elements = std::vector<std::uint32_t>;

// The part of one rank of a group in a collective.
struct part {
  elements in;
  elements wanted;
  std::vector<std::size_t> in_counts;  // for uneven forms, where this rank passes them
  std::vector<std::size_t> out_counts;
  std::size_t own_in = 0;   // offset of the own block in the input
  std::size_t own_out = 0;  // and in the result
};
part part_of(const program& p, const step& s, int rank);

// The bytes of a message, different for every message of the program.
bytes text_of(const program& p, const step& s, std::size_t letter);

}  // namespace tutti::test
