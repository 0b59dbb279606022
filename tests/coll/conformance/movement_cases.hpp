// SPDX-License-Identifier: Apache-2.0
// The collectives that move blocks, for every element type, type-erased: what uses them compiles once.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti::test {

struct movement_arguments {
  coll::operation_kind kind{};
  std::span<std::byte> in;
  std::span<std::byte> out;
  std::span<const std::size_t> in_counts;
  std::span<const std::size_t> out_counts;
  int root = 0;
};

struct movement_case {
  std::string name;
  std::size_t element_bytes = 0;
  operation<> (*call)(const communicator& world, const movement_arguments& with) = nullptr;
};

// The first is float.
const std::vector<movement_case>& movement_cases();

}  // namespace tutti::test
