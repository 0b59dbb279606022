// SPDX-License-Identifier: Apache-2.0
// Joins the world of an MPI job: processes, ranks and messages are MPI's.
#include "base/log.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/rendezvous.hpp"
#include "comm/runtime_state.hpp"
#include "flight/recordings.hpp"
#include "transport/mpi/mpi_transport.hpp"
#include "transport/mpi/process.hpp"

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti::comm {
namespace {

namespace mpi = transport::mpi;

void check_place(const bootstrap::job& job, const mpi::process& here) {
  const bool size_agrees = job.world_size == -1 || job.world_size == here.size();
  const bool rank_agrees = job.rank == -1 || job.rank == here.rank();
  if (size_agrees && rank_agrees) return;
  const std::string said = size_agrees ? fmt::format("this is rank {}", job.rank)
                                       : fmt::format("there are {} ranks", job.world_size);
  throw error(
      errc::join_failed,
      fmt::format(
          "{} says that this is process {} of {}, but the options or the environment say that {}: start the "
          "program with the mpirun of that MPI and nothing else (mpirun -n 4 ./program; not with tutti-run, "
          "nor with another MPI's mpirun, for which TUTTI_MPI_MODULE names another module)",
          here.implementation(), here.rank(), here.size(), said));
}

// A peer table of one: the world's id is the one in rank 0's record.
std::string record_of(const core::endpoint_record& mine, std::uint64_t id) {
  bootstrap::peer_table table;
  table.id = id;
  table.records.push_back(mine);
  table.records.front().rank = 0;
  return bootstrap::encode_table(table);
}

// The records of all processes, in the order of their ranks.
bootstrap::peer_table table_of(const mpi::membership& joined) {
  bootstrap::peer_table all;
  for (const std::string& record : joined.records) {
    bootstrap::peer_table one = bootstrap::decode_table(record, 1);
    if (all.records.empty()) all.id = one.id;
    one.records.front().rank = static_cast<int>(all.records.size());
    all.records.push_back(std::move(one.records.front()));
  }
  return all;
}

}  // namespace

task<communicator> runtime_state::join_mpi(bootstrap::job job) {
  mpi::process& here = mpi::process::of_this_one();
  const boost::asio::any_io_executor executor = loop_.executor();
  co_await here.start(executor, job.timeout);
  base::set_log_rank(here.size() > 1 ? here.rank() : -1);
  flight::explain_at_signal();
  loop_.recorder().joining(here.rank(), here.size());
  check_place(job, here);
  const core::endpoint_record mine = bootstrap::local_endpoint_record(here.rank());
  const std::string record = record_of(mine, loop_.engine().platform().random());
  const mpi::membership joined = co_await here.join(executor, record, job.timeout);

  job.rank = here.rank();
  std::vector<std::unique_ptr<transport::transport>> ways;
  ways.push_back(transport::make_self_transport(loop_));
  ways.push_back(std::make_unique<mpi::mpi_transport>(loop_, *joined.through));
  co_return enter(bootstrap::world_of(job, table_of(joined)), std::move(ways), nullptr);
}

}  // namespace tutti::comm
