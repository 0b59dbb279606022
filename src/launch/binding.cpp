// SPDX-License-Identifier: Apache-2.0
#include "launch/binding.hpp"
#include "base/cores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "launch/options.hpp"

namespace tutti::launch {
namespace {

std::vector<int> cores_in_file(const std::filesystem::path& file) {
  std::string mask;
  std::ifstream(file) >> mask;
  return base::cores_in(mask);
}

// All cores that share with this one; only itself if the kernel does not say.
std::vector<int> sharing(binding what, int core, const std::filesystem::path& system) {
  const std::filesystem::path described = system / fmt::format("cpu/cpu{}", core);
  std::vector<int> cores;
  if (what == binding::core) {
    cores = cores_in_file(described / "topology/thread_siblings");
  } else if (what == binding::cache) {
    cores = cores_in_file(described / "cache/index3/shared_cpu_map");
  } else {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(system / "node", none)) {
      std::vector<int> of_node = cores_in_file(entry.path() / "cpumap");
      if (std::ranges::binary_search(of_node, core)) cores = std::move(of_node);
    }
  }
  if (!std::ranges::binary_search(cores, core)) cores = {core};
  return cores;
}

}  // namespace

std::vector<rank_place> places_of_ranks(binding how, int ranks, const std::string& mask,
                                        const std::string& system) {
  std::vector<rank_place> places(static_cast<std::size_t>(ranks));
  std::vector<std::vector<int>> groups;
  if (how != binding::none) {
    const std::vector<int> usable = base::cores_in(mask);
    for (const int core : usable) {
      if (std::ranges::any_of(groups, [&](const auto& g) { return std::ranges::binary_search(g, core); }))
        continue;
      std::vector<int>& group = groups.emplace_back();
      std::ranges::set_intersection(sharing(how, core, system), usable, std::back_inserter(group));
    }
  }
  if (groups.empty()) {
    const int share = std::max(1, base::usable_cores({mask}) / std::max(1, ranks));
    for (rank_place& p : places) p.threads = share;
    return places;
  }
  const auto count = static_cast<int>(groups.size());
  if (how == binding::core && ranks > count)
    throw usage_error(
        "--bind core: {} ranks on {} cores: start fewer, or let them share with --bind cache, numa or none",
        ranks, count);
  const auto group_of = [&](int rank) { return how == binding::core ? rank : rank * count / ranks; };
  for (int rank = 0; rank < ranks; ++rank) {
    rank_place& p = places[static_cast<std::size_t>(rank)];
    p.cores = groups[static_cast<std::size_t>(group_of(rank))];
    int together = 0;
    for (int other = 0; other < ranks; ++other) together += group_of(other) == group_of(rank) ? 1 : 0;
    p.threads = std::max(1, static_cast<int>(p.cores.size()) / together);
  }
  return places;
}

}  // namespace tutti::launch
