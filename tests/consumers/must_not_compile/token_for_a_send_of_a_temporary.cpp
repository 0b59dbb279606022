// SPDX-License-Identifier: Apache-2.0
// The buffer would be destroyed before the message is sent.
// EXPECT: (use of|call to).*deleted.*operation_on_temporary
#include <boost/asio/use_future.hpp>
#include <tutti/tutti.hpp>
#include <vector>

void program(tutti::communicator world) {
  std::future<void> sent = world.send(std::vector<float>(4), 1)(boost::asio::use_future);
  sent.get();
}
