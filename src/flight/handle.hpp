// SPDX-License-Identifier: Apache-2.0
// Where an operation is on record. Safe to use when other operations have taken the place since.
#pragma once

#include <cstdint>

namespace tutti::flight {

struct handle {
  std::uint64_t number = 0;  // 0: none
  std::uint32_t place = 0;
};

}  // namespace tutti::flight
