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

using tutti::torch::view_of;
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
// Whether its elements lie in host memory in order, as they are: not as those of `x.conj()`, `x.imag` of such a tensor,
// or a zero tensor of autograd, which has no memory.
bool is_plain(const at::Tensor& t);
// A contiguous copy in host memory. A device tensor is copied after the work of its current stream.
at::Tensor on_host(const at::Tensor& t);
at::Tensor empty_on_host(at::IntArrayRef sizes, const at::Tensor& like);
// Waits until the current stream has finished its work on the tensor.
void wait_for_device(const at::Tensor& t);
std::size_t total(const tensors& list);
bool all_alike(const tensors& list);
// The elements of `from` in one piece.
at::Tensor joined(const tensors& from);
void parted(const at::Tensor& flat, const tensors& to);

}  // namespace tutti::python
