// SPDX-License-Identifier: Apache-2.0
// stripes: long data frames that leave by several connections at once. Each connection carries a stripe, and
// takes the next one when that has left. For the peer each stripe is an ordinary data frame, which says where
// in the message it belongs.
#pragma once

#include "core/world_info.hpp"
#include "transport/link.hpp"
#include "transport/tcp/frame_io.hpp"

#include <array>
#include <cstddef>
#include <optional>

namespace tutti::transport::tcp {

class stripes {
 public:
  static constexpr std::size_t most_connections = core::most_tcp_connections;

  stripes() noexcept;

  bool empty() const noexcept { return whole_.empty(); }
  bool has(const outgoing& f) const noexcept;
  // `f` is a data frame of more than one slice.
  void push(outgoing& f) noexcept;
  // Moves the next stripe to the outbox of connection `by`, if there is one and the connection carries none.
  // `among` is the number of connections that share a frame.
  bool next(std::size_t by, std::size_t among, outbox& out) noexcept;
  // As outbox::cancel().
  std::optional<cancel_result> cancel(outgoing& f) noexcept;
  // Called before the connections' outboxes are cleared: pushed frames go to `rest`.
  void clear(outbox::list& rest) noexcept;

 private:
  struct stripe : outgoing {
    stripes* owner = nullptr;
    outgoing* of = nullptr;  // null: none in flight
    outbox* through = nullptr;
  };

  void left(stripe& p) noexcept;

  outbox::list whole_;  // `progress`: how much of it has been given out
  std::array<stripe, most_connections> by_connection_;
};

}  // namespace tutti::transport::tcp
