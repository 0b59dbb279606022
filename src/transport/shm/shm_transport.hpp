// SPDX-License-Identifier: Apache-2.0
// shm_transport: ranks of one host share memory. Connections are made over AF_UNIX, on demand, and stay open
// to show the end of a peer.
#pragma once

#include "base/unique_fd.hpp"
#include "core/backend.hpp"
#include "core/platform.hpp"
#include "transport/connecting_transport.hpp"
#include "transport/shm/channel_io.hpp"
#include "transport/shm/direct.hpp"
#include "transport/shm/peer_socket.hpp"
#include "transport/shm/segment.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport::shm {

class shm_transport;

// The link to one peer of the same host through shared memory.
class shm_link final : public peer_link, public core::watcher {
 public:
  shm_link(shm_transport& owner, int peer) noexcept;
  ~shm_link() override { cut(); }

  bool submit(outgoing& o) noexcept override;
  bool send_now(const frame& head, const std::byte* payload) noexcept override;
  cancel_result cancel(outgoing& o) noexcept override;
  bool fetch(const frame& rts, std::uint64_t transfer_id) noexcept override;
  bool stop_fetching(std::uint64_t transfer_id, frame& rts) noexcept override {
    return reads_.stop(transfer_id, rts);
  }
  redirect_result redirect_destination(void* owner, const destination_buffer& instead) noexcept override;
  bool sends_eagerly(const void* data, std::size_t bytes) const noexcept override;
  peer_health examine(const health_check& l) noexcept override;
  void rest() noexcept override { examined_ = false; }
  // An attempt to connect goes on: the peer's side may be complete by then, and sees the link end.
  void give_up(errc why, std::string text) noexcept override { fail(why, std::move(text)); }

  // Completes the connection: both sides' memory is mapped. `socket`: AF_UNIX; its hang-up shows the peer's end at
  // once. `doorbell` and `segment` are the peer's. Throws tutti::error (errc::resources, protocol) and then leaves
  // the link unchanged.
  void attach(base::unique_fd socket, base::unique_fd doorbell, base::unique_fd segment);
  // Also on a half-made connection: the peer's side may already be complete, and must not take leaving for dying.
  void leave() noexcept override {
    if (at_ != phase::idle && !closed()) submit(farewell_);
  }

  bool move() noexcept override;
  // Called before sleeping. Returns true if there is work.
  bool prepare_sleep() noexcept;
  void notify() noexcept;

  // See class neighbours.
  bool offer(const base::shared_place& place) noexcept;
  const std::byte* find_memory(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) noexcept;
  std::byte* find_writable(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) noexcept;
  const std::atomic<std::uint32_t>* sleeps() const noexcept {
    return at_ == phase::connected ? &outbox_->header().armed : nullptr;
  }

  void on_ready(bool readable, bool writable) noexcept override;

 private:
  void disconnect(bool abort) noexcept override;
  bool read_some() noexcept;
  bool flush() noexcept;
  bool write_slices(outgoing& o) noexcept;
  bool write_message(outgoing& o) noexcept;
  bool write_parts(const frame& head, const std::byte* payload) noexcept;
  void take_part(const channel_reader::item& part) noexcept;
  void show(outgoing& o) noexcept;
  void take_offers() noexcept;
  bool end_of_peer() noexcept;

  shm_transport& owner_;
  bool hung_up_ = false;
  bool peer_leaves_ = false;
  // Of a peer that has hung up, until when to ask how it has ended.
  std::optional<peer_process> process_;
  core::time_point ask_until_{};
  direct_reads reads_;  // cut() takes its frames out of the queues
  channel inbox_;
  std::optional<peer_segment> outbox_;
  channel_reader reader_;
  channel_writer writer_;
  // Of the message whose parts are coming.
  std::size_t come_ = 0;
  destination_buffer where_;
  shown_messages shown_;
  std::vector<std::uint64_t> offered_;  // regions of this rank whose descriptor has been sent
  peer_regions regions_;
  base::unique_fd socket_;
  base::unique_fd doorbell_;
  bool stalled_ = false;             // since the last check nothing could leave
  core::backend::handle watch_ = 0;  // 0: none
  // For examine().
  bool examined_ = false;
  core::duration::rep heartbeat_ = 0;  // as last seen
  core::time_point heartbeat_at_{};    // when that was, as far as this side can tell
  core::time_point checked_{};
};

class shm_transport final : public connecting_transport, public neighbours {
 public:
  explicit shm_transport(core::loop& loop);
  ~shm_transport() override { end(); }

  const char* name() const noexcept override { return "shm"; }

  void listen(core::endpoint_record& mine, const listen_wish& wish) override;
  void open(const core::world_info& info, inbound& up) override;
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override;
  neighbours* memory() noexcept override { return this; }
  void cut() noexcept override;

  bool poll() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;

  bool show(int peer, const base::shared_place& place) noexcept override { return at(peer).offer(place); }
  const std::byte* find_memory(int peer, std::uint64_t region, std::uint64_t offset,
                               std::uint64_t bytes) noexcept override {
    return at(peer).find_memory(region, offset, bytes);
  }
  std::byte* find_writable(int peer, std::uint64_t region, std::uint64_t offset,
                           std::uint64_t bytes) noexcept override {
    return at(peer).find_writable(region, offset, bytes);
  }
  const std::atomic<std::uint32_t>* sleeps(int peer) noexcept override { return at(peer).sleeps(); }
  void notify(int peer) noexcept override { at(peer).notify(); }

  // For the links.
  own_segment& own() noexcept { return *own_; }

 private:
  shm_link& at(int peer) { return static_cast<shm_link&>(connecting_transport::at(peer)); }
  std::unique_ptr<peer_link> make_link(int peer) override { return std::make_unique<shm_link>(*this, peer); }
  task<core::stream_socket> dial(const core::endpoint_record& to, core::time_point deadline) override;
  bool may_prove(core::stream_socket& socket) override;
  task<> complete(peer_link& l, core::stream_socket& socket, core::time_point deadline) override;
  void give_up(peer_link& l, const setback& last) override;

  std::optional<own_segment> own_;
  base::unique_fd doorbell_;
};

}  // namespace tutti::transport::shm
