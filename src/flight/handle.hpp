// SPDX-License-Identifier: Apache-2.0
// handle: the place of an operation in the recording. Safe to use after other operations have taken the
// place.
#pragma once

#include <cstdint>

namespace tutti::flight {

struct handle {
  std::uint64_t number = 0;  // 0: none
  std::uint32_t place = 0;
};

}  // namespace tutti::flight
