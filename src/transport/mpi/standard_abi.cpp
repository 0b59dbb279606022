// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi/standard_abi.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tutti::transport::mpi::standard_abi {

#define TUTTI_MPI_FUNCTION(name, parameters) int(*name) parameters = nullptr;
TUTTI_MPI_FUNCTIONS(TUTTI_MPI_FUNCTION)
#undef TUTTI_MPI_FUNCTION

}  // namespace tutti::transport::mpi::standard_abi

using namespace tutti::transport::mpi::standard_abi;

#include "transport/mpi/native_calls.hpp"

namespace tutti::transport::mpi::standard_abi {

calls* calls_of(void* library, std::string& why) {
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr) missing = name;
    return found;
  };
#define TUTTI_MPI_FUNCTION(name, parameters) name = reinterpret_cast<int(*) parameters>(find(#name));
  TUTTI_MPI_FUNCTIONS(TUTTI_MPI_FUNCTION)
#undef TUTTI_MPI_FUNCTION
  if (missing != nullptr) {
    why = fmt::format("it has no function {}, so it is no MPI with the standard ABI", missing);
    return nullptr;
  }
  // An MPI's other library, as MPICH's libmpi.so.12, has the same functions with another ABI, and says -1.
  int major = 0;
  int minor = 0;
  if (MPI_Abi_get_version(&major, &minor) == MPI_SUCCESS && major == 1) return &native;
  why = fmt::format("it has version {}.{} of MPI's standard ABI, not 1", major, minor);
  return nullptr;
}

}  // namespace tutti::transport::mpi::standard_abi
