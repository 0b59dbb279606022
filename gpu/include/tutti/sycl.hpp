// SPDX-License-Identifier: Apache-2.0
// A SYCL queue for oneCCL. This header has contents only where the compiler finds SYCL's headers. A SYCL
// compiler is not needed; the program links the SYCL runtime (-lsycl).
#pragma once

#include <tutti/oneccl.hpp>

#if __has_include(<sycl/sycl.hpp>)
#include <sycl/sycl.hpp>

#include <memory>

namespace tutti::oneccl {

// Makes gpu::open_options::queue from a SYCL queue, to which oneCCL submits its work. An operation ends
// together with the other work in the queue.
// Buffers: must be known to the queue's context: its own USM, passed as a device_span, or host memory.
// Tutti's Level Zero memory belongs to another context. The queue is kept as long as the world's
// communicators live.
// Errors: device errors that wait_and_throw() throws end the operation with errc::device_failed.
inline sycl_queue queue_of(const ::sycl::queue& q) {
  const auto held = std::make_shared<::sycl::queue>(q);  // another handle of the same queue
  sycl_queue made;
  made.handle = held.get();
  made.finish = [held] { held->wait_and_throw(); };
  return made;
}

}  // namespace tutti::oneccl
#endif
