// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed before the message is sent.
// EXPECT: (use of|call to).*deleted.*connect
#include <tutti/tutti.hpp>
#include <vector>

struct receiver {
  void set_value() noexcept {}
  void set_error(boost::system::error_code) noexcept {}
  void set_stopped() noexcept {}
};

void program(tutti::communicator world) {
  auto sending = world.send(std::vector<float>(4), 1).connect(receiver{});
  sending.start();
}
