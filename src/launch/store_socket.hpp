// SPDX-License-Identifier: Apache-2.0
// The sockets that node 0 listens on: for the launchers of the other nodes, and the one on which rank 0 will
// serve the store. The launcher binds that too, so that the port that the other ranks are told is taken from
// the start. No free port is guessed and lost before rank 0 listens. MASTER_PORT is another one, which is kept free for
// what rank 0 itself serves, such as PyTorch's store.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <optional>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/options.hpp"

namespace tutti::launch {

// Opens the store socket (listening, blocking, closed on exec) at `master`, or on a free port of the loopback
// interface. Blocks for at most `timeout` while the name of `master` does not resolve. Throws
// std::runtime_error with a text for the user.
base::unique_fd open_store_socket(const std::optional<host_and_port>& master,
                                  std::chrono::milliseconds timeout);

// Opens sockets for the launchers of the other nodes: at all addresses of this host that `master` means, or
// at any address if this host knows the name as loopback only. Not empty. Blocks and throws as above.
std::vector<base::unique_fd> open_rendezvous_sockets(const host_and_port& master,
                                                     std::chrono::milliseconds timeout);
// Opens the store socket of a job over several nodes: at the address of a rendezvous, on a free port.
base::unique_fd open_store_socket_beside(const boost::asio::ip::address& rendezvous);
// Keeps a port that is free at all addresses of this host, without listening: the kernel gives it to no socket that asks
// for any port, and a server that sets SO_REUSEADDR, as most do, can listen there. Throws std::runtime_error.
base::unique_fd reserve_port();
int port_of(const base::unique_fd& bound);

}  // namespace tutti::launch
