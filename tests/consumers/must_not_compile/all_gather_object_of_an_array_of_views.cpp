// SPDX-License-Identifier: Apache-2.0
// Other ranks would get pointers to memory of this rank.
// EXPECT: a view .* points to memory of this rank
#include <array>
#include <string_view>
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  const std::array<std::string_view, 2> names{"one", "two"};
  co_await tutti::all_gather_object(world, names);
}
