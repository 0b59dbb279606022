// SPDX-License-Identifier: Apache-2.0
// MPI in a process: initialised once, worlds joined, finalised together, and every wait bounded.
#include "transport/mpi/process.hpp"

#include "support/run_task.hpp"
#include "transport/mpi_fabric.hpp"

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <string>
#include <thread>
#include <tutti/error.hpp>
#include <vector>

namespace {

namespace mpi = tutti::transport::mpi;
using namespace std::chrono_literals;
using tutti::test::failure;

tutti::task<> join(mpi::process* p, boost::asio::any_io_executor executor, std::string record,
                   std::chrono::milliseconds timeout, mpi::membership* result) {
  co_await p->start(executor, timeout);
  *result = co_await p->join(executor, record, timeout);
}

failure try_to_join(mpi::process& p, std::chrono::milliseconds timeout, mpi::membership& result,
                    const std::string& record = "record") {
  boost::asio::io_context context(1);
  return tutti::test::failure_of(
      [&] { tutti::test::run_task(context, join(&p, context.get_executor(), record, timeout, &result)); });
}

}  // namespace

TEST_CASE("mpi: processes join worlds in sequence, and finish together") {
  constexpr int size = 3;
  mpi_test::fabric fabric(size);
  const std::vector<failure> failures = tutti::test::run_threads(size, [&](int rank) {
    mpi::process process(fabric.calls_of(rank));
    for (int round = 0; round < 2; ++round) {
      mpi::membership joined;
      const std::string record(static_cast<std::size_t>(100 * rank + round), static_cast<char>('a' + rank));
      const failure f = try_to_join(process, 30s, joined, record);
      if (f.code != tutti::errc::success) throw std::runtime_error(f.text);
      if (process.rank() != rank || process.size() != size || joined.records.size() != size)
        throw std::runtime_error("place");
      for (int peer = 0; peer < size; ++peer)
        if (joined.records[static_cast<std::size_t>(peer)] !=
            std::string(static_cast<std::size_t>(100 * peer + round), static_cast<char>('a' + peer)))
          throw std::runtime_error("record of " + std::to_string(peer));
      // A message that no rank receives; finishing receives it.
      joined.through->send((rank + 1) % size, 0, std::vector<std::byte>(5000), {});
      joined.through->close(true);
    }
    process.finish();
  });
  for (const failure& f : failures) CHECK(f.text == "");
  for (int rank = 0; rank < size; ++rank) {
    CHECK(fabric.life_of(rank).finalized == 1);
    CHECK(fabric.life_of(rank).aborted == 0);
  }
  CHECK(fabric.undelivered() == 0);
}

TEST_CASE("mpi: a wait for others that do not come ends in time with an error") {
  // Never destroyed, because a hanging thread stays in it, like in an MPI that hangs.
  static mpi_test::fabric& fabric = *new mpi_test::fabric(2);
  mpi::membership joined;
  {
    mpi::process process(fabric.calls_of(0));
    const failure f = try_to_join(process, 500ms, joined);
    CHECK(f.code == tutti::errc::join_failed);
    CHECK(f.says("not all 2 processes of the MPI job have joined in time"));
  }
  // Initialisation never completes.
  fabric.life_of(1).init_hangs = true;
  mpi::process process(fabric.calls_of(1));
  const failure f = try_to_join(process, 50ms, joined);
  CHECK(f.code == tutti::errc::join_failed);
  CHECK(f.says("MPI_Init has not returned within 50 ms"));
  process.finish();  // does not wait either
  CHECK(fabric.life_of(1).finalized == 0);
}

TEST_CASE("mpi: the job is aborted if a process ends in a world, or the others do not finish") {
  mpi_test::fabric fabric(1);
  {
    mpi::process process(fabric.calls_of(0));
    mpi::membership joined;
    CHECK(try_to_join(process, 2s, joined).text == "");
    process.finish();
    CHECK(fabric.life_of(0).aborted == 1);
    CHECK(fabric.life_of(0).finalized == 0);
    fabric.life_of(0).aborted = 0;
    joined.through->close(true);
    fabric.life_of(0).barrier_hangs = true;
    process.finish();
    CHECK(fabric.life_of(0).aborted == 1);
    CHECK(fabric.life_of(0).finalized == 0);
  }
}

TEST_CASE("mpi: an MPI that the program has initialised is used, and not finalised") {
  mpi_test::fabric fabric(1);
  fabric.life_of(0).initialized = 1;
  mpi::process process(fabric.calls_of(0));
  mpi::membership joined;
  CHECK(try_to_join(process, 30s, joined).text == "");
  joined.through->close(true);
  process.finish();
  CHECK(fabric.life_of(0).finalized == 0);

  mpi_test::fabric other(2);
  other.life_of(0).initialized = 1;
  other.life_of(0).usable = 0;
  mpi::process refused(other.calls_of(0));
  failure f = try_to_join(refused, 30s, joined);
  CHECK(f.code == tutti::errc::not_supported);
  CHECK(f.says("use MPI_Init_thread with MPI_THREAD_SERIALIZED"));

  other.life_of(1).initialized = other.life_of(1).finalized = 1;
  mpi::process late(other.calls_of(1));
  f = try_to_join(late, 30s, joined);
  CHECK(f.code == tutti::errc::not_supported);
  CHECK(f.says("MPI has been finalised"));
}

TEST_CASE("mpi: an MPI that cannot be initialised or lacks threads is refused with the reason") {
  mpi_test::fabric fabric(2);
  mpi::membership joined;
  fabric.life_of(0).init_code = 7;
  mpi::process broken(fabric.calls_of(0));
  failure f = try_to_join(broken, 30s, joined);
  CHECK(f.code == tutti::errc::not_supported);
  CHECK(f.says("MPI_Init failed: fabric error 7"));
  broken.finish();
  CHECK(fabric.life_of(0).finalized == 0);

  fabric.life_of(1).usable = 0;
  mpi::process unthreaded(fabric.calls_of(1));
  f = try_to_join(unthreaded, 30s, joined);
  CHECK(f.code == tutti::errc::not_supported);
  CHECK(f.says("MPI_THREAD_SERIALIZED"));
}
