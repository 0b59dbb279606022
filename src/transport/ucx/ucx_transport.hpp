// SPDX-License-Identifier: Apache-2.0
// ucx_transport: ranks reached over UCX: InfiniBand, RoCE, and whatever else UCX can use.
//
// Each link is a pair. A TCP connection, over which both sides have proved who they are, stays open as the
// *lifeline*: it carries UCX's address and a random key of 128 bits in either direction, then only heartbeats, and its
// end is the peer's end. A UCX endpoint carries all frames, as active messages. UCX takes messages from any process
// that has its address, so each frame begins with the key of its direction, the sender's rank and a number:
//
//   0 key (16)   16 rank of the sender   20 number of the frame   24 kind   28 fields as over TCP (48)
//
// Short frames leave eagerly from memory of the link, so that the caller's buffer is free at once. Data frames leave
// in slices, each a rendezvous of UCX: the receiver's network card or process pulls it from the sender's buffer into
// the receive buffer. Neither side copies. What UCX has begun cannot be stopped. So a frame that is taken back, and a
// destination that is given up, may drain (link.hpp).
//
// Whoever must have a buffer back at once waits for its slices. Its peer may do the same: so each side receives what it
// is offered meanwhile, into memory of the link, or neither would end. If the peer lets none of them end for
// `patience_with_slices`, or has died, the link is broken by force: the lifeline is shut down first, then the endpoint
// is closed, and UCX returns all buffers. Data that UCX reports as received count only if the lifeline still stands
// then: a sender that has broken off may be reusing its buffer.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/object_pool.hpp"
#include "base/ucx_library.hpp"
#include "base/unique_fd.hpp"
#include "core/backend.hpp"
#include "transport/connecting_transport.hpp"
#include "transport/tcp/heartbeat.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti::transport::ucx {

using namespace limits::ucx;
namespace abi = base::ucx_abi;

// On a machine with more ranks than cores a peer may wait for its core for a tenth of a second.
inline constexpr core::duration patience_with_slices = std::chrono::milliseconds(500);
inline constexpr unsigned message_id = 1;  // of tutti's active messages

using link_key = std::array<std::uint8_t, 16>;
using envelope = std::array<std::uint8_t, envelope_bytes>;

class ucx_link;
class ucx_transport;
struct parcel_tag;
struct slice_tag;
struct arrival_tag;
struct held_tag;

// A short frame that UCX sends, in memory of its own.
struct parcel {
  ucx_link* of = nullptr;
  envelope head;
  std::unique_ptr<std::byte[]> payload;
  std::size_t capacity = 0;
};

// A slice of a data frame that UCX sends, or lets the peer read.
struct slice : base::list_hook<slice_tag> {
  ucx_link* through = nullptr;
  const outgoing* of = nullptr;
  envelope head;
};

// A slice that UCX receives.
struct arrival : base::list_hook<arrival_tag> {
  ucx_link* from = nullptr;
  frame head;
  destination_buffer where;  // where it belongs
  destination_buffer place;  // where UCX writes it; without an owner, to memory of this
  bool redirected = false;   // since UCX has begun
  bool aside = false;        // to memory of this; nothing above knows of it yet
  abi::ucs_status_t status = abi::ucs_status_t::ok;
  std::unique_ptr<std::byte[]> own;  // for a frame of which not all is wanted
};

// A frame that has come. UCX tells of it while it works, when nothing may be called that makes it work again.
struct held_frame : base::list_hook<held_tag> {
  ucx_link* from = nullptr;
  frame head;
  std::unique_ptr<std::byte[]> payload;  // a copy; null for a slice,
  std::size_t capacity = 0;
  void* offered = nullptr;  // which has this name in UCX
};

// The link to one peer.
class ucx_link final : public peer_link, public core::watcher {
 public:
  ucx_link(ucx_transport& owner, int peer);
  ~ucx_link() override { cut(); }

