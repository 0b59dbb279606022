// SPDX-License-Identifier: Apache-2.0
// fabric: the network of a simulation: ports, connections, frames in flight, and faults. sim_transport: the network
// as one rank's transport.
//
// LogGP: a frame of b bytes takes its sender's processor for o. It leaves when the port is free, and keeps
// the port for g + bG. It is at the other port after L + bG, passes it at the same rate, and takes the
// receiver's processor for o.
#pragma once

#include "sim/random_numbers.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tutti/sim/simulation.hpp>
#include <utility>
#include <vector>

namespace tutti::sim {

using nanoseconds = std::int64_t;  // of virtual time, since its beginning
inline constexpr nanoseconds end_of_time = std::numeric_limits<nanoseconds>::max();

// Future events by time. Those of one time happen in the order of a second number, or of planning.
using event_queue = std::multimap<std::pair<nanoseconds, std::uint64_t>, std::function<void()>>;

// What the ranks of a simulation publish about themselves.
core::endpoint_record record_of(const options& o, int rank);
// Throws errc::invalid_argument, naming the option.
void check(const options& o);

class sim_link;
class sim_transport;

// A frame in flight, or the end of a connection.
struct packet {
  int from = 0;
  int to = 0;
  transport::frame head{};
  std::vector<std::byte> payload{};
  bool is_end = false;  // the connection's; with the reason:
  errc why = errc::success;
  std::string text{};
  std::uint64_t number = 0;  // in its direction
  nanoseconds occupies = 0;  // time at the receiver's port
  std::size_t come = 0;      // of the payload, if it comes in parts
  bool in_parts = false;
};
using packet_ref = std::shared_ptr<packet>;

// Both directions between two ranks.
struct connection {
  struct direction {
    nanoseconds last_arrival = 0;
    std::uint64_t sent = 0;
    std::uint64_t delivered = 0;
    std::uint64_t cut_from = ~std::uint64_t{0};  // frames with this number and later ones are lost
    bool told = false;                           // its receiver has been, or is being, told of the end
  };
  enum class phase { connecting, open, ended };
  phase at = phase::connecting;
  int low = 0;
  int high = 0;
  direction up;    // low to high
  direction down;  // high to low
  direction& from(int rank) noexcept { return rank == low ? up : down; }
};

// One rank as the network sees it.
struct port {
  sim_transport* transport = nullptr;
  nanoseconds out_free[2] = {};  // by path::wire
  nanoseconds in_free[2] = {};
  nanoseconds cpu_free = 0;
  nanoseconds step_at = end_of_time;  // the next planned step
  std::deque<packet_ref> inbox;       // through the port, waiting for the processor
  bool delivering = false;            // deliver() is planned
  bool may_deliver = false;           // within a step: one packet is to be handed over
  bool dying = false;                 // within its last step
  bool gone = false;                  // dead, or it has left
  bool left = false;                  // in order
  std::uint64_t dies_at_frame = ~std::uint64_t{0};
  rank_report so_far;  // stuck: it goes on
};

class fabric {
 public:
  // `step` makes a rank's loop turn.
  fabric(const options& o, std::function<void(int rank)> step);

  nanoseconds now() const noexcept { return now_; }
  void set_now(nanoseconds t) noexcept { now_ = t; }
  event_queue& events() noexcept { return events_; }
  void plan(nanoseconds when, std::function<void()> what) {
    events_.emplace(std::pair(when, options_.noise.shuffle ? order_.next() : 0), std::move(what));
  }
  event_hash& hash() noexcept { return hash_; }
  const options& settings() const noexcept { return options_; }
  port& at(int rank) noexcept { return ports_[static_cast<std::size_t>(rank)]; }

  // Makes the rank's loop turn then, or as soon after it as its processor is free.
  void want_step(int rank, nanoseconds when);

