// SPDX-License-Identifier: Apache-2.0
// unexpected_queue: messages without a receive, and their memory. Such a message came before its receive, or
// its receive gave it up. probes: those that wait for such a message, which they leave in its queue, or take out
// for one receive (matched probes).
//
// Invariants: no message that is queued fits a probe that waits. From memory_of() to recycle() a message is
// queued in the matcher, held by a matched probe or its owner, or written by its link.
#pragma once

#include "base/object_pool.hpp"
#include "match/matcher.hpp"
#include "p2p/contexts.hpp"
#include "p2p/peers.hpp"
#include "p2p/transfer_states.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::p2p {

class probes {
 public:
  probes(core::progress_engine& engine, contexts& open, match::matcher& matching) noexcept
      : engine_(engine), contexts_(open), matcher_(matching) {}

  // Contracts: class endpoint.
  bool start(probe& p, std::uint32_t context, int source, int tag) noexcept;
  void release(probe& p) noexcept;
  void fail(probe& p, errc code, const std::string& text) noexcept;

  // Gives `u`, a message that has been queued, to the taker of its context. Without one completes the probes that it
  // fits: the first matched probe, or all others.
  void answer(unexpected& u) noexcept;
  // Fails the probes selected by `ends`.
  template <class Ends>
  void fail_if(const Ends& ends, const departure& why) noexcept {
    waiting_.for_each([&](probe& p) {
      if (ends(p)) fail(p, why.code, why.text);
    });
  }
  template <class F>
  void for_each(F f) const {
    waiting_.for_each(f);
  }

 private:
  void find_message(probe& p, unexpected& u) noexcept;

  core::progress_engine& engine_;
  contexts& contexts_;
  match::matcher& matcher_;
  base::intrusive_list<probe, probe_tag> waiting_;
};

class unexpected_queue {
 public:
  unexpected_queue(peers& all, match::matcher& matching, receive_ids& ids, probes& waiting) noexcept
      : peers_(all), matcher_(matching), ids_(ids), probes_(waiting) {}

  // Returns an empty message with this much memory, or nullptr if memory has run out.
  unexpected* memory_of(std::uint64_t bytes) noexcept;
  // Ends a message; its memory is used again. retire() also credits the sender of an eager message.
  void recycle(unexpected& u) noexcept;
  void retire(unexpected& u) noexcept;

  // Queues a message for which the matcher found no receive. Its head and peer are set. Returns false if there is no
  // memory for its name.
  bool keep(unexpected& u) noexcept;
  // Returns the posted receive that accepts a message whose receive gave it up. If there is none, queues the
  // message in its old place and returns nullptr.
  match::posted_receive* put_back(unexpected& u) noexcept;

  // Drops what comes for `u` from now on. To be recycled at once.
  void stop_arriving(unexpected& u) noexcept;
  // The link does not write to the memory of `u` any more, from which its message was redirected.
  void released(unexpected& u) noexcept;
  // Discards a message that will not come, or not completely. One that is held is lost, and stays with its holder.
  void discard(unexpected& u) noexcept;
  // Discards the queued rts frame of this message, which its sender takes back.
  void discard_rts(int peer, std::uint64_t transfer_id) noexcept;
  // Ends the messages of a context.
  void drop(std::uint32_t context) noexcept;
  // The same for the messages of one peer only.
  void drop(std::uint32_t context, int peer) noexcept;

  std::size_t in_use() const noexcept { return nodes_.in_use(); }

 private:
  void drop(unexpected& u) noexcept;
  void free_memory_of(unexpected& u) noexcept;
  void name(unexpected& u);

  peers& peers_;
  match::matcher& matcher_;
  receive_ids& ids_;
  probes& probes_;
  base::object_pool<unexpected> nodes_;
  std::size_t long_bytes_ = 0;  // memory of nodes that have more than a short message needs
};

}  // namespace tutti::p2p
