// SPDX-License-Identifier: Apache-2.0
// Long data frames that leave by several connections at once: each connection carries a stripe, and takes
// the next one when that has left. To the peer each stripe is a data frame like any other, which says where
// in the message it belongs.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/world_info.hpp"
#include "transport/link.hpp"
#include "transport/tcp/outbox.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace tutti::transport::tcp {

class stripes {
 public:
  static constexpr std::size_t most_connections = core::most_tcp_connections;

  stripes() noexcept;

  bool empty() const noexcept { return whole_.empty(); }
  bool has(const outgoing& f) const noexcept;
  // `f`: a data frame of more than one slice.
  void push(outgoing& f) noexcept;
  // The next stripe goes to the outbox of connection `by`, if there is one and it carries none. `among`: how
  // many connections share a frame.
  bool next(std::size_t by, std::size_t among, outbox& out) noexcept;
  // As of outbox::cancel(); connection i has `boxes[i]`.
  std::optional<cancel_result> cancel(outgoing& f, std::span<outbox* const> boxes) noexcept;
  // Before the connections' outboxes are cleared: what had been pushed goes to `rest`.
  void clear(outbox::list& rest) noexcept;

 private:
  struct stripe : outgoing {
    stripes* owner = nullptr;
    outgoing* of = nullptr;  // null: none is under way
  };

  bool under_way(const outgoing& f) const noexcept;
  void left(stripe& p) noexcept;

  outbox::list whole_;  // `progress`: how much of it has been given out
  std::array<stripe, most_connections> by_connection_;
};

}  // namespace tutti::transport::tcp
