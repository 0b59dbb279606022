// SPDX-License-Identifier: Apache-2.0
// What tensors and reductions of torch are to tutti.
#pragma once

#include <cstddef>
#include <string>
#include <tutti/extend/call.hpp>
#include <tutti/torch/tensor.hpp>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tutti::python {

using tensors = std::vector<at::Tensor>;

using tutti::torch::elements_of;

// The memory from a tensor's first element to its last.
struct memory_range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool written = false;

  bool conflicts(const memory_range& other) const noexcept {
    return begin < other.end && other.begin < end && (written || other.written);
  }
};
memory_range memory_of(const at::Tensor& t, bool written);
// An empty view of that element type.
extend::buffer_view none_of(extend::buffer_view v);
// c10d's reduction for this element type. For bool, SUM and PRODUCT are "or" and "and".
extend::reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type, const char* operation);
// Returns "tutti:all_reduce", for example. Strings live for ever, because the profiler keeps the pointer.
const char* title_of(const std::string& backend, const char* operation);
// A complex32 tensor as its real and imaginary parts, which reductions take; any other as it is.
at::Tensor real_of(const at::Tensor& t);
void check_tensor(const at::Tensor& t, const char* operation);
const at::Tensor& only(const tensors& list, const char* operation);
void check_same(const at::Tensor& t, const at::Tensor& first, const char* operation);
// Whether its elements lie in memory of `at` in order, as they are: not as those of `x.conj()`, `x.imag` of such a
// tensor, or a zero tensor of autograd, which has no memory.
bool is_plain(const at::Tensor& t, c10::Device at);
// A contiguous copy in memory of `at`, after the work of the current stream.
at::Tensor copied_to(c10::Device at, const at::Tensor& t);
at::Tensor empty_on(c10::Device at, at::IntArrayRef sizes, const at::Tensor& like);
// Before an operation at `at` of which a copy will write the tensor, or after a copy there has read it. On the host:
// waits until the device has finished the work of its current stream on the tensor. On the device: the tensor's memory
// is not given to others until the copies on the current stream have ended.
void settle_copies(c10::Device at, const at::Tensor& t);
std::size_t total(const tensors& list);
bool all_alike(const tensors& list);
// The elements of `from` in one piece of memory of `at`.
at::Tensor joined(c10::Device at, const tensors& from);
void parted(const at::Tensor& flat, const tensors& to);

}  // namespace tutti::python
