// SPDX-License-Identifier: Apache-2.0
// Every collective among many ranks of one host, which share memory in two levels. What works by messages there
// is called as well. A call takes long on few cores: of types, reductions, sizes and roots, fixed pseudo-random ones
// meet. TUTTI_TEST_CALLS: number of calls of each collective; default 4.
#include "coll/conformance/movement.hpp"
#include "coll/conformance/reductions.hpp"
#include "support/instrumented.hpp"
#include "support/second_loop.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstdlib>
#include <map>

using namespace tutti;
using namespace tutti::test;

namespace {

using kind = coll::operation_kind;

const std::vector<setting>& many() {
  static const std::vector<setting> all = [] {
    std::vector<setting> worlds = {{"shm", 40, ""}};
    if (!is_second_loop() && !instrumented) worlds = {{"shm", 17, ""}, {"shm", 40, ""}, {"shm", 64, ""}};
    return worlds;
  }();
  return all;
}

std::size_t calls_of_each() {
  const char* const given = std::getenv("TUTTI_TEST_CALLS");
  return given != nullptr ? std::strtoul(given, nullptr, 10) : 4;
}

// Of a rank's longest buffer: many ranks share the cores.
std::size_t most_bytes(std::size_t ranks) { return 400 * 1024 * KiB / (ranks * ranks); }

std::vector<std::size_t> affordable(std::vector<std::size_t> counts, std::size_t blocks, std::size_t ranks) {
  std::erase_if(counts,
                [=](std::size_t count) { return count * sizeof(float) * blocks > most_bytes(ranks); });
  return counts;
}

// The two levels, or what is chosen in their place, take all calls; every other algorithm takes one of them.
bool takes(algorithm a, std::size_t call, std::size_t calls) {
  return a == algorithm::automatic || call == static_cast<std::size_t>(a) % calls;
}

// The `i`-th of so many calls takes a size of that part of the list.
std::size_t one_size(const std::vector<std::size_t>& counts, std::size_t i, std::size_t calls,
                     random_numbers& numbers) {
  const std::size_t first = i * counts.size() / calls, last = (i + 1) * counts.size() / calls;
  return counts[std::min(first + numbers.below(std::max<std::size_t>(last - first, 1)), counts.size() - 1)];
}

// Sizes are chosen for floats.
std::size_t elements_of(std::size_t floats, std::size_t element_bytes) {
  return (floats * sizeof(float) + element_bytes - 1) / element_bytes;
}

task<> movements(communicator world, const setting* where) {
  using namespace movement;
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto& types = movement::cases<host_memory::buffers>();
  const std::size_t calls = calls_of_each();
  random_numbers numbers(ranks);
  std::vector<kind> kinds(std::begin(even_kinds), std::end(even_kinds));
  kinds.insert(kinds.end(), std::begin(uneven_kinds), std::end(uneven_kinds));
  constexpr lengths shapes[] = {uneven, all_at_one};
  std::deque<mover<host_memory>> movers;
  for (const auto& type : types) movers.emplace_back(world, type, &in_host_memory);
  for (const kind k : kinds) {
    const bool is_even = k < kind::scatter_v;
    const auto counts = affordable(movement::sizes_for(k, ranks, 0), k == kind::broadcast ? 1 : ranks, ranks);
    for (const algorithm a : where->algorithms(k, is_even)) {
      std::deque<movement::flight<host_memory>> flights;
      std::vector<std::size_t> by;
      for (std::size_t i = 0; i < calls; ++i) {
        if (!takes(a, i, calls)) continue;
        const std::size_t type = numbers.below(types.size());
        const std::size_t count = elements_of(one_size(counts, i, calls, numbers), types[type].element_bytes);
        const int root = has_root(k) ? static_cast<int>(numbers.below(ranks)) : 0;
        const std::vector<bool> forms = forms_of(k);
        const bool in_place = forms[numbers.below(forms.size())];
        const lengths shape = is_even ? movement::even : shapes[numbers.below(std::size(shapes))];
        by.push_back(type);
        movers[type].begin(world, flights.emplace_back(), k, a, count, shape, in_place, root);
      }
      for (std::size_t i = 0; i < by.size(); ++i) co_await movers[by[i]].finish(&flights[i]);
    }
  }
}

// One of each kind of reduction, for the numbers of ranks together.
std::vector<const reductions::one_case*> some_reductions(const setting* where, std::size_t calls,
                                                         random_numbers& numbers) {
  std::map<std::string, std::vector<const reductions::one_case*>> by_name;
  for (const reductions::one_case& c : reductions::cases())
    if (c.most_ranks >= where->ranks) by_name[c.name.substr(0, c.name.find(" of "))].push_back(&c);
  std::vector<std::vector<const reductions::one_case*>> all;
  for (const auto& [name, one] : by_name) all.push_back(one);
  std::vector<const reductions::one_case*> chosen;
  const auto before = static_cast<std::size_t>(where - many().data()) * calls;
  for (std::size_t i = 0; i < calls; ++i) {
    const auto& one = all[(before + i) % all.size()];
    chosen.push_back(one[numbers.below(one.size())]);
  }
  return chosen;
}

task<> reductions_of_many(communicator world, const setting* where) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::size_t calls = calls_of_each();
  random_numbers numbers(ranks);
  const auto chosen = some_reductions(where, calls, numbers);
  for (std::size_t i = 0; i < calls; ++i) {
    const reductions::one_case& c = *chosen[i];
    const std::size_t longest = std::max(most_bytes(ranks), 64 * KiB);
    const reductions::given_numbers<host_memory> given(world, c, longest / c.element_bytes + 1,
                                                       &in_host_memory);
    for (const kind k : reductions::kinds) {
      const bool is_scan = k == kind::scan || k == kind::exclusive_scan;
      if (is_scan && !c.has_scans) continue;
      const bool blocks = k == kind::reduce_scatter || k == kind::reduce_scatter_v;
      const auto counts = affordable(reductions::sizes_for(k, ranks, 0), blocks ? 2 * ranks : 1, ranks);
      for (const algorithm a : where->algorithms(k, k != kind::reduce_scatter_v)) {
        if (!takes(a, i, calls)) continue;
        const std::size_t count = elements_of(one_size(counts, i, calls, numbers), c.element_bytes);
        const bool in_place = numbers.one_in(2),
                   as_list = k == kind::all_reduce && in_place && numbers.one_in(2);
        reductions::flight<host_memory> one;
        given.begin(world, one, k, a, count, in_place, static_cast<int>(numbers.below(ranks)), as_list);
        co_await given.finish(&one);
      }
    }
  }
}

void run_in_many(task<> (*main)(communicator, const setting*)) {
  for (const setting& where : many()) {
    const std::string name = where.name();
    CAPTURE(name);
    CHECK_NOTHROW(run_in(where, main));
  }
}

}  // namespace

TEST_CASE("many ranks: movements, some sizes, types, shapes and roots by every algorithm") {
  run_in_many(movements);
}
TEST_CASE("many ranks: reductions, some sizes, types and roots by every algorithm") {
  run_in_many(reductions_of_many);
}
TEST_CASE("many ranks: no rank leaves a barrier before all have entered") {
  for (const setting& where : many()) {
    const std::string name = where.name();
    CAPTURE(name);
    std::atomic<int> arrived = 0;
    CHECK_NOTHROW(run_in(where, [&arrived](communicator world, const setting* here) {
      return movement::nobody_leaves_early(std::move(world), here, &in_host_memory, &arrived);
    }));
  }
}