  bool submit(outgoing& f) noexcept override;
  bool send_now(const frame& head, const std::byte* payload) noexcept override;
  cancel_result cancel(outgoing& f) noexcept override;
  bool drain(outgoing& f) noexcept override;
  redirect_result redirect_destination(void* owner, const destination_buffer& instead) noexcept override;
  void drain_destination(void* owner) noexcept override;
  bool sends_eagerly(const void*, std::size_t bytes) const noexcept override {
    return bytes <= eager_limit_bytes;
  }
  // Also of frames that UCX has not sent yet.
  bool has_queue() const noexcept override {
    return peer_link::has_queue() || !draining_.empty() || parcels_out_ > 0;
  }
  peer_health examine(const health_check& l) noexcept override;
  void rest() noexcept override;
  void leave() noexcept override;
  // Whether UCX has something of this link that has not ended.
  bool in_ucx() const noexcept { return parcels_out_ + slices_out_ > 0 || !arriving_.empty(); }

  // For the transport, in this order.
  // Makes the key that the peer is to put in front of its frames.
  const link_key& make_expected_key();
  // Makes the endpoint. `key`: to put in front of this rank's frames. Returns UCX's text if that fails, else "".
  std::string bind(const link_key& key, const std::string& address);
  // The connection is complete: `lifeline` stays open. Throws errc::resources.
  void attach(base::unique_fd lifeline);

  // Whether frames of the peer are taken.
  bool takes() const noexcept { return has_key_ && at_ != phase::failing && at_ != phase::closed; }
  // Decodes a frame that has come. Returns false if it is not the peer's, or not its next one; then the link fails.
  bool unseal(std::span<const std::uint8_t, envelope_bytes> from, std::size_t payload, bool rendezvous,
              frame& head) noexcept;
  void corrupt(const char* what) noexcept;
  // Delivers a frame that was held.
  void deliver(held_frame& h) noexcept;
  // Receives an offered slice into memory of the link, where nothing above may be asked for its destination.
  void receive_aside(held_frame& h) noexcept;
  // Reports an arrival that has ended.
  void report(arrival& a) noexcept;
  // What UCX has told.
  void slice_ended(arrival& a, abi::ucs_status_t status) noexcept;
  void slice_ended(slice& s) noexcept;
  void parcel_ended(parcel& p) noexcept;
  void peer_lost(abi::ucs_status_t status) noexcept;

  // core::watcher: of the lifeline.
  void on_ready(bool readable, bool writable) noexcept override;

 private:
  using slices = base::intrusive_list<slice, slice_tag>;
  using arrivals = base::intrusive_list<arrival, arrival_tag>;

  bool move() noexcept override;
  void disconnect(bool abort) noexcept override;
  void clear_queues(list& rest) noexcept override;

  void seal(const frame& head, envelope& into) noexcept;
  bool send_frame(const frame& head, const std::byte* payload) noexcept;
  bool send_slice(outgoing& f) noexcept;
  // Starts slices while there is room. Returns whether any left.
  bool send_slices() noexcept;
  bool on_the_way(const outgoing& f) const noexcept;
  bool end_frames() noexcept;
  bool receive(const frame& head, void* offered) noexcept;
  void use_own_memory(arrival& a) noexcept;
  void start(arrival& a, void* offered) noexcept;
  void settle(arrival& a) noexcept;
  bool written(const void* owner) const noexcept;
  void end_redirected(const arrival& a) noexcept;
  bool lifeline_stands() noexcept;
  void read_lifeline() noexcept;
  void say(char byte) noexcept;
  void note_answer() noexcept;
  void ucx_failed(abi::ucs_status_t status) noexcept;
  // Breaks the link by force. On return UCX uses no buffer of it.
  void force() noexcept;
  // Waits until `done()`; breaks the link if nothing ends for too long.
  template <class Done>
  bool wait_for_slices(Done done) noexcept;

  ucx_transport& owner_;
  abi::ucp_ep* endpoint_ = nullptr;
  base::unique_fd lifeline_;
  core::backend::handle watch_ = 0;
  tcp::heartbeat heartbeat_;
  link_key expected_key_{};  // of the peer's frames
  link_key key_{};           // of this rank's
  bool has_key_ = false;
  std::uint32_t next_sent_ = 0;
  std::uint32_t next_come_ = 0;
  list draining_;               // data frames that are taken back, with slices on the way
  slices slices_;               // on the way
  arrivals arriving_;           // UCX writes them
  std::size_t slices_out_ = 0;  // their number
  std::size_t parcels_out_ = 0;
  std::uint64_t ends_ = 0;         // of slices, in either direction
  std::uint64_t stood_after_ = 0;  // so many ends the lifeline was seen to stand
  unsigned answers_alone_ = 0;     // of the peer's loop, since UCX has delivered a frame
  bool farewell_sent_ = false;
  bool lifeline_ended_ = false;
  bool lifeline_unread_ = false;                     // more may have come on it
  abi::ucs_status_t error_ = abi::ucs_status_t::ok;  // UCX has given the peer up
};

