// SPDX-License-Identifier: Apache-2.0
// The root would get pointers to memory of other ranks.
// EXPECT: a view .* points to memory of this rank
#include <optional>
#include <span>
#include <tutti/tutti.hpp>

struct part {
  char name[16];
  int first;
  std::optional<int> last;
  std::span<const float> values;
};
struct report {
  int epoch;
  part parts[2];
};

tutti::task<> program(tutti::communicator world) { co_await tutti::gather_object(world, report{}, 0); }
