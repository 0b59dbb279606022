// SPDX-License-Identifier: Apache-2.0
// Every element type with every reduction it has, with a serial answer, type-erased: what uses them compiles
// once.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::test {

// What a reduction is called with; the kind says which of it is used.
struct reduction_arguments {
  coll::operation_kind kind{};
  std::span<std::byte> in;  // the same memory as `out` (or its own block there): in place
  std::span<std::byte> out;
  std::span<const std::size_t> counts;
  int root = 0;
  std::vector<std::span<std::byte>> pieces;  // not empty: all_reduce of a list
  std::shared_ptr<void> list;                // what must outlive the operation
};

struct reduction_case {
  std::string name;  // "sum of float16"
  std::size_t element_bytes = 0;
  bool has_scans = true;
  // Small whole numbers, so that every order of reducing has the same, exact result.
  bytes (*input)(int rank, std::size_t count) = nullptr;
  // The reduction of ranks 0 to ranks - 1.
  bytes (*answer)(int ranks, std::size_t count) = nullptr;
  operation<> (*call)(const communicator& world, reduction_arguments& with) = nullptr;
};

const std::vector<reduction_case>& reduction_cases();
const reduction_case& sum_of_floats();

}  // namespace tutti::test
