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
      co_await *places_[next_];
      places_[next_].reset();
    }
  }
  template <class Make>
  void start(const Make& make) {
    places_[next_].emplace(made_in_place<Make>{make});
    next_ = (next_ + 1) % Most;
  }
  task<> drain() {
    for (std::size_t i = 0; i < Most; ++i) {
      std::optional<Transfer>& place = places_[(next_ + i) % Most];
      if (!place) continue;
      co_await *place;
      place.reset();
    }
  }

 private:
  std::array<std::optional<Transfer>, Most> places_;
  std::size_t next_ = 0;
};

using sends_in_flight = in_flight<p2p::sending>;
using receives_in_flight = in_flight<p2p::receiving>;

}  // namespace tutti::coll
