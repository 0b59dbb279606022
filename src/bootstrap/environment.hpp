// SPDX-License-Identifier: Apache-2.0
// Which rank of which job this process is: init_options and the environment, checked against each other.
#pragma once

#include "core/world_info.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <tutti/init_options.hpp>
#include <tutti/tls.hpp>

namespace tutti::bootstrap {

// In a world of more ranks each learns at the start the endpoint records of its own host only, and asks for the others
// when it connects. Where rank 0 serves the store, more are told at once: without it no rank could ask.
inline constexpr int most_records_at_once = 256;
inline constexpr int most_records_of_rank_0 = 1024;

struct job : core::world_settings {
  int rank = 0;
  int world_size = 1;
  // Where the ranks meet: rank 0 serves a store at an address, or all open a file or go to etcd (an URL of
  // etcd_store, and with what it is authenticated). None in a world of one.
  std::string master_host;
  std::uint16_t master_port = 0;
  std::string rendezvous_file;
  std::string etcd;
  tls_identity tls_of_etcd;
  bool private_rendezvous = false;  // the file is in a directory made for the purpose
  bool at_store = false;            // in a store that the program has passed in
  int store_fd = -1;  // on rank 0, under tutti-run: a socket that already listens there; its taker owns it
  // since before this process started: a refused rank will find no listener later
  bool store_listens = false;
  // Where the launcher of this node passes requests on to the store; 0: nowhere.
  std::uint16_t store_relay = 0;
  int records_at_once = most_records_at_once;
  std::set<std::string> transports;  // "shm", "ucx", "tcp"; empty: all that work
  // Identifies this start of the program, different for every other start, so that leftovers of another are
  // recognised. Empty: unknown.
  std::string job_id;
  // Ranks that die are restarted one by one, and meet the others again; this process so many times.
  bool comes_again = false;
  // Nodes come and go: ranks meet where a launcher says who is in (elastic_store.hpp), at node 0 or in etcd. `rank` is
  // then tutti-run's number of this process. A newcomer was started while a world already ran.
  bool elastic = false;
  bool newcomer = false;
  int restarts = 0;
  // Processes and ranks are MPI's. rank and world_size are what the options and the environment say of them,
  // or -1.
  bool over_mpi = false;
  bool alone = false;  // nothing says that there are other ranks: a world of one
};

// Determines the job of this process from the variables in base/env.cpp. Without RANK it reads those of
// Open MPI, MPICH (PMI) or Slurm; it also reads those that torchrun adds (starters.hpp). With env://, the ranks
// meet at the first of these that applies:
//   TUTTI_STORE, in etcd;
//   MASTER_ADDR and MASTER_PORT, if both are set; the port of tutti-run's store in place of the MASTER_PORT that
//   tutti-run sets;
//   a file in a directory of this user, if a starter has started all ranks on one host and named the job;
//   under torchrun, whose own store listens at MASTER_PORT: likewise on one host; otherwise the port
//   TUTTI_MASTER_PORT, by default MASTER_PORT + 1.
// The descriptor is taken: it is closed on exec from here on, and its variable is unset, so that no other
// process uses it. If it was closed on the way here, the launcher passes it again (store_handover.hpp). TUTTI_STORE_LISTENS is unset too, because it is true of the first world only. Throws
// errc::invalid_argument for missing, contradictory or unknown settings; the text names the variables and the
// cure.
job resolve(const init_options& options);
// The same if the ranks meet in a store that the program passes in. init_method and the addresses have no
// effect, nor has the environment's rank if the options have one: a program may form several worlds. Also
// throws errc::not_supported for the backend "mpi".
job resolve_at_store(const init_options& options);

// The job of one thread of run_local(). The environment's ranks, addresses and backend have no effect; its
// other settings do. Throws as resolve(), and errc::not_supported for the backend "mpi".
job local_job(int rank, int ranks, const init_options& options);

// The TLS identity of a launcher, by the variables of its ranks; "%r" stands for "launcher". Null: no TLS.
// Throws as make_tls_identity().
tls_identity launcher_tls();
// The one with which it goes to an etcd.
tls_identity launcher_tls_of_etcd(const std::string& url);

}  // namespace tutti::bootstrap
