// SPDX-License-Identifier: Apache-2.0
// shm_link: the link to one peer of the same host through shared memory.
#pragma once

#include "base/unique_fd.hpp"
#include "core/backend.hpp"
#include "core/platform.hpp"
#include "transport/connecting_transport.hpp"
#include "transport/shm/channel_io.hpp"
#include "transport/shm/direct.hpp"
#include "transport/shm/peer_process.hpp"
#include "transport/shm/segment.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport::shm {

class shm_transport;

class shm_link final : public connecting_link, public core::watcher {
 public:
  shm_link(shm_transport& owner, int peer) noexcept : connecting_link(peer), owner_(owner) {}
  ~shm_link() override;

  bool submit(outgoing& o) noexcept override;
  bool send_now(const frame& head, const std::byte* payload) noexcept override;
  cancel_result cancel(outgoing& o) noexcept override;
  bool fetch(const frame& rts, std::uint64_t transfer_id) noexcept override;
  bool stop_fetching(std::uint64_t transfer_id, frame& rts) noexcept override {
    return reads_.stop(transfer_id, rts);
  }
  bool redirect_destination(void* owner, const destination_buffer& instead) noexcept override;
  std::size_t eager_limit() const noexcept override { return eager_limit_bytes; }
  bool sends_eagerly(const void* data, std::size_t bytes) const noexcept override;
  bool has_queue() const noexcept override { return !messages_.empty() || !data_.empty(); }
  peer_health examine(const health_check& l) noexcept override;
  void rest() noexcept override { examined_ = false; }
  void give_up(errc why, std::string text) noexcept override { fail(why, std::move(text)); }

  // Completes the connection: both sides' memory is mapped. `socket`: AF_UNIX; its hang-up shows the peer's end at
  // once. `doorbell` and `segment` are the peer's. Throws tutti::error (errc::resources, protocol) and then leaves
  // the link unchanged.
  void attach(base::unique_fd socket, base::unique_fd doorbell, base::unique_fd segment);
  // poll() reports the end upward, once.
  void fail(errc why, std::string text) noexcept override;
  void leave() noexcept override;
  void cut() noexcept override { disconnect(); }

  // Reads what has come and sends what waits, a bounded amount. Returns whether anything happened.
  bool poll() noexcept;
  // Called before sleeping. Returns true if there is work.
  bool prepare_sleep() noexcept;
  void notify() noexcept;
  void take_back_farewell() noexcept { cancel(farewell_); }

  // See class neighbours.
  bool offer(std::uint64_t region, std::uint64_t bytes, int fd) noexcept;
  const std::byte* find_memory(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) noexcept;
  const std::atomic<std::uint32_t>* sleeps() const noexcept {
    return at_ == phase::connected ? &outbox_->header().armed : nullptr;
  }

  void on_ready(bool readable, bool writable) noexcept override;

 private:
  void disconnect() noexcept;
  bool read_some() noexcept;
  bool flush() noexcept;
  bool write_slices(outgoing& o) noexcept;
  bool write_message(outgoing& o) noexcept;
  bool write_parts(const frame& head, const std::byte* payload) noexcept;
  void take_part(const channel_reader::item& part) noexcept;
  void show(outgoing& o) noexcept;
  void take_offers() noexcept;
  void read_direct() noexcept;
  void report_end() noexcept;
  bool end_of_peer() noexcept;

  shm_transport& owner_;
  bool hung_up_ = false;
  bool peer_leaves_ = false;
  bool end_pending_ = false;
  bool reported_ = false;
  bool asked_ = false;  // how the peer has ended
  core::time_point ask_until_{};
  peer_process process_;
  errc end_reason_ = errc::success;
  std::string end_text_;
  outgoing farewell_;
  direct_reads reads_;                                     // before the queues, which contain its frames
  base::intrusive_list<outgoing, outgoing_tag> messages_;  // in order
  base::intrusive_list<outgoing, outgoing_tag> data_;
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

}  // namespace tutti::transport::shm
