// SPDX-License-Identifier: Apache-2.0
// mpi_transport: all peers over MPI: `backend = "mpi"`. Frames are MPI messages with the same 64-byte header
// as on TCP; MPI keeps their order. The loop makes only non-blocking calls.
//
// MPI offers nothing to wait for: no descriptor, no doorbell. An awake loop polls MPI like everything else. A
// loop that would sleep is woken by a timer to poll again. The pause doubles from 20 us to 1 ms while an
// operation waits, and to 20 ms while none does. Measured: 0.3 % of a core while nothing is awaited, 4 to 6 %
// while something is. A message after a silence may wait for a millisecond; TUTTI_SPIN_US keeps the loop
// awake longer.
//
// A peer ends in one of three ways. It sends a `leave` frame and gets an acknowledgement, so that each side
// knows that the other has everything. It sends a message with cut_tag if its world or the link ends otherwise. Or
// MPI returns an error. When a process dies, mpirun ends the job, as for every MPI program: no rank is left to be
// told.
#pragma once

#include "transport/mpi/wire.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace tutti::transport::mpi {

// MPI's tags of messages on a wire.
inline constexpr int frame_tag = 0;
inline constexpr int cut_tag = 1;  // empty; the sender has ended the link or its world without leaving
inline constexpr int acknowledge_tag = 2;  // empty; the sender has got the `leave` frame

class mpi_transport;

// One peer: which of its frames leaves next, and how its end is known.
class mpi_link final : public peer_link {
 public:
  mpi_link(mpi_transport& owner, int peer) noexcept;

  bool submit(outgoing& f) noexcept override;
  // The peer need be told nothing more: it has everything that was sent to it, or has ended the link.
  void settle() noexcept { settled_ = true; }
  void leave() noexcept override;
  // Whether leaving needs nothing more of this link.
  bool finished() const noexcept { return closed() || (settled_ && !has_queue()); }

 private:
  bool move() noexcept override;
  void disconnect(bool abort) noexcept override;
  bool send_slice(outgoing& f) noexcept;

  mpi_transport& owner_;
  bool settled_ = false;
};

class mpi_transport final : public transport, private wire::listener {
 public:
  // `through` is closed when the world has ended, and outlives the transport.
  mpi_transport(core::loop& loop, wire& through);
  ~mpi_transport() override { end(); }

  const char* name() const noexcept override { return "mpi"; }

  void open(const core::world_info& info, inbound& up) override;
  bool has_queue() const noexcept override { return wire_.sending() || transport::has_queue(); }
  void cut() noexcept override;

  bool poll() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override { pause_timer_.cancel(); }

  // For the links.
  wire& through() noexcept { return wire_; }
  // Data have left: an answer may come soon.
  void stirred() noexcept;
  void send_failed(mpi_link& l, int code) noexcept;

 private:
  void arrived(int peer, int tag, std::span<const std::byte> message) noexcept override;
  void broke(int peer, int code) noexcept override;

  std::unique_ptr<peer_link> make_link(int peer) override { return std::make_unique<mpi_link>(*this, peer); }
  bool has_left() noexcept override;
  mpi_link& at(int peer) { return static_cast<mpi_link&>(transport::at(peer)); }
  void deliver(mpi_link& from, std::span<const std::byte> message) noexcept;

  wire& wire_;
  core::timer pause_timer_;
  core::duration pause_;
};

}  // namespace tutti::transport::mpi
