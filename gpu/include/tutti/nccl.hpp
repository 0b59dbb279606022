// SPDX-License-Identifier: Apache-2.0
// NCCL at the loop: its collectives as awaitables. libnccl is opened at run time (2.18 or later).
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/cuda.hpp>
#include <tutti/gpu/any_communicator.hpp>
#include <tutti/task.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::nccl {

class group_impl;

// Why NCCL cannot be used; empty: it can. (Whether it works with the GPUs here shows in init().)
std::string why_not();
// 22809 for 2.28.9; 0 without.
int version() noexcept;

// Messages that begin together, so that rings and exchanges need no order among them.
class batch {
 public:
  template <class B>
    requires gpu::DeviceMemory<B>
  batch& send(const B& data, int dest) {
    add(true, gpu::detail::view_of(data), dest);
    return *this;
  }
  template <class B>
    requires gpu::WritableDeviceMemory<B>
  batch& recv(const B& data, int source) {
    add(false, gpu::detail::view_of(data), source);
    return *this;
  }
  struct part {
    bool sends;
    gpu::detail::view data;
    int peer;
  };
  const std::vector<part>& parts() const noexcept { return parts_; }

 private:
  void add(bool sends, gpu::detail::view data, int peer) {
    parts_.push_back(part{sends, std::move(data), peer});
  }
  std::vector<part> parts_;
};

// Memory that NCCL knows: collectives on registered buffers of all ranks go without copies, where NCCL can.
// Ends with the last handle, on the submit thread.
class registration {
 public:
  registration() noexcept = default;
  explicit registration(std::shared_ptr<void> state) noexcept : state_(std::move(state)) {}
  explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  std::shared_ptr<void> state_;
};

// A NCCL communicator. A handle; belongs to its device's loop.
//
// The operations are those of all device communicators. NCCL is called by the device's submit thread, in
// the order in which operations were started; the loop never is in NCCL. Operations run on a stream of the
// communicator's own. Of several communicators on one device, all ranks start their operations in one order;
// one that waits for a rank holds up the submit thread.
//
// send and recv have no tags, and a recv takes exactly what was sent; several that must begin together go in
// a batch. avg and premul_sum are NCCL's own; callables and bitwise reductions are errc::not_supported.
//
// No operation waits for ever: after the time limit of the communicator that this was made from, and when a
// rank has died or left, NCCL's communicator is aborted, and everything pending ends with errc::timed_out,
// errc::peer_failed or errc::peer_left; the text names the ranks that had not called the operation.
class communicator : public gpu::any_communicator {
 public:
  communicator() noexcept = default;
  explicit communicator(std::shared_ptr<group_impl> impl) noexcept;

  gpu::operation run(const batch& messages, const gpu::stream& after) const;

  // As communicator::split of the host: for each color one, ordered by key; empty for a negative color.
  task<communicator> split(int color, int key) const;
  // Of the ranks of `survivors`, a host communicator of some of this one's ranks: without the others, which
  // may have died. With NCCL 2.27 what is pending is ended and NCCL's state reused; before, a new one is
  // made.
  task<communicator> shrink(tutti::communicator survivors) const;
  // Ends what is pending here and on the other ranks, with errc::cancelled. With NCCL 2.28.7 the
  // communicator's memory stays usable for shrink().
  void revoke() const;
  // The same, and nothing stays.
  void abort() const;

  // errc::not_supported before NCCL 2.19.
  template <gpu::DeviceMemory B>
  task<registration> register_memory(const B& memory) const {
    return register_view(gpu::detail::view_of(memory));
  }
  // Memory as NCCL likes it best (ncclMemAlloc); a span of T.
  template <class T>
  task<std::pair<registration, gpu::device_span<T>>> allocate(std::size_t size) const {
    auto made = co_await allocate_bytes(size * sizeof(T));
    co_return std::pair<registration, gpu::device_span<T>>(
        std::move(made.first), gpu::device_span<T>(static_cast<T*>(made.second), size));
  }

 private:
  task<registration> register_view(gpu::detail::view memory) const;
  task<std::pair<registration, void*>> allocate_bytes(std::size_t bytes) const;
  std::shared_ptr<group_impl> impl_;
};

// Made by all ranks of `world` together, each with a device of its own (NCCL refuses two ranks on one). The
// id goes over `world`, and a first collective connects the ranks. Errors: errc::not_supported without NCCL,
// errc::device_failed with NCCL's words, errc::timed_out.
task<communicator> init(tutti::communicator world, gpu::device on);

}  // namespace tutti::nccl
