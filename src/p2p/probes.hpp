// SPDX-License-Identifier: Apache-2.0
// probes: the probes that wait for a message. They leave it in its queue.
//
// Invariant: no message that is queued fits a probe that waits.
#pragma once

#include "p2p/contexts.hpp"
#include "p2p/transfer_states.hpp"

#include <cstdint>
#include <string>

namespace tutti::p2p {

class probes {
 public:
  probes(core::engine& engine, contexts& open, match::matcher& matching) noexcept
      : engine_(engine), contexts_(open), matcher_(matching) {}

  // Contracts: class endpoint.
  bool start(probe& p, std::uint32_t context, int source, int tag) noexcept;
  void release(probe& p) noexcept;
  void fail(probe& p, errc code, const std::string& text) noexcept;

  // Completes the probes that `u` fits, a message that has been queued.
  void answer(const unexpected& u) noexcept;
  // Fails the probes selected by `ends`.
  template <class Ends>
  void fail_if(const Ends& ends, const departure& why) noexcept {
    for (probe* p = waiting_.front(); p != nullptr;) {
      probe* const next = waiting_.after(*p);
      if (ends(*p)) fail(*p, why.code, why.text);
      p = next;
    }
  }
  template <class F>
  void for_each(F f) const {
    for (const probe* p = waiting_.front(); p != nullptr; p = waiting_.after(*p)) f(*p);
  }

 private:
  core::engine& engine_;
  contexts& contexts_;
  match::matcher& matcher_;
  base::intrusive_list<probe, probe_tag> waiting_;
};

}  // namespace tutti::p2p
