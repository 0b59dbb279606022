// SPDX-License-Identifier: Apache-2.0
// Programs made by chance, whose outcome is determined: what every rank does in which order, on which
// communicators, and what comes out of it when it is computed one step after the other.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::test {

enum class action {
  messages,  // some letters to one rank
  collective,
  make,    // new communicators from this one
  drop,    // the handle; what is under way on it goes on
  give_up  // a receive that nobody sends to, cancelled
};

struct letter {
  int from = 0;  // of the group
  int tag = 0;
  std::size_t size = 0;
};

enum class receive_form {
  named,       // source and tag
  any_tag,     // from the one source
  any_source,  // with a tag that no other step has
  any          // both, then a barrier, so that no later letter can be taken for one of these
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
  std::size_t room = 0;  // how much longer than its letter the receiver's buffer is

  coll::operation_kind kind{};  // of the collective, or of what makes
  algorithm with = algorithm::automatic;
  std::size_t count = 0;
  int root = 0;
  fold op{};
  bool in_place = false;

  std::vector<int> colors;  // make: by rank of the group; without color: no member
  std::vector<int> keys;
  std::vector<int> made;  // by color: the new group, or -1

  bool at_once = false;  // awaited before the next step
};

// The ranks of a communicator, as ranks of the world.
using members = std::vector<int>;

struct program {
  std::uint64_t seed = 0;
  setting where;
  std::vector<members> groups;  // the first is the world; the others in the order in which they are made
  std::vector<step> steps;

  std::string replay() const;
  std::string words(const step& s) const;
};

// World and steps depend on the seed alone; consecutive seeds go through all transports and numbers of ranks.
program random_program(std::uint64_t seed);

// One for a world of the caller's, with as many steps, whose buffers have `most_bytes` or so.
program random_program(std::uint64_t seed, setting where, std::size_t steps, std::size_t most_bytes);

// ---- the serial model ----

using elements = std::vector<std::uint32_t>;

// What a collective does on one rank of its group.
struct part {
  elements in;
  elements wanted;
  std::vector<std::size_t> in_counts;  // of the uneven forms, where this rank gives them
  std::vector<std::size_t> out_counts;
  std::size_t own_in = 0;   // where the own block begins in the input
  std::size_t own_out = 0;  // and in the result
};
part part_of(const program& p, const step& s, int rank);

// The bytes of a letter: other ones for every letter of the program.
bytes text_of(const program& p, const step& s, std::size_t letter);

}  // namespace tutti::test
