// SPDX-License-Identifier: Apache-2.0
// What tutti/communicator.hpp includes, and thus every program.
#include <tutti/detail/same_build.hpp>

int main() {}
