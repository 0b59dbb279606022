// SPDX-License-Identifier: Apache-2.0
// Joining the world of an MPI job: the processes and their ranks are MPI's, and so is every message between
// them.
#include "base/log.hpp"
#include "bootstrap/cards.hpp"
#include "bootstrap/rendezvous.hpp"
#include "comm/runtime_state.hpp"
#include "flight/recordings.hpp"
#include "transport/mpi/mpi_transport.hpp"
#include "transport/mpi/process.hpp"
#include "transport/self/self_transport.hpp"

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

// A table of one: the world's id is the one in rank 0's.
std::string card_of(const core::peer_card& mine, std::uint64_t id) {
  bootstrap::world_table table;
  table.id = id;
  table.cards.push_back(mine);
  table.cards.front().rank = 0;
  return bootstrap::encode_table(table);
}

core::world_info world_of(const mpi::membership& joined) {
  core::world_info info;
  info.rank = joined.rank;
  info.size = joined.size;
  for (const std::string& card : joined.cards) {
    bootstrap::world_table table = bootstrap::decode_table(card, 1);
    if (info.peers.empty()) info.id = table.id;
    table.cards.front().rank = static_cast<int>(info.peers.size());
    info.peers.push_back(std::move(table.cards.front()));
  }
  return info;
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
  const core::peer_card mine = bootstrap::local_card(here.rank());
  const std::string card = card_of(mine, loop_.engine().env().random());
  const mpi::membership joined = co_await here.join(executor, card, job.timeout);

  core::world_info info = world_of(joined);
  info.secret = job.secret;
  info.timeout = job.timeout;
  std::vector<std::unique_ptr<transport::transport>> ways;
  ways.push_back(std::make_unique<transport::self::self_transport>(loop_));
  ways.push_back(std::make_unique<mpi::mpi_transport>(loop_, *joined.through));
  co_return enter(std::move(info), std::move(ways), nullptr);
}

}  // namespace tutti::comm
