// SPDX-License-Identifier: Apache-2.0
// Which cores each rank of a node may use: tutti-run --bind.
#pragma once

#include <string>
#include <vector>

namespace tutti::launch {

// core: each rank has a core with its hardware threads; cache, numa: the ranks are spread, in their order, over the
// groups of cores that share a last-level cache, or memory.
enum class binding { none, core, cache, numa };

struct rank_place {
  std::vector<int> cores;  // ascending; empty: all that the launcher may use
  int threads = 1;         // its share of them
};

// One place for each rank. `mask` is the launcher's affinity (base::cpu_mask()), `system` the folder where the kernel
// describes the machine. Throws usage_error if there are fewer cores than ranks that want one each.
std::vector<rank_place> places_of_ranks(binding how, int ranks, const std::string& mask,
                                        const std::string& system = "/sys/devices/system");

}  // namespace tutti::launch
