// SPDX-License-Identifier: Apache-2.0
// Complex numbers have no order.
// EXPECT: this reduction does not fit this element type
#include <complex>
#include <tutti/tutti.hpp>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  std::vector<std::complex<float>> spectrum(4);
  co_await world.all_reduce(spectrum, tutti::min);
}
