// SPDX-License-Identifier: Apache-2.0
// tcp_transport: ranks reached over TCP: a connection per pair, made when it is first needed, and further
// ones when the first long message is sent.
#pragma once

#include "core/wakeup.hpp"
#include "transport/connecting_transport.hpp"
#include "transport/tcp/tcp_link.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace tutti::transport::tcp {

class tcp_transport final : public connecting_transport {
 public:
  explicit tcp_transport(core::loop& loop);
  ~tcp_transport() override { end(); }

  const char* name() const noexcept override { return "tcp"; }
  // listen_address() in listen_address.hpp chooses the address.
  void listen(core::endpoint_record& mine, const listen_wish& wish) override;
  void open(const core::world_info& info, inbound& up) override;
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override;
  // From the start of this nothing is delivered upward; frames that could not leave in time are handed back.
  task<> leave(core::time_point deadline) override;

  bool poll() noexcept override;
  bool arm() noexcept override { return !active_.empty(); }

  // For the links.
  // Starts to make the further connections of a connected link. The link does without those that cannot be
  // had.
  void connect_further(tcp_link& l) noexcept;
  // `l` has work that no descriptor will report: it works in the next round.
  void activate(tcp_link& l) noexcept;
  // Data have come from `l`, and more are likely. For a while it is read in every round, without an event of
  // the descriptor: one recv costs less than an event and the recv.
  void expect_more(tcp_link& l) noexcept;
  void expect_nothing(tcp_link& l) noexcept;
  // A link has closed.
  void changed() noexcept { changed_.notify(); }

 private:
  std::unique_ptr<connecting_link> make_link(int peer) override;
  std::vector<std::string> addresses(const core::endpoint_record& of) const override {
    return of.tcp_endpoints;
  }
  task<core::stream_socket> dial(std::string address, core::time_point deadline) override;
  task<> complete(connecting_link& l, core::stream_socket& socket, core::time_point deadline) override;
  task<> serve_other(core::stream_socket& socket, core::greeting from, core::time_point deadline) override;
  void give_up(connecting_link& l, const setback& last) override;

  task<> reach_further(tcp_link& l);
  task<bool> add_further(tcp_link& l, std::string address, core::time_point deadline);
  static void attach_further(tcp_link& l, connection& c, core::stream_socket& socket, bool usable);
  bool glance() noexcept;

  core::wakeup changed_;
  base::intrusive_list<tcp_link, active_tag> active_;
  struct expected {
    tcp_link* from = nullptr;
    unsigned rounds = 0;  // without anything
  };
  static constexpr std::size_t most_expected = 3;
  std::array<expected, most_expected> expected_;
};

}  // namespace tutti::transport::tcp
