// SPDX-License-Identifier: Apache-2.0
// Other ranks would get a pointer to memory of the root.
// EXPECT: a view .* points to memory of this rank
#include <optional>
#include <string_view>
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  std::optional<std::string_view> name;
  if (world.rank() == 0) name = "root";
  name = co_await tutti::broadcast_object(world, name, 0);
}
