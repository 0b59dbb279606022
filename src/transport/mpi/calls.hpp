// SPDX-License-Identifier: Apache-2.0
// The MPI calls that tutti makes, as a table of plain functions. A module (mpi_module.cpp, built where MPI is
// installed) fills it in and is opened at run time, so neither tutti nor a program links MPI. Tests fill it
// in themselves.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::transport::mpi {

// Changes with every change of `calls`: a module of another version is rejected.
inline constexpr std::uint32_t calls_version = 1;
inline constexpr const char* calls_symbol = "tutti_mpi_calls";

// MPI handles are integers in one implementation and pointers in another; here they are words.
using communicator_word = std::uint64_t;
using request_word = std::uint64_t;
using message_word = std::uint64_t;

// Functions return MPI's error code, 0 for success. `of` is passed to each of them. Only init and finalize
// block. One thread calls at a time.
struct calls {
  std::uint32_t version = calls_version;
  void* of = nullptr;

  // Name and version of the implementation, for people.
  void (*describe)(void* of, char* into, std::size_t room) = nullptr;
  void (*explain)(void* of, int code, char* into, std::size_t room) = nullptr;

  // Whether MPI has been initialised, by anybody, and whether it has been finalised.
  int (*state)(void* of, int* initialized, int* finalized) = nullptr;
  // Initialises MPI. `usable`: this thread and others may call it, one at a time.
  int (*init)(void* of, int* usable) = nullptr;
  // For an MPI that the program has initialised. `usable`: the calling thread may call it although others
  // run.
  int (*joined)(void* of, int* usable) = nullptr;
  int (*finalize)(void* of) = nullptr;
  void (*abort)(void* of, int code) = nullptr;
  int (*place)(void* of, int* rank, int* size) = nullptr;

  // Duplicates the communicator of all processes; the duplicate returns errors. `made` is valid when the
  // request has ended.
  int (*start_duplicate)(void* of, communicator_word* made, request_word* request) = nullptr;
  int (*return_errors)(void* of, communicator_word on) = nullptr;
  // Gathers `bytes` from each process, by rank, into `all`.
  int (*start_all_gather)(void* of, communicator_word on, const void* mine, int bytes, void* all,
                          request_word* request) = nullptr;
  int (*start_barrier)(void* of, request_word* request) = nullptr;  // of all processes

  int (*start_send)(void* of, communicator_word on, const void* from, int bytes, int peer, int tag,
                    request_word* request) = nullptr;
  // Finds the next message from any process, in each sender's order. From then on only start_receive() gets
  // it.
  int (*find_message)(void* of, communicator_word on, int* found, int* peer, int* tag, int* bytes,
                      message_word* message) = nullptr;
  int (*start_receive)(void* of, message_word* message, void* into, int bytes,
                       request_word* request) = nullptr;
  // Lets all requests progress. A request that has ended is gone.
  int (*test)(void* of, request_word* request, int* ended) = nullptr;
};

// The one function of a module, named calls_symbol, with C linkage.
using calls_function = const calls* (*)();

}  // namespace tutti::transport::mpi
