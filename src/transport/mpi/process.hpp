// SPDX-License-Identifier: Apache-2.0
// process: MPI in this process. It is initialised once, joined by worlds one after the other or together, and
// finalised when the program ends.
//
// MPI_Init and MPI_Finalize may block for ever if other processes do not come. A separate thread calls them,
// and tutti waits for it within a limit. In between, the loop's thread makes all calls
// (MPI_THREAD_SERIALIZED).
//
// At the end of the program (std::atexit) the processes meet in a barrier. There each goes on receiving, so
// that no sends stay behind; then MPI is finalised. Processes that do not come within the limit (the last
// world's timeout; seconds after a failure) end the job by MPI_Abort. So does a program that ends while it is
// in a world. A program that has initialised MPI itself also finalises it, after its worlds have ended.
#pragma once

#include "transport/mpi/calls.hpp"
#include "transport/mpi/wire.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::transport::mpi {

// A world that all processes have joined.
struct membership {
  wire* through = nullptr;
  std::vector<std::string> records;  // by rank, as each process gave it
};

class process {
 public:
  // Opens the module on the first call, and finishes when the program ends. Throws errc::not_supported.
  static process& of_this_one();
  // For tests, which bring calls of their own and then call finish().
  explicit process(calls& mpi);
  process(const process&) = delete;
  process& operator=(const process&) = delete;
  ~process();

  // Initialises MPI unless that has been done. Throws errc::not_supported if this MPI cannot be used from
  // here, and join_failed if it fails or the deadline passes.
  task<> start(boost::asio::any_io_executor executor, std::chrono::milliseconds timeout);
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // Name and version of the MPI.
  std::string implementation() const { return mpi_.describe(); }

  // Joins a world, after start(); all processes call it in the same order. Throws errc::join_failed.
  task<membership> join(boost::asio::any_io_executor executor, std::string record,
                        std::chrono::milliseconds timeout);

  // Ends MPI at the end of the program, if start() has initialised it.
  void finish() noexcept;

 private:
  struct keeper;
  struct attempt;
  task<> initialise(boost::asio::any_io_executor executor, std::chrono::milliseconds timeout);
  task<> ended(boost::asio::any_io_executor executor, attempt* of,
               std::chrono::steady_clock::time_point deadline);
  void check(int code, const char* doing) const;
  bool in_use() const noexcept;  // by a world

  calls& mpi_;
  std::shared_ptr<keeper> keeper_;  // null unless start() was to initialise MPI
  int rank_ = 0;
  int size_ = 1;
  bool started_ = false;
  bool finishes_at_exit_ = false;
  bool to_finish_ = false;  // start() has initialised MPI, and finish() has not begun to end it
  bool failed_ = false;     // a world could not be joined: the others cannot be expected
  std::thread::id thread_;  // the last to join
  std::chrono::milliseconds timeout_{0};
  std::vector<std::unique_ptr<attempt>> attempts_;  // MPI may write to them at any later time
  std::vector<std::unique_ptr<wire>> wires_;
};

}  // namespace tutti::transport::mpi