  // ---- for links ----
  random_numbers& numbers() noexcept { return numbers_; }
  struct path {
    nanoseconds latency;
    double nanoseconds_per_byte;
    int wire;  // an index of the port's: 0: the network, 1: within the host
  };
  path between(int a, int b) const noexcept;
  void connect(sim_link& link);
  void transmit(sim_link& link, transport::frame head, const std::byte* payload, std::size_t bytes);
  // Closes this side of the connection; the other is told.
  void hang_up(sim_link& link, errc why, std::string text);

  // ---- ends and faults ----
  // The rank has gone without notice: dead, or cut.
  void bury(int rank);
  void disconnect(const disconnection& d);
  void give_up(const partition& p);

 private:
  connection* find(int a, int b) noexcept;
  // Tells the receiver of this direction the end, behind everything still in flight.
  void tell_end(connection& c, int told, errc why, std::string text);
  void break_off(connection& c, const std::string& text, bool loses);
  // When the last partition that is between them at that time heals; 0: none is.
  nanoseconds separated_until(int a, int b, nanoseconds when) const noexcept;
  void turn(int rank);
  void establish(int rank, int other);
  void at_port(const packet_ref& p);
  void arrived(const packet_ref& p);
  void take_next(int rank);
  // The processor has its next packet: a step hands it over.
  void deliver(int rank);

  const options& options_;
  nanoseconds now_ = 0;
  event_queue events_;
  random_numbers order_;  // of events of one time, if they are shuffled
  event_hash hash_;
  random_numbers numbers_;
  std::vector<port> ports_;
  std::map<std::pair<int, int>, connection> connections_;  // by the lower and the higher rank
  const std::function<void(int)> step_;
};

class sim_link final : public transport::peer_link {
 public:
  sim_link(sim_transport& owner, int peer) noexcept;

  bool submit(transport::outgoing& o) noexcept override;
  transport::cancel_result cancel(transport::outgoing& o) noexcept override;
  transport::redirect_result redirect_destination(
      void* owner, const transport::destination_buffer& instead) noexcept override;
  bool sends_eagerly(const void* data, std::size_t bytes) const noexcept override;
  void give_up(errc, std::string) noexcept override {}  // faults end links here
  void leave() noexcept override;

 private:
  friend class fabric;
  friend class sim_transport;

  // When the port is free for it.
  nanoseconds port_free() const noexcept;
  // Sends one frame, or one slice.
  bool move() noexcept override;
  void disconnect(bool) noexcept override {
    half_way_ = nullptr;
    where_ = {};
  }
  // Lets the rank send what waits, at that time.
  void await_port(nanoseconds when) noexcept;
  // Sends the frame, or its next slice; returns whether nothing of it is left.
  bool send_slice(transport::outgoing& o) noexcept;
  void receive(const packet_ref& p) noexcept;

  sim_transport& owner_;
  packet_ref half_way_;  // the frame of which a part has come
  transport::destination_buffer where_;
};

class sim_transport final : public transport::transport {
 public:
  sim_transport(fabric& f, core::loop& loop, int rank) noexcept : transport(loop), fabric_(f), rank_(rank) {}
  ~sim_transport() override { end(); }

  const char* name() const noexcept override { return "sim"; }

  void open(const core::world_info& info, tutti::transport::inbound& up) override {
    fabric_.at(rank_).transport = this;
    start(info, up);
  }
  task<> leave(core::time_point deadline) override;
  void cut() noexcept override;

  bool poll() noexcept override;

  int rank() const noexcept { return rank_; }
  sim_link& at(int peer) { return static_cast<sim_link&>(transport::at(peer)); }

 private:
  friend class fabric;
  friend class sim_link;
  std::unique_ptr<tutti::transport::peer_link> make_link(int peer) override {
    return std::make_unique<sim_link>(*this, peer);
  }
  bool has_left() noexcept override {
    return std::ranges::all_of(live_, &tutti::transport::peer_link::closed);
  }

  fabric& fabric_;
  const int rank_;
};

}  // namespace tutti::sim
