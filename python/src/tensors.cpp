// SPDX-License-Identifier: Apache-2.0
#include "tensors.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <tutti/reduce_op.hpp>
#include <type_traits>
#include <utility>

namespace tutti::python {
namespace {

using extend::buffer_view;
using extend::fits;
using tutti::torch::type_of;

const char* name_of(c10d::ReduceOp::RedOpType op) noexcept {
  static constexpr const char* names[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                          "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  return op < std::size(names) ? names[op] : "this reduction";
}

template <class T>
void set_factor(extend::reduction& r, double factor) {
  if constexpr (std::is_same_v<T, bool>) {
    return;  // rejected by the caller
  } else if constexpr (extend::reduces<extend::premul_sum_op<double>, T>()) {
    r = extend::make_reduction<extend::premul_sum_op<double>, T>(premul_sum(factor));
  } else {
    r = extend::make_reduction<extend::premul_sum_op<std::int64_t>, T>(
        premul_sum(static_cast<std::int64_t>(factor)));
  }
}

}  // namespace

memory_range memory_of(const at::Tensor& t, bool written) {
  if (t.numel() == 0 || t._is_zerotensor()) return {};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
  const auto* const begin = static_cast<const std::byte*>(t.const_data_ptr());
  return {begin, begin + (static_cast<std::size_t>(last) + 1) * t.element_size(), written};
}

buffer_view none_of(buffer_view v) {
  v.data = nullptr;
  v.count = 0;
  return v;
}

at::Tensor real_of(const at::Tensor& t) {
  return t.scalar_type() == at::kComplexHalf ? at::view_as_real(t) : t;
}

extend::reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type, const char* operation) {
  if (type == at::kComplexHalf && (op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG))
    type = at::kHalf;
  const element_type elements = type_of(type);
  const bool boolean = elements == element_type::boolean;
  extend::reduction r;
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      r.kind = boolean ? reduce_kind::bor : reduce_kind::sum;
      break;
    case c10d::ReduceOp::PRODUCT:
      r.kind = boolean ? reduce_kind::band : reduce_kind::product;
      break;
    case c10d::ReduceOp::AVG:
      r.kind = reduce_kind::avg;
      break;
    case c10d::ReduceOp::MIN:
      r.kind = reduce_kind::min;
      break;
    case c10d::ReduceOp::MAX:
      r.kind = reduce_kind::max;
      break;
    case c10d::ReduceOp::BAND:
      r.kind = reduce_kind::band;
      break;
    case c10d::ReduceOp::BOR:
      r.kind = reduce_kind::bor;
      break;
    case c10d::ReduceOp::BXOR:
      r.kind = reduce_kind::bxor;
      break;
    case c10d::ReduceOp::PREMUL_SUM: {
      r.kind = reduce_kind::premul_sum;
      const auto* by = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK_VALUE(by != nullptr, "tutti: ", operation, ": PREMUL_SUM without a factor");
      const double factor =
          by->tensor_factor.defined() ? by->tensor_factor.item<double>() : by->double_factor;
      TORCH_CHECK_VALUE(!extend::is_integer(elements) || factor == std::trunc(factor), "tutti: ", operation,
                        ": PREMUL_SUM of ", c10::toString(type), " takes an integer factor, not ", factor);
      tutti::torch::for_each_type([&]<class T>(at::ScalarType each, std::type_identity<T>) {
        if (each == type) set_factor<T>(r, factor);
      });
      break;
    }
    default:
      break;
  }
  TORCH_CHECK_VALUE(fits(r.kind, elements), "tutti: ", operation, ": ", name_of(op.op_), " of ",
                    c10::toString(type), " is not defined");
  return r;
}

