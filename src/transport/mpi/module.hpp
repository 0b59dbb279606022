// SPDX-License-Identifier: Apache-2.0
// Finding and opening the MPI that this process runs under.
#pragma once

#include "transport/mpi/calls.hpp"

namespace tutti::transport::mpi {

// The calls of TUTTI_MPI_MODULE, where that is set: a module of tutti, or an MPI's libmpi_abi.so.1. Otherwise of
// the first of these that can be opened:
//
// 1. the MPI that the program is linked with, and no other;
// 2. libmpi_abi.so.1 in the library folder beside the mpirun that started this process;
// 3. libtutti_mpi_openmpi.so, libtutti_mpi_mpich.so or libtutti_mpi_other.so, first the one that belongs to that
//    mpirun; each beside the program, then in the library folder beside the program's `bin`, then where tutti
//    was installed;
// 4. the libmpi_abi.so.1 that the dynamic linker finds; before 3 where no mpirun started this process.
//
// Open until the process ends. Throws errc::not_supported, saying where was looked and what to install.
calls& open_module();

}  // namespace tutti::transport::mpi
