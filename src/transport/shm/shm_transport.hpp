// SPDX-License-Identifier: Apache-2.0
// shm_transport: ranks of one host share memory. Connections are made over AF_UNIX, on demand, and stay open
// to show the end of a peer.
#pragma once

#include "core/admission.hpp"
#include "core/background.hpp"
#include "core/handshake.hpp"
#include "transport/shm/shm_link.hpp"
#include "transport/transport.hpp"

#include <boost/asio/local/stream_protocol.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport::shm {

class shm_transport final : public polled_transport, public neighbours {
 public:
  explicit shm_transport(core::loop& loop);
  ~shm_transport() override;

  const char* name() const noexcept override { return "shm"; }
  void listen(core::endpoint_record& mine, const listen_wish& wish) override;
  void open(const core::world_info& info, inbound& up) override;
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override;
  link& link_to(int peer) override { return at(peer); }
  link* made_link(int peer) noexcept override { return links_[static_cast<std::size_t>(peer)].get(); }
  neighbours* memory() noexcept override { return this; }
  bool has_queue() const noexcept override;
  task<> leave(core::time_point deadline) override;
  void cut() noexcept override;

  bool poll() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;

  bool show(int peer, const base::shared_place& place) noexcept override {
    return at(peer).offer(place.region, place.region_bytes, place.fd);
  }
  const std::byte* find_memory(int peer, std::uint64_t region, std::uint64_t offset,
                               std::uint64_t bytes) noexcept override {
    return at(peer).find_memory(region, offset, bytes);
  }
  const std::atomic<std::uint32_t>* sleeps(int peer) noexcept override { return at(peer).sleeps(); }
  void notify(int peer) noexcept override { at(peer).notify(); }
  void add(core::source& watcher) override { watchers_.push_back(&watcher); }
  void remove(core::source& watcher) noexcept override { std::erase(watchers_, &watcher); }

  // For the links.
  void begin_connect(shm_link& l) noexcept;
  own_segment& own() noexcept { return *own_; }

 private:
  using local = boost::asio::local::stream_protocol;

  task<> serve(core::stream_socket accepted);
  // Why connecting has failed so far.
  struct setback {
    errc code = errc::peer_failed;
    std::string text;
    bool ended_early = false;  // the peer took the connection and closed it before it was complete
  };
  task<> connect(int peer);
  // One attempt.
  task<> reach(shm_link& l, core::time_point deadline, setback* why);
  task<> exchange(shm_link& l, core::stream_socket& socket, core::time_point deadline);
  shm_link& at(int peer);

  std::optional<local::acceptor> acceptor_;
  core::admission admission_;
  std::optional<own_segment> own_;
  base::unique_fd doorbell_;
  std::vector<std::unique_ptr<shm_link>> links_;  // by peer
  std::vector<shm_link*> live_;                   // those that were made
  std::vector<core::source*> watchers_;
  core::background_tasks tasks_;
};

}  // namespace tutti::transport::shm
