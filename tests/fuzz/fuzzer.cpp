// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry; one program for each target, TUTTI_FUZZ_TARGET.
#include "fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tutti::fuzz::TUTTI_FUZZ_TARGET({data, size});
  return 0;
}
