// SPDX-License-Identifier: Apache-2.0
// sim_transport: the simulated network as one rank's transport.
#pragma once

#include "sim/fabric.hpp"
#include "transport/transport.hpp"

#include <coroutine>
#include <map>
#include <string>

namespace tutti::sim {

class sim_link final : public transport::peer_link {
 public:
  sim_link(sim_transport& owner, int peer) noexcept;

  bool submit(transport::outgoing& o) noexcept override;
  transport::cancel_result cancel(transport::outgoing& o) noexcept override;
  bool redirect_destination(void* owner, const transport::destination_buffer& instead) noexcept override;
  bool sends_eagerly(const void* data, std::size_t bytes) const noexcept override;
  bool has_queue() const noexcept override { return !messages_.empty() || !long_data_.empty(); }
  void give_up(errc, std::string) noexcept override {}  // faults end links here

 private:
  friend class fabric;
  friend class sim_transport;

  // When the port is free for it.
  nanoseconds port_free() const noexcept;
  // Sends one frame, or one slice.
  bool move() noexcept override;
  void disconnect(bool abort) noexcept override;
  void clear_queues(list& rest) noexcept override;
  // Lets the rank send what waits, at that time.
  void await_port(nanoseconds when) noexcept;
  // Sends the frame, or its next slice; returns whether nothing of it is left.
  bool send_slice(transport::outgoing& o) noexcept;
  void receive(const packet_ref& p) noexcept;
  void leave() noexcept;

  sim_transport& owner_;
  list messages_;
  list long_data_;       // messages pass between their slices
  packet_ref half_way_;  // the frame of which a part has come
  transport::destination_buffer where_;
};

class sim_transport final : public transport::transport {
 public:
  sim_transport(fabric& f, core::loop& loop, int rank) noexcept;
  ~sim_transport() override { cut(); }

  void open(const core::world_info& info, tutti::transport::inbound& up) override;
  tutti::transport::link& link_to(int peer) override { return at(peer); }
  bool has_queue() const noexcept override;
  task<> leave(core::time_point deadline) override;
  void cut() noexcept override;

  bool poll() noexcept override;

  int rank() const noexcept { return rank_; }
  sim_link& at(int peer);

 private:
  friend class fabric;
  friend class sim_link;
  void detach() noexcept;
  void changed() noexcept;
  bool any_open() const noexcept;

  fabric& fabric_;
  const int rank_;
  std::map<int, sim_link> links_;    // by peer
  std::coroutine_handle<> waiting_;  // of leave()
  core::timer leave_timer_;
};

}  // namespace tutti::sim
