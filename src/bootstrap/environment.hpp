// SPDX-License-Identifier: Apache-2.0
// Which rank of which job this process is: init_options and the environment, checked against each other.
#pragma once

#include "core/world_info.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <tutti/init_options.hpp>
#include <tutti/tls.hpp>
#include <vector>

namespace tutti::bootstrap {

struct job {
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;  // among the ranks of this host; -1: the starter did not say
  int local_world_size = -1;
  // Where the ranks meet: rank 0 serves a store at an address, or all open a file; neither in a world of one.
  std::string master_host;
  std::uint16_t master_port = 0;
  std::string rendezvous_file;
  bool private_rendezvous = false;  // the file is in a directory that is made for the purpose
  bool at_store = false;            // in a store that the program has handed in
  int store_fd = -1;  // on rank 0, under tutti-run: a socket that listens there already; its taker owns it
  bool store_listens = false;  // since before this process began: who is refused there finds nobody later
  std::string secret;          // empty: none, loopback only
  bool checksums = false;
  std::size_t tcp_connections = core::usual_tcp_connections;  // of a link, for long messages
  tls_identity tls;                                           // null: none
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds silence_limit{0};  // zero: none
  std::chrono::milliseconds suspect_grace{0};  // likewise
  std::vector<std::string> transports;         // "shm", "tcp"; empty: all that work
  // Of this start of the program, different for every other start: what is left of another is told by it.
  // Empty: nothing says.
  std::string job_id;
  // Ranks that die are started anew, one by one, and meet the others again; this process so many times.
  bool comes_again = false;
  // Nodes come and go: ranks meet where the launcher of node 0 says who is in (elastic_store.hpp). `rank` is
  // then tutti-run's number of this process. A newcomer was started while a world ran already.
  bool elastic = false;
  bool newcomer = false;
  int restarts = 0;
  // The processes and their ranks are MPI's; rank and world_size are what the options and the environment say
  // of them, -1 where they say nothing.
  bool over_mpi = false;
  bool alone = false;  // nothing says that there are other ranks: a world of one
};

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TUTTI_SECRET, TUTTI_JOB_ID,
// TUTTI_RESTART_COUNT, TUTTI_REJOIN, TUTTI_ELASTIC, TUTTI_MASTER_PORT, TUTTI_TRANSPORTS, TUTTI_TIMEOUT, TUTTI_CHECKSUMS,
// TUTTI_TCP_CONNECTIONS, TUTTI_TLS, TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY, TUTTI_TLS_AUTHORITY, TUTTI_BACKEND,
// TUTTI_STORE_FD and TUTTI_STORE_LISTENS; without RANK, what Open MPI, MPICH (PMI) or Slurm set; what
// torchrun adds (starters.hpp). With env://, the ranks meet at
//   MASTER_ADDR and MASTER_PORT, where both are set;
//   else a file in a directory of this user, where a starter has started all ranks on one host and named the
//   job; under torchrun, whose own store listens at MASTER_PORT: likewise on one host; else at the port
//   TUTTI_MASTER_PORT, by default MASTER_PORT + 1.
// The descriptor is taken: closed on exec from here on, and its variable unset, so that no other process
// believes it has it; so is TUTTI_STORE_LISTENS, which is true of the first world only. Throws
// errc::invalid_argument for what is missing, contradictory or unknown; the text names the variables and the
// cure.
job resolve(const init_options& options);
// The same where the ranks meet in a store that the program hands in: init_method and the addresses do not
// apply, nor does the environment's rank where the options have one: a program may form several worlds. Throws
// errc::not_supported for the backend "mpi", too.
job resolve_at_store(const init_options& options);

// The job of one thread of run_local(): the environment's ranks, addresses and backend do not apply, the rest
// does. Throws as resolve() does, and errc::not_supported for the backend "mpi".
job local_job(int rank, int ranks, const init_options& options);

}  // namespace tutti::bootstrap
