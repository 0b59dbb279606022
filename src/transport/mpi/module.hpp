// SPDX-License-Identifier: Apache-2.0
// Finds and opens the module that calls an installed MPI.
#pragma once

#include "transport/mpi/calls.hpp"

namespace tutti::transport::mpi {

// Returns the table of TUTTI_MPI_MODULE if set. Otherwise that of libtutti_mpi_openmpi.so,
// libtutti_mpi_mpich.so or libtutti_mpi_other.so, first the one that belongs to the mpirun that started this
// process. Each is searched beside the program, in the library folder beside the program's `bin`, and where
// tutti was installed. It stays open until the process ends. Throws errc::not_supported, saying where it
// searched and what to install.
const calls& open_module();

}  // namespace tutti::transport::mpi