const char* title_of(const std::string& backend, const char* operation) {
  static std::mutex mutex;
  static auto* const titles = new std::map<std::pair<std::string, const char*>, std::string>;
  thread_local std::pair<const char*, const char*> last{};  // cache for the usual backend name
  if (backend == "tutti" && last.first == operation) return last.second;
  const std::scoped_lock hold(mutex);
  auto [at, made] = titles->try_emplace({backend, operation});
  if (made) at->second = backend + ":" + operation;
  if (backend == "tutti") last = {operation, at->second.c_str()};
  return at->second.c_str();
}

void check_tensor(const at::Tensor& t, const char* operation) {
  TORCH_CHECK_VALUE(t.defined(), "tutti: ", operation, ": a tensor is undefined");
  TORCH_CHECK_VALUE(!t.is_meta(), "tutti: ", operation, ": the tensor is on meta: it has no elements");
  TORCH_CHECK_VALUE(t.layout() == at::kStrided, "tutti: ", operation, ": the tensor is ", t.layout(),
                    "; only all_reduce takes sparse tensors");
}

const at::Tensor& only(const tensors& list, const char* operation) {
  TORCH_CHECK_VALUE(list.size() == 1, "tutti: ", operation, " takes one tensor of each rank, and got ",
                    list.size());
  check_tensor(list[0], operation);
  return list[0];
}

void check_same(const at::Tensor& t, const at::Tensor& first, const char* operation) {
  check_tensor(t, operation);
  TORCH_CHECK_VALUE(t.scalar_type() == first.scalar_type(), "tutti: ", operation,
                    ": tensor list must have identical type, and has ", c10::toString(first.scalar_type()),
                    " and ", c10::toString(t.scalar_type()));
}

bool is_plain(const at::Tensor& t, c10::Device at) {
  return (at.is_cpu() ? t.is_cpu() : t.device() == at) && t.is_contiguous() && !t.is_conj() && !t.is_neg() &&
         !t._is_zerotensor();
}

at::Tensor copied_to(c10::Device at, const at::Tensor& t) {
  const at::NoGradGuard no_grad;
  const at::Tensor made = empty_on(at, t.sizes(), t);
  made.copy_(t);
  return made;
}

// A GPU copies pinned memory several times as fast. PyTorch keeps and reuses what is freed.
at::Tensor empty_on(c10::Device at, at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, at::TensorOptions()
                              .dtype(like.scalar_type())
                              .device(at)
                              .pinned_memory(at.is_cpu() && (like.is_cuda() || like.is_xpu())));
}

void settle_copies(c10::Device at, const at::Tensor& t) {
  if (!at.is_cpu() ? t.device() != at || t._is_zerotensor() : !t.is_cuda() && !t.is_xpu()) return;
  const c10::impl::VirtualGuardImpl device(t.device().type());
  const c10::Stream current = device.getStream(t.device());
  if (at.is_cpu())
    device.synchronizeStream(current);
  else
    device.recordDataPtrOnStream(t.storage().data_ptr(), current);
}

std::size_t total(const tensors& list) {
  std::size_t sum = 0;
  for (const at::Tensor& t : list) sum += static_cast<std::size_t>(t.numel());
  return sum;
}

bool all_alike(const tensors& list) {
  return std::ranges::all_of(list, [&](const at::Tensor& t) { return t.numel() == list[0].numel(); });
}

at::Tensor joined(c10::Device at, const tensors& from) {
  const at::Tensor flat = empty_on(at, {static_cast<std::int64_t>(total(from))}, from[0]);
  const at::NoGradGuard no_grad;
  std::int64_t first = 0;
  for (const at::Tensor& t : from) {
    flat.narrow(0, first, t.numel()).view(t.sizes()).copy_(t);
    first += t.numel();
  }
  return flat;
}

void parted(const at::Tensor& flat, const tensors& to) {
  std::int64_t at = 0;
  for (const at::Tensor& t : to) {
    t.copy_(flat.narrow(0, at, t.numel()).view(t.sizes()));
    at += t.numel();
  }
}

}  // namespace tutti::python
