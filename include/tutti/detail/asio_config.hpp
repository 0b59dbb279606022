// SPDX-License-Identifier: Apache-2.0
// How Asio is compiled: the library and its users must agree, for they share Asio's inline code. Included
// before Asio.
#pragma once

// Blocks that a thread keeps for the next operations. Two, Asio's own number, are too few where several
// operations of a rank are in flight: each would allocate.
#ifndef BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE
#define BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE 8
#elif BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE != 8
#error \
    "tutti: Asio was included before tutti and configured otherwise. Compile everything with \
-DBOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE=8 (the CMake target tutti::tutti and pkg-config tutti do), or include tutti first."
#endif
