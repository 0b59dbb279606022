// SPDX-License-Identifier: Apache-2.0
// How Asio is compiled, the same for the library and its users. Include it before Asio.
#pragma once

// Number of blocks that a thread keeps for its next operations. Asio's default of two is too few when several
// operations of a rank are in flight: each would allocate.
#ifndef BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE
#define BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE 8
#elif BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE != 8
#error \
    "tutti: Asio was included before tutti and configured otherwise. Compile everything with \
-DBOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE=8 (the CMake target tutti::tutti and pkg-config tutti do), or include tutti first."
#endif
