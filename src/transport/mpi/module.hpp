// SPDX-License-Identifier: Apache-2.0
// Finding and opening the module that calls an installed MPI.
#pragma once

#include "transport/mpi/calls.hpp"

namespace tutti::transport::mpi {

// The table of TUTTI_MPI_MODULE, where that is set. Otherwise of libtutti_mpi_openmpi.so,
// libtutti_mpi_mpich.so or libtutti_mpi_other.so, first the one that belongs to the mpirun that started this
// process; each beside the program, then in the library folder beside the program's `bin`, then where tutti
// was installed. Open until the process ends. Throws errc::not_supported, saying where was looked and what to
// install.
const calls& open_module();

}  // namespace tutti::transport::mpi
