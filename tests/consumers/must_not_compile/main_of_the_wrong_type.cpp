// SPDX-License-Identifier: Apache-2.0
// The main of a rank is a coroutine.
// EXPECT: main of a rank returns tutti::task
#include <tutti/tutti.hpp>

int program(tutti::communicator world) { return world.rank(); }

int main() { return tutti::run(program); }
