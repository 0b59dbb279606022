// SPDX-License-Identifier: Apache-2.0
// The MPI calls, by the functions of MPI's C interface that the including file has declared: those of <mpi.h>
// (mpi_module.cpp), or those of standard_abi.hpp. Only these, and nothing of tutti but calls.hpp.
#pragma once

#include "transport/mpi/calls.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace {

using tutti::transport::mpi::communicator_word;
using tutti::transport::mpi::message_word;
using tutti::transport::mpi::request_word;

template <class Handle>
std::uint64_t to_word(Handle handle) noexcept {
  static_assert(sizeof(Handle) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &handle, sizeof handle);
  return word;
}

template <class Handle>
Handle from_word(std::uint64_t word) noexcept {
  Handle handle;
  std::memcpy(&handle, &word, sizeof handle);
  return handle;
}

// Calls `start` with a request, and stores that whatever came of it.
template <class Start>
int started(request_word* into, Start start) noexcept {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = start(&request);
  *into = to_word(request);
  return code;
}

class native_calls final : public tutti::transport::mpi::calls {
 public:
  std::string describe() override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    // "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.0.2\nMPICH Release date: ...": the first line, up
    // to a comma.
    std::string first(text, std::strcspn(text, ",\n"));
    std::ranges::replace(first, '\t', ' ');
    return first;
  }

  std::string explain(int code) override {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
    return {text, std::strcspn(text, "\n")};
  }

  int state(int* initialized, int* finalized, int* usable) override {
    int provided = MPI_THREAD_SINGLE;
    int is_main = 0;
    int code = MPI_Initialized(initialized);
    if (code == MPI_SUCCESS) code = MPI_Finalized(finalized);
    if (code != MPI_SUCCESS || *initialized == 0 || *finalized != 0) return code;
    code = MPI_Query_thread(&provided);
    if (code == MPI_SUCCESS) code = MPI_Is_thread_main(&is_main);
    *usable = provided >= MPI_THREAD_SERIALIZED || (provided == MPI_THREAD_FUNNELED && is_main != 0) ? 1 : 0;
    return code;
  }

  int init(int* usable) override {
    int provided = MPI_THREAD_SINGLE;
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    if (code != MPI_SUCCESS) return code;
    *usable = provided >= MPI_THREAD_SERIALIZED ? 1 : 0;
    return MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

  int finalize() override { return MPI_Finalize(); }
  void abort(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }

  int rank_and_size(int* rank, int* size) override {
    const int code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return code != MPI_SUCCESS ? code : MPI_Comm_size(MPI_COMM_WORLD, size);
  }

  // MPI may write the handle as late as when the request ends: into the front of the caller's word.
  int start_duplicate(communicator_word* made, request_word* request) override {
    *made = 0;
    return started(request, [&](MPI_Request* r) {
      return MPI_Comm_idup(MPI_COMM_WORLD, reinterpret_cast<MPI_Comm*>(made), r);
    });
  }

  int return_errors(communicator_word on) override {
    return MPI_Comm_set_errhandler(from_word<MPI_Comm>(on), MPI_ERRORS_RETURN);
  }

  int start_all_gather(communicator_word on, const void* mine, int bytes, void* all,
                       request_word* request) override {
    return started(request, [&](MPI_Request* r) {
      return MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, from_word<MPI_Comm>(on), r);
    });
  }

  int start_barrier(request_word* request) override {
    return started(request, [&](MPI_Request* r) { return MPI_Ibarrier(MPI_COMM_WORLD, r); });
  }

  int start_send(communicator_word on, const void* from, int bytes, int peer, int tag,
                 request_word* request) override {
    return started(request, [&](MPI_Request* r) {
      return MPI_Isend(from, bytes, MPI_BYTE, peer, tag, from_word<MPI_Comm>(on), r);
    });
  }

  int find_message(communicator_word on, int* found, int* peer, int* tag, int* bytes,
                   message_word* message) override {
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    const int code =
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, from_word<MPI_Comm>(on), found, &handle, &status);
    if (code != MPI_SUCCESS || *found == 0) return code;
    *peer = status.MPI_SOURCE;
    *tag = status.MPI_TAG;
    *message = to_word(handle);
    return MPI_Get_count(&status, MPI_BYTE, bytes);
  }

  int start_receive(message_word* message, void* into, int bytes, request_word* request) override {
    MPI_Message handle = from_word<MPI_Message>(*message);
    return started(request, [&](MPI_Request* r) { return MPI_Imrecv(into, bytes, MPI_BYTE, &handle, r); });
  }

  int test(request_word* request, int* ended) override {
    MPI_Request handle = from_word<MPI_Request>(*request);
    const int code = MPI_Test(&handle, ended, MPI_STATUS_IGNORE);
    *request = to_word(handle);
    return code;
  }
};

native_calls native;

}  // namespace
