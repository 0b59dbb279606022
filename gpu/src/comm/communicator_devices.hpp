// SPDX-License-Identifier: Apache-2.0
// Operations of tutti::communicator on device memory.
#pragma once

#include "comm/device_group.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/extend/executor_part.hpp>
#include <tutti/extend/side_channel.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti {

namespace gpu::impl {

// A vendor's library, connected for the ranks of one communicator.
class vendor {
 public:
  virtual ~vendor() = default;
  // Carries out one operation that the library can serve, after w->what.ready. Takes its place in the order
  // and ends its turn before it first waits.
  // Completes: when all its work is in streams.
  // Cancellation: destroying the frame, or w->stop later, ends the connection with all that is pending: the
  // library takes nothing back. The other ranks learn of it through the operation's communicator.
  virtual task<> perform(work_state* w, device_group::turn* mine) = 0;
};

}  // namespace gpu::impl

// Each library has a function that connects the ranks of `control`, a collective, and one that says why it cannot
// serve a call. The text is empty if it can, and the same on all ranks.
namespace nccl {
class idle_communicators;
task<std::shared_ptr<gpu::impl::vendor>> connect(communicator control, gpu::device on);
// NCCL loads its kernels and makes room for their stack with its first communicator, which must not come behind a
// gate: the first call for a device makes one of one rank. Cost: a tenth of a second.
task<> load_kernels(gpu::device on);
std::string_view why_not_by_nccl(const gpu::impl::device_arguments& c) noexcept;
}  // namespace nccl
namespace oneccl {
task<std::shared_ptr<gpu::impl::vendor>> connect(communicator control, gpu::device on, sycl_queue queue);
std::string_view why_not_by_oneccl(const gpu::impl::device_arguments& c, bool by_queue) noexcept;
}  // namespace oneccl

namespace gpu::impl {

// What each rank tells all others in gpu::open.
struct introduction {
  std::uint64_t process = 0;  // this_process()
  std::uint64_t device = 0;   // hash of the driver's identity
  std::uint64_t place = 0;    // hash; NCCL rejects two ranks with the same place
  std::uint64_t chunk_bytes = 0;
  std::int32_t backend = 0;
  std::int32_t nccl = 0;  // version of NCCL; 0: not usable with this device
  std::int32_t processes_at_once = 0;
  failure_text<976> failure;  // why the rank has no device
};

// Devices of the ranks of a world.
struct world_devices final {
  std::shared_ptr<attachment> on;
  open_options how;
  std::vector<introduction> ranks;  // indexed by world rank
  std::shared_ptr<nccl::idle_communicators> idle;

  // Throws errc::invalid_argument if gpu::open has not been called.
  static world_devices& of(const communicator& c);
  // Where they are kept with the world; null before gpu::open.
  static std::shared_ptr<void>& place_of(const communicator& c);
  // Why NCCL cannot connect these ranks of the world; empty if it can.
  std::string why_not_nccl(const std::vector<int>& members) const;
};

// The backends of one communicator. Made on first use.
class communicator_devices final {
 public:
  communicator_devices(const communicator& c, const world_devices& opened);
  static communicator_devices& of(const communicator& c);

  bool looks_for_window() const noexcept { return own_->looks_for_window(); }
  // Returns the same backend on all ranks. Throws errc::not_supported if no allowed backend serves `c`.
  backend pick(const device_arguments& c) const;
  served_by explain(const device_arguments& c) const;
  // Carries out one operation. Completes when all its work is in streams; throws the error that ended it.
  task<> perform(work_state* w);
  // Null until NCCL is connected.
  const std::shared_ptr<vendor>& nccl() const noexcept { return nccl_.connected; }

 private:
  bool may_use(backend b, operation_kind kind) const noexcept;
  std::string_view why_not(backend b, const device_arguments& c) const noexcept;
  struct library {
    communicator beside;  // used once, to connect
    std::shared_ptr<vendor> connected;
  };

  const std::shared_ptr<attachment> on_;
  const open_options how_;
  std::shared_ptr<device_group> own_;
  library nccl_, oneccl_;
  int taking_turns_ = 0;      // operations that wait for a connection, or for memory to be freed
  const std::string forced_;  // why the other backends do not serve, if one is forced
  std::string why_not_nccl_, why_not_oneccl_;
};

// The device part of a call.
class device_call final : public tutti::extend::executor_part, public working_part {
 public:
  // `extra` holds the messages of a batch.
  device_call(std::shared_ptr<stream_state> after, std::shared_ptr<const void> in,
              std::shared_ptr<const void> out, std::shared_ptr<const void> extra = {})
      : after_(std::move(after)), in_(std::move(in)), out_(std::move(out)), extra_(std::move(extra)) {}

  // Why the stream cannot be used; empty if it can.
  std::string bad_stream(const tutti::extend::call& what) const;
  // Throws errc::not_supported if no allowed backend serves the call.
  std::string bad_argument(const tutti::extend::call& what) const override;
  task<> execute(tutti::extend::operation_state& op) override;
  tutti::extend::part_ref again() const override {
    return tutti::extend::part_ref(new device_call(after_, in_, out_, extra_));
  }

  // The call as backends see it.
  device_arguments made(const tutti::extend::call& what) const;

 private:
  const std::shared_ptr<stream_state> after_;
  const std::shared_ptr<const void> in_, out_, extra_;
};

}  // namespace gpu::impl
}  // namespace tutti
