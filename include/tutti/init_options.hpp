// SPDX-License-Identifier: Apache-2.0
// init_options: how a program's world is formed. Every option has a default from the environment.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti {

// The arguments of joining a world.
struct init_options {
  // User-provided, so that this is no aggregate: g++ 12 destroys braced temporaries in co_await expressions
  // twice.
  init_options();

  // How the ranks meet.
  //   "env://"           at MASTER_ADDR and MASTER_PORT, where rank 0 listens. Without these, if mpirun or
  //                      srun started all ranks on one host: at a file of this user
  //   "tcp://host:port"  at this address, where rank 0 listens. The others try all addresses of the host name
  //                      until the timeout. IPv6 addresses stand in brackets
  //   "file:///path"     at a file that all ranks see, on this host or a network file system with locks. A
  //                      file left by an earlier run does no harm. The last rank to come removes the file
  //   "etcd://host:port[,host:port]/JOB"
  //                      in an etcd cluster, under this name of the job (etcd_store). An earlier run's keys do no
  //                      harm. TUTTI_STORE has the same effect on a program that leaves "env://"
  std::string init_method = "env://";
  // This rank's number and the number of ranks. -1 takes them from the environment: RANK and WORLD_SIZE, or
  // the variables of mpirun or srun. A value given both here and in the environment must be the same.
  int rank = -1;
  int world_size = -1;
  // Timeout of joining, and default of every operation: TUTTI_TIMEOUT (in seconds), else this, else 10 minutes.
  std::chrono::milliseconds timeout;
  // "native" uses tutti's own transports. "mpi" uses the processes that mpirun started and its MPI: one with
  // the standard ABI, or one that tutti was built with. Rank and world_size then come from MPI; init_method,
  // transports and secret have no effect. All processes must call init equally often. TUTTI_BACKEND=mpi
  // selects it for a program that leaves the default.
  std::string backend = "native";
  // Transports to use, a subset of {"shm", "ucx", "tcp"}. Empty: TUTTI_TRANSPORTS (comma-separated), or shared
  // memory on a host, and between hosts UCX if they have RDMA devices, else TCP. With "ucx" also where UCX finds
  // none; not together with `tls`. A value given both here and in the environment must be the same.
  std::vector<std::string> transports;
  // How long a host may leave messages and probes unanswered before its ranks count as dead. Only hosts of
  // ranks that an operation waits for are watched. Such operations then end with errc::peer_failed. A host
  // answers while its ranks compute, are stopped or do not read. At least 500 ms; zero disables the limit.
  // TUTTI_SILENCE_LIMIT (in seconds, or "off") overrides it.
  std::chrono::milliseconds silence_limit;
  // How long a rank that an operation waits for may be stopped (SIGSTOP, a debugger) before it counts as
  // dead. Applies to ranks on this host, and to ranks on other hosts that tutti-run started. Zero disables
  // it. TUTTI_SUSPECT_GRACE (in seconds, or "off") overrides it.
  std::chrono::milliseconds suspect_grace;
  // A secret text, the same on all ranks, by which they authenticate each other. Empty: TUTTI_SECRET, which
  // tutti-run sets. Without a secret tutti listens on loopback only, so all ranks must be on one host.
  std::string secret;
  // Adds a checksum (CRC-32C) to every payload sent over TCP; the same on all ranks. Frame headers always
  // have one. A damaged payload is not delivered: the connection is reset, and operations that wait for that
  // rank end with errc::protocol. TUTTI_CHECKSUMS=1 enables it for a program that leaves the default.
  // Cost: reads the payload once more on each side.
  bool checksums = false;
  // Encrypts TCP connections, including those to the store, with TLS 1.3: nobody in between can read or
  // change anything. The same on all ranks. The secret authenticates the ranks; without the files below each
  // process makes its own certificate. TUTTI_TLS=1 enables it for a program that leaves the default, and for
  // tutti-run, which also serves the store of a job whose nodes come and go.
  bool tls = false;
  // PEM files of the certificate, its key and the authority: all three or none; see make_tls_identity(). "%r"
  // in a name stands for the rank. Empty: TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY, TUTTI_TLS_AUTHORITY.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_authority;
};

}  // namespace tutti
