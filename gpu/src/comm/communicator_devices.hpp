// SPDX-License-Identifier: Apache-2.0
// Operations of tutti::communicator on memory of devices.
#pragma once

#include "comm/device_group.hpp"
#include "comm/vendor.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/detail/call_part.hpp>
#include <tutti/gpu/open.hpp>
#include <vector>

namespace tutti::gpu::detail {

// The same in all that one process does, different in all others.
std::uint64_t this_process();

// What the ranks of a world have told each other in gpu::open.
struct introduction {
  std::uint64_t process = 0;  // the same in all that one process does
  std::uint64_t device = 0;   // hash of the driver's identity
  std::uint64_t place = 0;    // for NCCL, which refuses two ranks of one place
  std::uint64_t chunk_bytes = 0;
  std::int32_t backend = 0;
  std::int32_t nccl = 0;  // its version; 0: it cannot be used with this device
  std::int32_t why = 0;   // errc: it has no device
  char text[212] = {};
};

// Of a world.
struct world_devices final : tutti::detail::device_side {
  std::shared_ptr<attachment> on;
  open_options how;
  std::vector<introduction> ranks;  // of the world

  // Throws errc::invalid_argument where gpu::open has not been called.
  static world_devices& of(const communicator& c);
};

// Of a communicator; made when it is first needed.
class communicator_devices final : public tutti::detail::device_side {
 public:
  communicator_devices(const communicator& c, const world_devices& opened);
  static communicator_devices& of(const communicator& c);

  // Whether processes share a device, and it is still to be found out whether they can share its memory.
  bool looks_for_window() const noexcept { return looks_for_window_; }
  // The same on all ranks. Throws errc::not_supported for a backend that is forced and cannot.
  backend pick(const call& c) const;
  served_by explain(const call& c) const;
  // Carries out one operation, until all of it is in streams. Throws what ends it.
  task<> perform(work_state* w);
  // Null where it is not connected.
  const std::shared_ptr<vendor>& nccl() const noexcept { return nccl_.connected; }

 private:
  bool may_use(backend b, operation_kind kind) const noexcept;
  std::string_view why_not(backend b, const call& c) const noexcept;
  task<> find_window();
  struct library {
    communicator beside;  // for connecting it
    std::shared_ptr<vendor> connected;
  };
  task<> connect(backend b);

  const std::shared_ptr<attachment> on_;
  const open_options how_;
  std::shared_ptr<device_group> own_;
  bool looks_for_window_ = false;
  communicator notes_;  // of the window, until that is found
  library nccl_, oneccl_;
  int connecting_ = 0;  // operations that wait for it
  std::string why_not_nccl_, why_not_oneccl_;
};

// Of a call.
class device_call final : public tutti::detail::communicator_part, public stream_awaitable {
 public:
  // `extra`: of a batch, its messages.
  device_call(std::shared_ptr<stream_state> after, std::shared_ptr<const void> in,
              std::shared_ptr<const void> out, std::shared_ptr<const void> extra = {})
      : after_(std::move(after)), in_(std::move(in)), out_(std::move(out)), extra_(std::move(extra)) {}

  // What is wrong with the stream; empty: nothing.
  std::string bad_stream(const tutti::detail::call& what) const;
  // Throws errc::not_supported where a backend is forced that cannot serve the call.
  std::string bad_argument(const tutti::detail::call& what) const override;
  task<> execute(tutti::detail::operation_state& op) override;
  tutti::detail::part_ref again() const override {
    return tutti::detail::part_ref(new device_call(after_, in_, out_, extra_));
  }

  // As the backends have it.
  call made(const tutti::detail::call& what) const;
  void make_wait(stream_state& s) const override;
  const std::shared_ptr<work_state>& in_progress() const noexcept { return work_; }

 private:
  const std::shared_ptr<stream_state> after_;
  const std::shared_ptr<const void> in_, out_, extra_;
  std::shared_ptr<work_state> work_;  // of the operation in progress
};

}  // namespace tutti::gpu::detail
