// SPDX-License-Identifier: Apache-2.0
#include "p2p/peers.hpp"

#include <fmt/format.h>

#include <new>

namespace tutti::p2p {

bool peers::close(int peer, errc why, std::string text) noexcept {
  if (gone(peer)) return false;
  peer_state& p = (*this)[peer];
  // It has taken leave of the ranks that it knew. Others find its listener closed.
  if (why == errc::peer_failed && !p.heard && routes_.has_left(peer)) {
    why = errc::peer_left;
    text = describe(peer) + " has finished and left";
  }
  p.gone = {why, std::move(text)};
  p.link = nullptr;
  ++gone_;
  return true;
}

void peers::post(int peer, control_frame f) noexcept {
  peer_state& to = (*this)[peer];
  if (gone(peer) || to.lost) return;
  to.in_touch = true;
  control* taken = nullptr;
  try {
    taken = &controls_.take();
  } catch (const std::bad_alloc&) {
    return lose(peer, "an answer");
  }
  control& c = *taken;
  c.from = &controls_;
  c.to = &to;
  c.payload_bytes = std::move(f.payload);
  to.control_bytes += c.bytes();
  c.head = f.head;
  c.payload = c.payload_bytes.data();
  c.progress = 0;
  c.done = [](transport::outgoing& o, bool) noexcept {
    auto& done = static_cast<control&>(o);
    done.to->control_bytes -= done.bytes();
    done.payload_bytes = std::vector<std::byte>();
    done.from->give_back(done);
  };
  if (link_to(peer).submit(c)) c.done(c, true);
  if (to.control_bytes > most_control_bytes) [[unlikely]]
    break_off(peer, errc::resources,
              fmt::format("{} reads nothing, and {} MiB of answers wait for it, so the connection to it was "
                          "broken off",
                          describe(peer), most_control_bytes >> 20));
}

void peers::answer(int peer, frame_kind kind, std::uint32_t context, std::uint64_t transfer_id,
                   std::uint64_t other_transfer_id) noexcept {
  post(peer, {{.kind = kind,
               .context = context,
               .transfer_id = transfer_id,
               .other_transfer_id = other_transfer_id}});
}

void peers::lose(int peer, const char* what) noexcept {
  break_off(
      peer, errc::resources,
      fmt::format("out of memory for {}, so the connection to {} was broken off", what, describe(peer)));
}

void peers::reject(int peer, const char* what) noexcept {
  break_off(peer, errc::protocol,
            fmt::format("{} sent {}, so the connection to it was broken off. If all ranks are built with the "
                        "same tutti, suspect the memory or the network hardware of the two hosts",
                        describe(peer), what));
}

bool peers::admit_waiting(int peer) noexcept {
  if ((*this)[peer].waiting < most_waiting_messages) [[likely]] {
    ++(*this)[peer].waiting;
    return true;
  }
  break_off(
      peer, errc::resources,
      fmt::format("{} messages from {} wait for a receive, so the connection to it was broken off: post "
                  "receives sooner, or let the sender wait for its sends before it starts more",
                  most_waiting_messages, describe(peer)));
  return false;
}

void peers::break_off(int peer, errc why, std::string text) noexcept {
  if (gone(peer) || std::exchange((*this)[peer].lost, true)) return;
  link_to(peer).give_up(why, std::move(text));
}

void peers::send_credit(int peer) noexcept {
  peer_state& to = (*this)[peer];
  const std::uint64_t owed = std::exchange(to.owed, 0);
  to.eager_in -= std::min(to.eager_in, owed);
  post(peer, {{.kind = frame_kind::credit, .length = owed}});
}

}  // namespace tutti::p2p
