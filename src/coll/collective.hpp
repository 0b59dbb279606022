// SPDX-License-Identifier: Apache-2.0
// What an algorithm works with: the communicator, its place in the order of collectives, and transfers between ranks.
//
// An algorithm is a coroutine on these transfers. Its frame is recycled, its temporary memory is on loan from the
// communicator: in steady state nothing is allocated. Destroying the frame takes every transfer back.
#pragma once

#include "comm/communicator_state.hpp"
#include "p2p/transfer.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::coll {

class collective {
 public:
  collective(comm::communicator_state& c, std::uint32_t sequence, const p2p::fingerprint& print) noexcept
      : comm_(&c), sequence_(sequence), print_(print) {}

  int rank() const noexcept { return comm_->rank(); }
  int size() const noexcept { return comm_->size(); }
  comm::scratch_pool& scratch() const noexcept { return comm_->scratch(); }

  // Transfers of one collective between the same two ranks match in the order in which they are started.
  p2p::sending send(int rank, const void* data, std::size_t bytes) const noexcept {
    return p2p::sending(comm_->endpoint(), comm_->collective_context(), comm_->world_rank(rank),
                        static_cast<int>(sequence_), data, bytes, print_);
  }
  p2p::receiving receive(int rank, void* data, std::size_t bytes) const noexcept {
    return p2p::receiving(comm_->endpoint(), comm_->collective_context(), comm_->world_rank(rank),
                          static_cast<int>(sequence_), data, bytes, print_);
  }

 private:
  comm::communicator_state* comm_;
  std::uint32_t sequence_;
  p2p::fingerprint print_;
};

}  // namespace tutti::coll
