// SPDX-License-Identifier: Apache-2.0
// A SYCL queue for oneCCL. There is something in here where the compiler finds SYCL's headers
// only; a compiler of SYCL's own is not needed, and the program links its runtime (-lsycl).
#pragma once

#include <tutti/gpu/sycl_queue.hpp>

#if __has_include(<sycl/sycl.hpp>)
#include <sycl/sycl.hpp>

#include <memory>

namespace tutti::oneccl {

// For gpu::open_options::queue: oneCCL's work goes into `q`, and ends with what else is in it. It is kept as long as the
// world's communicators live; errors of the device, which wait_and_throw() throws, end the operation with
// errc::device_failed. Memory given to operations must be known to the queue's context: USM of its own, lent as a
// device_span, or host memory; Level Zero's memory of tutti is of another context.
inline sycl_queue queue_of(const ::sycl::queue& q) {
  const auto held = std::make_shared<::sycl::queue>(q);  // a name of the same queue
  sycl_queue made;
  made.handle = held.get();
  made.finish = [held] { held->wait_and_throw(); };
  return made;
}

}  // namespace tutti::oneccl
#endif
