// SPDX-License-Identifier: Apache-2.0
// What a program may say about how its world is formed; everything has a default from the environment.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti {

struct init_options {
  // Not an aggregate: g++ 12 destroys braced temporaries in co_await expressions twice.
  init_options();

  // How the ranks meet.
  //   "env://"           at MASTER_ADDR and MASTER_PORT, where rank 0 listens; without them, where mpirun or
  //                      srun has started all ranks on one host, at a file of this user
  //   "tcp://host:port"  there, where rank 0 listens; the others try all addresses that the host's name has,
  //                      until the timeout. IPv6 addresses in brackets
  //   "file:///path"     at a file that all see, this host's or a network file system's (with locks). What an
  //                      earlier run has left there is in nobody's way, and the last to come takes the file
  //                      away
  std::string init_method = "env://";
  // -1: from the environment, that is from RANK and WORLD_SIZE or what mpirun or srun have set. When a value
  // is given here and in the environment, they must agree.
  int rank = -1;
  int world_size = -1;
  // Of joining, and the default of every operation. 10 minutes, unless set; TUTTI_TIMEOUT (in seconds)
  // overrides both.
  std::chrono::milliseconds timeout;
  // "native": tutti's own transports. "mpi": the processes that mpirun has started, over its MPI: one with the
  // standard ABI, or one that tutti was built with; rank and world_size are MPI's, init_method, transports and
  // secret have no part in it, and all processes call init as often as each other. TUTTI_BACKEND=mpi says the
  // same for a program that says nothing.
  std::string backend = "native";
  // Subset of {"shm", "tcp"}; empty: TUTTI_TRANSPORTS (comma-separated), and without that all that work. When
  // a value is given here and in the environment, they must agree.
  std::vector<std::string> transports;
  // For how long the host of a rank that is waited for may say nothing, although it is asked, before the rank
  // counts as dead: what waits for it then ends with errc::peer_failed. A host answers while its ranks
  // compute, are stopped or do not read. At least 500 ms; zero: never. TUTTI_SILENCE_LIMIT (in seconds, or
  // "off") overrides it.
  std::chrono::milliseconds silence_limit;
  // For how long a rank that is waited for may be stopped (SIGSTOP, a debugger) before it counts as dead: on
  // this host, and on others where tutti-run has started it. Zero: never. TUTTI_SUSPECT_GRACE (in seconds, or
  // "off") overrides it.
  std::chrono::milliseconds suspect_grace;
  // The same text on all ranks, known to nobody else. Empty: TUTTI_SECRET, which tutti-run sets. Without one,
  // tutti listens on loopback only, so that all ranks must be on one host.
  std::string secret;
  // Every payload that goes over TCP has a checksum (CRC-32C), and is not delivered when it does not fit: the
  // connection is reset, and what waits for that rank ends with errc::protocol. The headers of frames always
  // have one. The same on all ranks. TUTTI_CHECKSUMS=1 says the same for a program that says nothing. Costs
  // reading the payload once more on each side.
  bool checksums = false;
  // Connections over TCP, also to the store, are encrypted (TLS 1.3), and nobody in between can read or
  // change anything. The same on all ranks. Without the files below each process makes itself a certificate;
  // the secret is what ranks know each other by. TUTTI_TLS=1 says the same for a program that says nothing.
  bool tls = false;
  // Files in PEM, all three or none; see make_tls_identity(). Empty: TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY,
  // TUTTI_TLS_AUTHORITY. "%r" in a name stands for the rank.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_authority;
};

}  // namespace tutti
