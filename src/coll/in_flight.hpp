// SPDX-License-Identifier: Apache-2.0
// in_flight: a few transfers at a time: enough to keep links busy, few enough to bound a rank's memory.
#pragma once

#include "p2p/transfer.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <tutti/task.hpp>
#include <type_traits>

namespace tutti::coll {

// Constructs a transfer in place: transfers do not move. std::optional::emplace() takes this, and its
// conversion calls make().
template <class Make>
struct made_in_place {
  const Make& make;
  operator std::invoke_result_t<const Make&>() const { return make(); }
};

// Use:
//   for each transfer { co_await window.make_room(); window.start([&] { return c.send(...); }); }
//   co_await window.drain();
template <class Transfer, std::size_t Most = 4>
class in_flight {
 public:
  // Waits for the oldest transfer if all places are taken.
  task<> make_room() {
    if (places_[next_]) {
      co_await oldest();
      drop_oldest();
    }
  }
  template <class Make>
  void start(const Make& make) {
    places_[next_].emplace(made_in_place<Make>{make});
    next_ = (next_ + 1) % Most;
  }
  task<> drain() {
    while (places_[oldest_]) {
      co_await oldest();
      drop_oldest();
    }
  }
  // The first transfer of those that are left: to be awaited, and then dropped.
  Transfer& oldest() noexcept { return *places_[oldest_]; }
  void drop_oldest() noexcept {
    places_[oldest_].reset();
    oldest_ = (oldest_ + 1) % Most;
  }

 private:
  std::array<std::optional<Transfer>, Most> places_;
  std::size_t next_ = 0;
  std::size_t oldest_ = 0;
};

using sends_in_flight = in_flight<p2p::sending>;
using receives_in_flight = in_flight<p2p::receiving>;

}  // namespace tutti::coll
