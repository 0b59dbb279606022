// SPDX-License-Identifier: Apache-2.0
// open: opens the device of each rank, and with it the operations of communicators on device memory.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/oneccl.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::gpu {

// The kind of a device.
enum class device_kind : std::uint8_t { automatic, cuda, level_zero, emulated };
const char* name_of(device_kind kind) noexcept;

// The library that moves the data of operations on device memory.
enum class backend : std::uint8_t {
  automatic,
  // NCCL, where each rank has a CUDA device of its own.
  nccl,
  // oneCCL, with a queue or through host memory.
  oneccl,
  // One kernel on the device that all ranks share.
  one_device,
  // Through host memory and the host's algorithms, in overlapping chunks.
  staged
};
const char* name_of(backend b) noexcept;

// How gpu::open chooses the device and the backend. `backend` and `chunk_bytes` are the same on all ranks.
struct open_options {
  open_options() noexcept {}
  // Automatic: CUDA, then Level Zero. TUTTI_DEVICE=auto|cuda|level_zero|emulated overrides it.
  device_kind kind = device_kind::automatic;
  // Ordinal of the device; -1: by the rank's number on its host.
  int ordinal = -1;
  // The backend of collectives. automatic: the first one that can serve a call; oneCCL only with a queue.
  // TUTTI_GPU_BACKEND=auto|nccl|oneccl|one_device|staged overrides it.
  gpu::backend backend = gpu::backend::automatic;
  // A queue for oneCCL to work on device memory.
  oneccl::sycl_queue queue;
  // Chunk size of staged data, the same on all ranks. TUTTI_GPU_CHUNK overrides it.
  std::size_t chunk_bytes = 1 << 21;
  // Chunks in flight.
  int depth = 4;
};

// Opens and returns this rank's device. Every rank of `world` calls it. From then on operations of `world`
// accept memory of the device, and so do all communicators of the same world, made before or after. Call it
// again after rejoin().
// Completes: when all ranks have their device. It stays open until the last communicator of its world has
// gone.
// Errors: on all ranks: errc::not_supported if a rank has no such device, saying what is missing and how to
// get the emulated one. errc::mismatch for different options. errc::device_failed if NCCL does not start on a rank.
// Cost: one duplicate() of `world`, one all_gather, and another where NCCL serves. The libraries start on the compute
// pool, which takes hundreds of milliseconds; the loop goes on meanwhile.
//
// Operations on device memory are those of tutti::communicator, in every form. They are ordered with those on
// host memory, compared among the ranks, cancelled, timed out, recorded and explained in the same way. The
// differences are:
// - An operation starts when its stream has passed the work on it at that moment. Later work on the stream
//   does not wait for the operation: await it, or let the stream wait for the request (stream::wait).
// - It completes when the device has done it. Memory given as a device_span must stay valid until then, even
//   if the operation is ended early: the device may still use it. A device_buffer keeps its memory alive.
// - Messages from device memory are received and probed by calls with a stream.
// - Additional errors are errc::device_failed, and errc::not_supported if a selected backend cannot serve the
//   call.
// - with(algorithm) applies to host algorithms; open_options::backend selects the backend of collectives.
//   Messages are staged in chunks, with tags and any_source as on the host.
task<device> open(communicator world, open_options how = open_options());
// Like open above, with a device that the program has opened.
task<> open(communicator world, device on, open_options how = open_options());

// The backend that serves a call, and the reasons against those before it.
struct served_by {
  // A backend that cannot serve the call, and why.
  struct refusal {
    gpu::backend by;
    std::string why;
  };
  // `automatic`: none, because the selected one cannot serve the call.
  gpu::backend with = gpu::backend::automatic;
  std::vector<refusal> not_by;
};
// Returns the backend of an operation on device memory that has not been started.
// Errors: throws errc::invalid_argument for any other operation.
served_by backend_for(const tutti::extend::call& what);
template <class T>
served_by backend_for(const tutti::operation<T>& op) {
  return backend_for(op.what());
}

}  // namespace tutti::gpu
