// SPDX-License-Identifier: Apache-2.0
// The table of MPI's calls for the MPI that this file is compiled with: libtutti_mpi_*.so.
#include <mpi.h>

#include "transport/mpi/call_table.hpp"

extern "C" __attribute__((visibility("default"))) const tutti::transport::mpi::calls* tutti_mpi_calls() {
  return &call_table;
}
