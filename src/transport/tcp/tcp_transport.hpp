// SPDX-License-Identifier: Apache-2.0
// tcp_transport: ranks reached over TCP: a connection per pair, made when it is first needed, and further
// ones when the first long message is sent.
#pragma once

#include "core/wakeup.hpp"
#include "transport/tcp/connector.hpp"
#include "transport/tcp/tcp_link.hpp"
#include "transport/transport.hpp"

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::transport::tcp {

class tcp_transport final : public polled_transport {
 public:
  explicit tcp_transport(core::loop& loop);
  ~tcp_transport() override;

  const char* name() const noexcept override { return "tcp"; }
  // listen_address() in listen_address.hpp chooses the address.
  void listen(core::endpoint_record& mine, const listen_wish& wish) override;
  void open(const core::world_info& info, inbound& up) override;
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override;
  link& link_to(int peer) override { return at(peer); }
  link* made_link(int peer) noexcept override { return made(peer); }
  // From the start of this nothing is delivered upward; frames that could not leave in time are handed back.
  bool has_queue() const noexcept override;
  task<> leave(core::time_point deadline) override;
  // Calls nothing upward any more: queued frames are forgotten, not handed back.
  void cut() noexcept override;

  bool poll() noexcept override;
  bool arm() noexcept override { return !active_.empty(); }

  // For the links and the connector.
  tcp_link& at(int peer);
  tcp_link* made(int peer) noexcept { return links_[static_cast<std::size_t>(peer)].get(); }
  void connect(tcp_link& l) noexcept { connector_->connect(l); }
  void connect_further(tcp_link& l) noexcept { connector_->connect_further(l); }
  void stop_connecting(tcp_link& l) noexcept { connector_->stop_connecting(l); }
  // `l` has work that no descriptor will report: it works in the next round.
  void activate(tcp_link& l) noexcept;
  // Data have come from `l`, and more are likely. For a while it is read in every round, without an event of
  // the descriptor: one recv costs less than an event and the recv.
  void expect_more(tcp_link& l) noexcept;
  void expect_nothing(tcp_link& l) noexcept;
  // A link has closed.
  void changed() noexcept { changed_.notify(); }

 private:
  void detach() noexcept;
  bool glance() noexcept;

  base::unique_fd listener_;
  core::wakeup changed_;
  std::vector<std::unique_ptr<tcp_link>> links_;  // by peer; null until needed
  base::intrusive_list<tcp_link, active_tag> active_;
  struct expected {
    tcp_link* from = nullptr;
    unsigned rounds = 0;  // without anything
  };
  static constexpr std::size_t most_expected = 3;
  std::array<expected, most_expected> expected_;
  std::optional<connector> connector_;
};

}  // namespace tutti::transport::tcp
