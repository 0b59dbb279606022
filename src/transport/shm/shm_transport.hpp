// SPDX-License-Identifier: Apache-2.0
// shm_transport: ranks of one host share memory. Connections are made over AF_UNIX, on demand, and stay open
// to show the end of a peer.
#pragma once

#include "transport/connecting_transport.hpp"
#include "transport/shm/shm_link.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport::shm {

class shm_transport final : public connecting_transport, public neighbours {
 public:
  explicit shm_transport(core::loop& loop);
  ~shm_transport() override { end(); }

  const char* name() const noexcept override { return "shm"; }
  void listen(core::endpoint_record& mine, const listen_wish& wish) override;
  void open(const core::world_info& info, inbound& up) override;
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override;
  neighbours* memory() noexcept override { return this; }
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
  own_segment& own() noexcept { return *own_; }

 private:
  shm_link& at(int peer) { return static_cast<shm_link&>(connecting_transport::at(peer)); }
  std::unique_ptr<connecting_link> make_link(int peer) override {
    return std::make_unique<shm_link>(*this, peer);
  }
  std::vector<std::string> addresses(const core::endpoint_record& of) const override {
    return {of.shm_address};
  }
  task<core::stream_socket> dial(std::string address, core::time_point deadline) override;
  bool may_prove(core::stream_socket& socket) override;
  task<> complete(connecting_link& l, core::stream_socket& socket, core::time_point deadline) override;
  void give_up(connecting_link& l, const setback& last) override;

  std::optional<own_segment> own_;
  base::unique_fd doorbell_;
  std::vector<core::source*> watchers_;
};

}  // namespace tutti::transport::shm
