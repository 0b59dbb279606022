// SPDX-License-Identifier: Apache-2.0
// The part of MPI's standard ABI that tutti uses, by declarations of its own, opened at run time. So nothing of
// an MPI is needed to build, and one binary runs over every MPI that has the ABI: MPICH 5, Intel MPI 2021.19.
//
// The types and numbers are those of chapter 21 and appendix A of the MPI standard, version 5.0. A test compares
// them with mpi_abi.h where that is installed.
#pragma once

#include <cstdint>

namespace tutti::transport::mpi::standard_abi {

// In the ABI a handle is a pointer to an incomplete type; predefined handles are small numbers.
enum class MPI_Comm : std::intptr_t {};
enum class MPI_Datatype : std::intptr_t {};
enum class MPI_Errhandler : std::intptr_t {};
enum class MPI_Message : std::intptr_t {};
enum class MPI_Request : std::intptr_t {};

struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int MPI_internal[5];
};

inline constexpr MPI_Comm MPI_COMM_WORLD{0x101};
inline constexpr MPI_Message MPI_MESSAGE_NULL{0x128};
inline constexpr MPI_Errhandler MPI_ERRORS_RETURN{0x143};
inline constexpr MPI_Request MPI_REQUEST_NULL{0x180};
inline constexpr MPI_Datatype MPI_BYTE{0x247};
inline constexpr MPI_Status* MPI_STATUS_IGNORE = nullptr;

inline constexpr int MPI_SUCCESS = 0;
inline constexpr int MPI_ANY_SOURCE = -1;
inline constexpr int MPI_ANY_TAG = -2;
inline constexpr int MPI_THREAD_SINGLE = 0;
inline constexpr int MPI_THREAD_FUNNELED = 1024;
inline constexpr int MPI_THREAD_SERIALIZED = 2048;
inline constexpr int MPI_MAX_ERROR_STRING = 512;
inline constexpr int MPI_MAX_LIBRARY_VERSION_STRING = 8192;

// X(function, parameters); each answers an int.
#define TUTTI_MPI_FUNCTIONS(X)                                                                          \
  X(MPI_Abi_get_version, (int*, int*))                                                                  \
  X(MPI_Get_library_version, (char*, int*))                                                             \
  X(MPI_Error_string, (int, char*, int*))                                                               \
  X(MPI_Initialized, (int*))                                                                            \
  X(MPI_Finalized, (int*))                                                                              \
  X(MPI_Init_thread, (int*, char***, int, int*))                                                        \
  X(MPI_Query_thread, (int*))                                                                           \
  X(MPI_Is_thread_main, (int*))                                                                         \
  X(MPI_Finalize, ())                                                                                   \
  X(MPI_Abort, (MPI_Comm, int))                                                                         \
  X(MPI_Comm_rank, (MPI_Comm, int*))                                                                    \
  X(MPI_Comm_size, (MPI_Comm, int*))                                                                    \
  X(MPI_Comm_set_errhandler, (MPI_Comm, MPI_Errhandler))                                                \
  X(MPI_Comm_idup, (MPI_Comm, MPI_Comm*, MPI_Request*))                                                 \
  X(MPI_Iallgather, (const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm, MPI_Request*)) \
  X(MPI_Ibarrier, (MPI_Comm, MPI_Request*))                                                             \
  X(MPI_Isend, (const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*))                      \
  X(MPI_Improbe, (int, int, MPI_Comm, int*, MPI_Message*, MPI_Status*))                                 \
  X(MPI_Get_count, (const MPI_Status*, MPI_Datatype, int*))                                             \
  X(MPI_Imrecv, (void*, int, MPI_Datatype, MPI_Message*, MPI_Request*))                                 \
  X(MPI_Test, (MPI_Request*, int*, MPI_Status*))

// Those of the library that open_module() has opened.
#define TUTTI_MPI_FUNCTION(name, parameters) inline int(*name) parameters = nullptr;
TUTTI_MPI_FUNCTIONS(TUTTI_MPI_FUNCTION)
#undef TUTTI_MPI_FUNCTION

inline constexpr const char* library_name = "libmpi_abi.so.1";

}  // namespace tutti::transport::mpi::standard_abi
