// SPDX-License-Identifier: Apache-2.0
// The calls of the MPI that this file is compiled with: libtutti_mpi_*.so.
#include <mpi.h>

#include "transport/mpi/native_calls.hpp"

extern "C" __attribute__((visibility("default"))) tutti::transport::mpi::calls* tutti_mpi_calls() {
  return &native;
}
