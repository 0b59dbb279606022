// SPDX-License-Identifier: Apache-2.0
// What the ranks of a vendor's communicator tell each other beside it, by a communicator of the host's: each
// has a receive pending from each other. So who dies, leaves or fails is known at once, and who has not
// called what is pending can be asked.
#pragma once

#include "device/attachment.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/work.hpp>
#include <tutti/scope.hpp>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::gpu::detail {

class companions {
 public:
  // How far a rank is: operations are numbered from 1.
  struct position {
    std::uint64_t sequence = 0;
    operation_kind last = operation_kind::barrier;
  };
  // Whose companions they are, and what it does when one arrives or fails; on the loop.
  class owner {
   public:
    virtual position where() const noexcept = 0;
    virtual void peer_gone(int peer, errc why, const std::string& text) noexcept = 0;
    virtual void peer_left(int peer) noexcept = 0;  // in order
    virtual void peer_failed(int peer, errc why, const std::string& text, bool keep) noexcept = 0;

   protected:
    ~owner() = default;
  };

  companions(owner& of, tutti::communicator control);
  companions(const companions&) = delete;
  companions& operator=(const companions&) = delete;

  void listen();
  const tutti::communicator& control() const noexcept { return control_; }
  // To all that are there. `keep`: what has failed can be shrunk.
  void say_failed(errc why, const std::string& text, bool keep) noexcept;
  void say_farewell() noexcept;
  // Who has not come to operation `sequence`, as the end of an error's text; empty: all have.
  task<std::string> who_is_missing(std::uint64_t sequence);

 private:
  struct note {
    enum : std::int32_t { ask = 1, answer, bye, failed };
    std::int32_t kind = 0;
    std::int32_t operation = 0;
    std::uint64_t sequence = 0;
    std::int32_t why = 0;
    std::int32_t keep = 0;
    char text[232] = {};
  };
  task<> hear(int peer);
  void tell(int peer, const note& n) noexcept;
  void tell_all(const note& n) noexcept;

  owner& owner_;
  tutti::communicator control_;
  std::vector<std::optional<note>> answers_;
  std::vector<bool> gone_;
  std::deque<std::pair<std::unique_ptr<note>, request>> telling_;
  scope hearing_;
};

}  // namespace tutti::gpu::detail
