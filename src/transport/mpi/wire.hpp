// SPDX-License-Identifier: Apache-2.0
// wire: messages between the processes of one duplicated MPI communicator, each in a parcel of memory that
// the wire owns.
//
// MPI owns the memory of a send or receive until the operation ends, which needs progress of the peer.
// Cancelling does not help (sends cannot be cancelled in practice). So MPI never gets memory of users:
// messages are copied into parcels, and received into parcels. That costs a copy on either side, and lets the
// layers above take back a buffer at any moment. A wire outlives its world, until MPI has ended: MPI may
// still use its parcels.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/limits.hpp"
#include "base/object_pool.hpp"
#include "transport/mpi/calls.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace tutti::transport::mpi {

using namespace limits::mpi;

class wire {
 public:
  class listener {
   public:
    // Messages of a peer come in the order in which it sent them.
    virtual void arrived(int peer, int tag, std::span<const std::byte> message) noexcept = 0;
    // MPI has returned this error: for sending to or receiving from this peer, or (-1) receiving from any.
    virtual void broke(int peer, int code) noexcept = 0;

   protected:
    ~listener() = default;
  };

  wire(calls& mpi, communicator_word on, int size);
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;

  // Returns false if enough is in flight to this peer.
  bool has_room(int peer) const noexcept;
  // Sends `head` and then `payload` as one message; both are copied. Works without room, too. Returns MPI's
  // error code.
  int send(int peer, int tag, std::span<const std::byte> head, std::span<const std::byte> payload) noexcept;
  // Lets sends progress and delivers a bounded number of messages. Returns whether any ended or came.
  bool progress(listener& up) noexcept;

  // Whether MPI still has messages that were sent; to this peer.
  bool sending() const noexcept { return !outgoing_.empty(); }
  // Whether a message is partly received.
  bool receiving() const noexcept { return !incoming_.empty(); }

  // Called when the world that used this wire has ended: in order, or not.
  void close(bool in_order) noexcept {
    open_ = false;
    in_order_ = in_order;
  }
  bool open() const noexcept { return open_; }
  bool ended_in_order() const noexcept { return in_order_; }

  calls& mpi() const noexcept { return mpi_; }

 private:
  struct parcel_tag;
  struct parcel : base::list_hook<parcel_tag> {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t capacity = 0;
    std::size_t length = 0;
    request_word request = 0;
    int peer = 0;
    int tag = 0;
  };
  using list = base::intrusive_list<parcel, parcel_tag>;
  struct peer_queue {       // one peer
    std::size_t bytes = 0;  // in flight
    std::size_t parcels = 0;
    unsigned held_in = 0;  // the round in which a message was found to be incomplete
  };

  parcel& take(std::size_t bytes);
  void put_back(parcel& p) noexcept;
  bool end_sends(listener& up) noexcept;
  bool end_receives(listener& up) noexcept;
  bool take_next(listener& up) noexcept;

  calls& mpi_;
  const communicator_word on_;
  bool open_ = true;
  bool in_order_ = false;
  bool deaf_ = false;  // receiving has failed
  unsigned round_ = 0;
  std::size_t receiving_ = 0;
  std::vector<peer_queue> peers_;
  base::object_pool<parcel> small_;  // before the lists: freed after them
  base::object_pool<parcel> large_;
  list outgoing_;
  list incoming_;  // in the order in which they were found
};

}  // namespace tutti::transport::mpi