class ucx_transport final : public connecting_transport {
 public:
  // `only_rdma`: not without RDMA devices. `ranks`: their expected number, if known.
  explicit ucx_transport(core::loop& loop, bool only_rdma = false, std::size_t ranks = 2);
  ~ucx_transport() override;

  const char* name() const noexcept override { return "ucx"; }
  // Opens UCX. Also throws errc::not_supported.
  void listen(core::endpoint_record& mine, const listen_wish& wish) override;
  void open(const core::world_info& info, inbound& up) override;
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override;

  bool poll() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override { pause_timer_.cancel(); }

  // For the links.
  const base::ucx_library& ucx() const noexcept { return *ucx_; }
  abi::ucp_worker* worker() const noexcept { return worker_; }
  base::object_pool<parcel>& parcels() noexcept { return parcels_; }
  base::object_pool<slice>& slice_pool() noexcept { return slice_pool_; }
  base::object_pool<arrival>& arrival_pool() noexcept { return arrival_pool_; }
  // Arrivals that UCX has written, of all links; to be reported.
  const base::intrusive_list<arrival, arrival_tag>& ended() const noexcept { return ended_; }
  void note_ended(arrival& a) noexcept {
    ended_.push_back(a);
    loop_.wake();
  }
  void note_lanes(int peer, abi::ucp_ep* endpoint) noexcept;
  void drop_held(const ucx_link* of) noexcept;
  // Whether UCX had nothing to do in this round.
  bool was_idle() const noexcept { return was_idle_; }
  // Whether this is a forked child, where UCX may not be used.
  bool is_parents() const noexcept;
  // Lets UCX work, with nothing called upward, until `done()`; slices that come are received aside. Returns false if
  // `events` has not changed for so long.
  template <class Done>
  bool work_quietly(core::duration patience, const std::uint64_t& events, Done done) noexcept;

 private:
  std::unique_ptr<peer_link> make_link(int peer) override { return std::make_unique<ucx_link>(*this, peer); }
  task<core::stream_socket> dial(const core::endpoint_record& to, core::time_point deadline) override;
  task<> complete(peer_link& l, core::stream_socket& socket, core::time_point deadline) override;
  void give_up(peer_link& l, const setback& last) override;
  bool has_left() noexcept override { return all_have_closed(); }

  std::string own_address() const;
  // Lets UCX work once, and delivers what has come. Returns whether anything happened.
  bool progress() noexcept;
  static abi::ucs_status_t on_message(void* self, const void* header, std::size_t header_length, void* data,
                                      std::size_t length, const abi::ucp_am_recv_param_t* how);
  // Holds a frame. Returns false if it is dropped.
  bool hold(std::span<const std::uint8_t> header, void* data, std::size_t length, bool rendezvous) noexcept;
  void let_go(held_frame& h) noexcept;
  void receive_aside() noexcept;

  const bool only_rdma_;
  const std::size_t ranks_;
  const base::ucx_library* ucx_ = nullptr;
  abi::ucp_worker* worker_ = nullptr;
  int wake_descriptor_ = -1;
  bool opened_ = false;    // and watched
  bool was_idle_ = false;  // UCX had nothing to do in this round
  bool warned_ = false;    // of a lane that is for tests
  bool by_timer_ = false;  // a lane of some link reports no events
  unsigned refusals_ = 0;  // of UCX to report events, in a row
  core::timer pause_timer_;
  base::object_pool<parcel> parcels_;
  base::object_pool<slice> slice_pool_;
  base::object_pool<arrival> arrival_pool_;
  base::object_pool<held_frame> held_pool_;
  base::intrusive_list<arrival, arrival_tag> ended_;  // UCX has written them; to be reported
  base::intrusive_list<held_frame, held_tag> held_;   // in order; to be delivered
};

}  // namespace tutti::transport::ucx
