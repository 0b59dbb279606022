// SPDX-License-Identifier: Apache-2.0
// unexpected_queue: messages without a receive, and their memory. Such a message came before its receive, or
// its receive gave it up.
//
// Invariant: a message taken by memory_of() is queued in the matcher, claimed by a receive, or still being
// written by its link, until recycle().
#pragma once

#include "match/matcher.hpp"
#include "p2p/peers.hpp"
#include "p2p/probes.hpp"
#include "p2p/transfer_states.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::p2p {

class unexpected_queue {
 public:
  unexpected_queue(peers& all, match::matcher& matching, receive_ids& ids, probes& waiting) noexcept
      : peers_(all), matcher_(matching), ids_(ids), probes_(waiting) {}
  unexpected_queue(const unexpected_queue&) = delete;
  ~unexpected_queue();

  // Returns a message with memory for so many bytes; nullptr: there is none.
  unexpected* memory_of(std::uint64_t bytes) noexcept;
  void recycle(unexpected& u) noexcept;
  // The same for a message that is gone: an eager one gives its credit back.
  void retire(unexpected& u) noexcept;

  // Queues a message for which the matcher found no receive, under its head and peer.
  void keep(unexpected& u) noexcept;
  // Queues a message whose receive gave it up in its old place. If a posted receive accepts it, does not queue
  // it and returns that receive.
  match::posted_receive* put_back(unexpected& u) noexcept;

  // Drops data frames for `u` from now on.
  void stop_arriving(unexpected& u) noexcept;
  // Discards a message that will not come, or not completely.
  void discard(unexpected& u) noexcept;
  // Discards the queued rts frame of this message, which its sender takes back.
  void discard_rts(int peer, std::uint64_t transfer_id) noexcept;
  // Discards all queued rts frames of a peer.
  void discard_rts_of(int peer) noexcept;
  // Drops the messages of a context.
  void drop(std::uint32_t context) noexcept;

  std::size_t in_use() const noexcept { return nodes_.size() - free_.size(); }

 private:
  unexpected* take_node(std::size_t bytes);
  void is_queued(unexpected& u) noexcept;

  peers& peers_;
  match::matcher& matcher_;
  receive_ids& ids_;
  probes& probes_;
  std::vector<std::unique_ptr<unexpected>> nodes_;
  std::vector<unexpected*> free_;
  base::intrusive_list<unexpected, rts_tag> unmatched_rts_;
};

}  // namespace tutti::p2p
