// SPDX-License-Identifier: Apache-2.0
// NCCL, which serves collectives on CUDA memory where it can (tutti/gpu/open.hpp): availability, and features
// beyond tutti's operations. libnccl is opened at run time (2.18 or later).
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/task.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti::nccl {

// Says why NCCL cannot be used; empty if it can. (Whether it works with the GPUs here shows in the first
// collective.)
std::string why_not();
// NCCL's version: 22809 for 2.28.9; 0 without NCCL.
int version() noexcept;

// Messages of one rank that start together, so that rings and exchanges need no order among them.
class batch {
 public:
  // Adds a send.
  template <gpu::DeviceMemory B>
  batch& send(const B& data, int dest) {
    parts_.push_back({true, gpu::impl::view_of(data), dest});
    return *this;
  }
  // Adds a receive. Its count must equal that of the send.
  template <gpu::WritableDeviceMemory B>
  batch& recv(const B& data, int source) {
    parts_.push_back({false, gpu::impl::view_of(data), source});
    return *this;
  }
  struct part {
    bool sends;
    gpu::impl::view data;
    int peer;
  };
  const std::vector<part>& parts() const noexcept { return parts_; }

 private:
  std::vector<part> parts_;
};

// Exchanges the messages of all ranks by NCCL, without the host. A collective, in order with the others on
// `on`. Every rank calls it, with an empty batch if it has no message.
// Buffers: a device_buffer is kept; other memory stays valid until completion.
// Completes: when this rank's messages have been moved. A message that no rank receives keeps it waiting
// until its deadline.
// Errors: errc::not_supported if NCCL cannot be used on all ranks (gpu::backend_for says why).
operation<> exchange(const tutti::communicator& on, batch messages, const gpu::stream& after,
                     call_site where = call_site::current());

// Memory registered with NCCL. Collectives on registered buffers of all ranks avoid copies where NCCL can.
// The registration ends with its last handle, on the submit thread.
class registration {
 public:
  registration() noexcept = default;
  explicit registration(std::shared_ptr<void> state) noexcept : state_(std::move(state)) {}
  explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  std::shared_ptr<void> state_;
};

namespace impl {
task<registration> register_view(tutti::communicator on, gpu::impl::view memory);
task<std::pair<registration, void*>> allocate_bytes(tutti::communicator on, std::size_t bytes);
}  // namespace impl

// Registers memory for the collectives of `on`. Every rank of `on` calls it. Connects NCCL if it is not yet
// connected.
// Errors: errc::not_supported before NCCL 2.19, and if NCCL cannot be used.
template <gpu::DeviceMemory B>
task<registration> register_memory(const tutti::communicator& on, const B& memory) {
  return impl::register_view(on, gpu::impl::view_of(memory));
}
// Allocates memory by ncclMemAlloc, which NCCL uses best, on this rank's device: a span of `size` elements of
// T. It is freed with the last handle.
// Errors: those of register_memory; errc::resources.
template <class T>
task<std::pair<registration, gpu::device_span<T>>> allocate(tutti::communicator on, std::size_t size) {
  auto made = co_await impl::allocate_bytes(std::move(on), size * sizeof(T));
  co_return std::pair<registration, gpu::device_span<T>>(
      std::move(made.first), gpu::device_span<T>(static_cast<T*>(made.second), size));
}

}  // namespace tutti::nccl
