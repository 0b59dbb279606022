// SPDX-License-Identifier: Apache-2.0
// communicator_home: what a communicator, and an agreement of its members, need of the world that they are in.
#pragma once

#include "comm/host_segments.hpp"
#include "core/loop.hpp"
#include "core/world_info.hpp"
#include "p2p/endpoint.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::comm {

class communicator_state;

// The open communicators of a world on this rank, in the order in which they were made.
class open_communicators {
 public:
  void add(std::uint32_t id, communicator_state& c) { all_.emplace_back(id, &c); }
  // Call it before add(), which then cannot fail.
  void reserve_one() { all_.reserve(all_.size() + 1); }
  void remove(const communicator_state& c) noexcept {
    std::erase_if(all_, [&c](const auto& one) { return one.second == &c; });
  }
  communicator_state* find(std::uint32_t id) const noexcept {  // null: it is not open
    const auto found = std::ranges::find(all_, id, &entry::first);
    return found != all_.end() ? found->second : nullptr;
  }
  // Calls f(communicator_state&) for each; f may close and fail any of them.
  template <class F>
  void for_each(const F& f) const {
    for (const entry& one : std::vector(all_))
      if (std::ranges::find(all_, one.second, &entry::second) != all_.end()) f(*one.second);
  }
  // Whether f(const communicator_state&) is true of one of them. f changes nothing.
  template <class F>
  bool any(const F& f) const {
    return std::ranges::any_of(all_, [&f](const entry& one) { return f(std::as_const(*one.second)); });
  }
  bool empty() const noexcept { return all_.empty(); }
  std::size_t size() const noexcept { return all_.size(); }

 private:
  using entry = std::pair<std::uint32_t, communicator_state*>;
  std::vector<entry> all_;
};

class communicator_home {
 public:
  virtual core::loop& loop() noexcept = 0;
  virtual const core::world_info& info() const noexcept = 0;
  virtual p2p::endpoint& endpoint() noexcept = 0;
  virtual const open_communicators& communicators() const noexcept = 0;
  // Returns a number for a new communicator that no other rank of this world gives out. Throws errc::resources at the
  // end of the range (2^28 / size of the world).
  virtual std::uint32_t next_communicator_id() = 0;
  // Whether this rank can open a communicator of this number.
  virtual bool is_free(std::uint32_t id) const noexcept = 0;
  // The neighbours of the transport by which all `members` reach each other, if they can read each other's memory;
  // otherwise null.
  virtual transport::neighbours* memory_of(const std::vector<int>& members) const noexcept = 0;
  // Whether `peer`, a rank of the world, is waited for and makes no progress.
  virtual bool suspects(int peer) const noexcept = 0;
  // Whether nothing comes from the host of `peer` any more, so that all its ranks are in doubt.
  virtual bool is_on_silent_host(int peer) const noexcept = 0;
  // Another rank says so.
  virtual void note_silent_host(int peer) = 0;
  // The last handle of `c` has gone, and the runtime still runs: destroys it. Others may still read its segment.
  virtual void close(communicator_state& c, std::unique_ptr<host_segments> left) noexcept = 0;

 protected:
  ~communicator_home() = default;
};

}  // namespace tutti::comm
