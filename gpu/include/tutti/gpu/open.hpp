// SPDX-License-Identifier: Apache-2.0
// open: the device of each rank, and with it operations of communicators on memory of devices.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/gpu/sycl_queue.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::gpu {

enum class device_kind : std::uint8_t { automatic, cuda, level_zero, emulated };
const char* name_of(device_kind kind) noexcept;

// What moves the data of operations on memory of devices.
enum class backend : std::uint8_t {
  automatic,
  nccl,        // NCCL, where each rank has a CUDA device of its own
  oneccl,      // oneCCL
  one_device,  // one kernel on the device that all ranks share
  staged       // through host memory and the host's algorithms, in chunks that overlap
};
const char* name_of(backend b) noexcept;

struct open_options {
  open_options() noexcept {}
  // automatic: CUDA, then Level Zero. TUTTI_DEVICE=auto|cuda|level_zero|emulated stands in its place.
  device_kind kind = device_kind::automatic;
  int ordinal = -1;  // of the device; -1: dealt out by the rank's number on its host
  // Of collectives. automatic: the first that can serve a call, oneCCL with a queue only. TUTTI_GPU_BACKEND=
  // auto|nccl|oneccl|one_device|staged stands in its place.
  gpu::backend backend = gpu::backend::automatic;
  oneccl::sycl_queue queue;  // for oneCCL on memory of the device
  std::size_t chunk_bytes =
      1 << 19;    // of what is staged; the same on all ranks. TUTTI_GPU_CHUNK in its place
  int depth = 4;  // chunks in flight
};

// This rank's device. Every rank of `world` calls it, and can from then on give memory of its device to the
// operations of `world`, and of all communicators of the same world, those made before and those made by group,
// split, duplicate and shrink. After rejoin() it is called again.
//
// Completes when all ranks have their device. Throws, on all ranks: errc::not_supported where one has no such device,
// saying what is missing and how to get the emulated one; errc::mismatch for different options. Cost: one all_gather
// on `world`; the device stays open until the last communicator of its world has gone.
//
// Such operations are those of tutti::communicator, in every form: in order with those on memory of the host, compared
// among the ranks, cancelled, timed out, recorded and explained as they are. What differs:
// - An operation starts when what is on its stream at that moment has passed. What comes on the stream later does not
//   wait for it: await it, or let the stream wait for the request (stream::wait).
// - It completes when the device has done it. Memory given as a device_span must stay until then, also when the
//   operation is ended early: the device may be in it. A device_buffer keeps its memory.
// - Messages from memory of devices are received, and probed, by calls with a stream, and by no others: a receive of the
//   wrong kind ends by its timeout, and its error says so.
// - Errors: errc::device_failed, too; errc::not_supported where a forced backend cannot serve the call.
// - with(algorithm) is of the host; the backend of collectives is chosen by open_options::backend. Messages are
//   staged, by chunks, with tags and any_source as on the host.
task<device> open(communicator world, open_options how = open_options());
// The same with a device that the program has opened.
task<> open(communicator world, device on, open_options how = open_options());

// Which backend serves a call, and why those before it do not.
struct served_by {
  struct refusal {
    gpu::backend by;
    std::string why;
  };
  gpu::backend with = gpu::backend::automatic;  // automatic: none, where one is forced that cannot
  std::vector<refusal> not_by;
};
// Of an operation on memory of a device that has not been started. Throws errc::invalid_argument for any other.
served_by backend_for(const tutti::detail::call& what);
template <class T>
served_by backend_for(const tutti::operation<T>& op) {
  return backend_for(op.what());
}

}  // namespace tutti::gpu
