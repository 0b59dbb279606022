// SPDX-License-Identifier: Apache-2.0
// sim_transport: the simulated network as one rank's transport.
#pragma once

#include "base/intrusive_list.hpp"
#include "sim/fabric.hpp"
#include "transport/transport.hpp"

#include <coroutine>
#include <map>
#include <string>
#include <vector>

namespace tutti::sim {

struct sending_tag;

class sim_link final : public transport::link, public base::list_hook<sending_tag> {
 public:
  enum class phase { idle, connecting, open, closed };

  sim_link(sim_transport& owner, int peer) noexcept;

  bool submit(transport::outgoing& o) noexcept override;
  transport::cancel_result cancel(transport::outgoing& o) noexcept override;
  bool redirect_destination(void* owner, const transport::destination_buffer& instead) noexcept override;
  bool sends_eagerly(const void* data, std::size_t bytes) const noexcept override;
  bool closed() const noexcept override { return at_ == phase::closed; }

 private:
  friend class fabric;
  friend class sim_transport;
  using frames = base::intrusive_list<transport::outgoing, transport::outgoing_tag>;

  bool waiting() const noexcept { return !messages_.empty() || !long_data_.empty(); }
  // When the port is free for it.
  nanoseconds port_free() const noexcept;
  void await_port() noexcept;
  // Queues an open link that has frames for the port; one that has none and is to leave takes leave.
  void proceed();
  // Sends the frame, or its next slice; returns whether nothing of it is left.
  bool send_slice(transport::outgoing& o);
  // Sends one frame, or one slice; the frame's owner is told of its end.
  bool send_front();
  void receive(const packet_ref& p) noexcept;
  // The end of the link has come from the network.
  void close(errc why, std::string text) noexcept;
  void hand_back() noexcept;
  void leave() noexcept;

  sim_transport& owner_;
  const int peer_;
  phase at_ = phase::idle;
  bool said_farewell_ = false;  // nothing follows
  frames messages_;
  frames long_data_;     // messages pass between their slices
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
  // Whether the layers above are told nothing any more.
  bool muted() const noexcept { return leaving_ || !attached_; }
  // Sends queued frames that may leave by now; returns whether there were any.
  bool send_waiting();
  void detach() noexcept;
  void changed() noexcept;
  bool any_open() const noexcept;

  fabric& fabric_;
  const int rank_;
  std::map<int, sim_link> links_;                        // by peer
  base::intrusive_list<sim_link, sending_tag> sending_;  // open, and with frames that wait for the port
  std::vector<sim_link*> ended_;                         // with frames to be handed back
  std::coroutine_handle<> waiting_;                      // of leave()
  core::timer leave_timer_;
};

}  // namespace tutti::sim
