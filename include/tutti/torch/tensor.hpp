// SPDX-License-Identifier: Apache-2.0
// Tensors of PyTorch as buffers of every operation. Part of tutti/torch.hpp; needs PyTorch's headers.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/extend/call.hpp>

#include <ATen/core/Tensor.h>

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::torch {

// Calls f(type, std::type_identity<T>{}) for each type of tensors with arithmetic, where T is that of its elements.
template <class F>
void for_each_type(F f) {
  f(at::kBool, std::type_identity<bool>{});
  f(at::kChar, std::type_identity<std::int8_t>{});
  f(at::kByte, std::type_identity<std::uint8_t>{});
  f(at::kShort, std::type_identity<std::int16_t>{});
  f(at::kUInt16, std::type_identity<std::uint16_t>{});
  f(at::kInt, std::type_identity<std::int32_t>{});
  f(at::kUInt32, std::type_identity<std::uint32_t>{});
  f(at::kLong, std::type_identity<std::int64_t>{});
  f(at::kUInt64, std::type_identity<std::uint64_t>{});
  f(at::kFloat, std::type_identity<float>{});
  f(at::kDouble, std::type_identity<double>{});
  f(at::kHalf, std::type_identity<float16>{});
  f(at::kBFloat16, std::type_identity<bfloat16>{});
  f(at::kComplexFloat, std::type_identity<std::complex<float>>{});
  f(at::kComplexDouble, std::type_identity<std::complex<double>>{});
}

// Opaque for types without arithmetic (float8 and others).
inline element_type type_of(at::ScalarType type) noexcept {
  element_type found = element_type::opaque;
  for_each_type([&]<class T>(at::ScalarType each, std::type_identity<T>) {
    if (each == type) found = extend::element_type_of<T>();
  });
  return found;
}

// Whether its memory is a device's that gpu::open opens.
inline bool is_on_device(const at::Tensor& t) noexcept { return t.is_cuda() || t.is_xpu(); }

// The elements of a tensor that lie in order, in memory of any place.
inline extend::buffer_view elements_of(const at::Tensor& t) {
  extend::buffer_view view;
  view.data = t.mutable_data_ptr();
  view.count = static_cast<std::size_t>(t.numel());
  view.element_bytes = static_cast<std::uint32_t>(t.element_size());
  view.type = type_of(t.scalar_type());
  return view;
}

inline extend::buffer_view view_of(const at::Tensor& t) noexcept {
  if (!t.defined() || !(t.is_cpu() || is_on_device(t)) || t.layout() != at::kStrided)
    return {};  // refused by why_not
  return elements_of(t);
}

namespace impl {

// Why these cannot be buffers of one operation, or empty.
inline std::string why_not(const std::vector<at::Tensor>& all, bool with_stream) {
  for (const at::Tensor& t : all) {
    if (!t.defined()) return "a tensor is undefined; give it memory, such as torch::empty(...)";
    if (t.layout() != at::kStrided) return "a tensor is sparse; t.to_dense() is one that can be sent";
    if (t.device() != all.front().device())
      return "tensors are on different devices, " + all.front().device().str() + " and " + t.device().str();
    if (with_stream && t.is_cpu()) return "a tensor is on the CPU, and its operation takes no stream";
    if (!t.is_cpu() && !is_on_device(t))
      return "a tensor is on " + t.device().str() + ", which tutti::gpu does not open; send t.cpu()";
    if (!t.is_cpu() && !with_stream)
      return "a tensor is on " + t.device().str() +
             ": name last the stream that the operation comes after, of gpu::open's device, or send t.cpu()";
    if (!t.is_contiguous()) return "a tensor is not contiguous; t.contiguous() is a copy that is";
    if (t.is_conj() || t.is_neg()) return "a tensor is a lazy conjugate; t.resolve_conj() is its values";
    if (t.scalar_type() != all.front().scalar_type())
      return std::string("tensors are of different types, ") + c10::toString(all.front().scalar_type()) +
             " and " + c10::toString(t.scalar_type()) + "; t.to(type) converts one";
  }
  return {};
}

// The part of a call on tensors: keeps them alive until the operation has ended.
class tensor_part final : public extend::call_part {
 public:
  tensor_part(std::vector<at::Tensor> kept, std::string wrong)
      : call_part(false), kept_(std::move(kept)), wrong_(std::move(wrong)) {}
  std::string bad_argument(const extend::call& what) const override {
    if (!wrong_.empty()) return wrong_;
    if (row_of(what.kind).reduces && what.op.kind != reduce_kind::user &&
        !extend::fits(what.op.kind, what.out.type))
      return std::string("this reduction is not defined for elements of ") +
             c10::toString(kept_.front().scalar_type()) +
             " (premul_sum of integers takes an integer factor, a callable its own type); "
             "t.to(torch::kFloat) converts them";
    return {};
  }

 private:
  std::vector<at::Tensor> kept_;
  std::string wrong_;
};

// Those on a device are kept until the device has passed the operation.
inline extend::part_ref part_of_tensors(const extend::maybe_on_stream& from, std::vector<at::Tensor> all) {
  std::string wrong = why_not(all, from.after != nullptr);
  if (from.after == nullptr || !wrong.empty())
    return extend::part_ref(new tensor_part(std::move(all), std::move(wrong)));
  return from.after->part_of(std::make_shared<const std::vector<at::Tensor>>(std::move(all)));
}

// T of a callable T(T, T).
template <class T, class... Arguments>
std::type_identity<T> result_of(T (*)(Arguments...));
template <class T, class Callable, class... Arguments>
std::type_identity<T> result_of(T (Callable::*)(Arguments...) const);
template <class Op>
auto reduced_by(const Op& op) {
  if constexpr (requires { result_of(op); })
    return decltype(result_of(op)){};
  else if constexpr (requires { result_of(&Op::operator()); })
    return decltype(result_of(&Op::operator())){};
  else
    static_assert(
        sizeof(Op) == 0,
        "tutti: a callable that reduces tensors names its type, such as [](float a, float b) { ... }");
}

}  // namespace impl
}  // namespace tutti::torch

template <>
struct tutti::extend::tensor_access<at::Tensor> {
  static buffer_view view(const at::Tensor& t) noexcept { return torch::view_of(t); }
  template <class... More>
    requires(std::same_as<More, at::Tensor> && ...)
  static part_ref keep(const maybe_on_stream& from, const at::Tensor& first, const More&... more) {
    return torch::impl::part_of_tensors(from, {first, more...});
  }
  template <std::ranges::contiguous_range List>
  static part_ref keep(const maybe_on_stream& from, const List& list) {
    return torch::impl::part_of_tensors(
        from, std::vector<at::Tensor>(std::ranges::begin(list), std::ranges::end(list)));
  }
  // A reduction that does not fit is rejected when the operation starts.
  template <class Op>
  static extend::reduction reduction(const Op& op, element_type type) {
    extend::reduction r;
    if constexpr (!built_in<Op>) {
      using T = typename decltype(torch::impl::reduced_by(op))::type;
      if (element_type_of<T>() == type) r = make_reduction<Op, T>(op);
    } else if constexpr (Op::kind != reduce_kind::premul_sum) {
      r.kind = Op::kind;
    } else {
      torch::for_each_type([&]<class T>(at::ScalarType, std::type_identity<T>) {
        if constexpr (reduces<Op, T>())
          if (element_type_of<T>() == type) r = make_reduction<Op, T>(op);
      });
    }
    return r;
  }
  // Elements of a contiguous tensor, by their number.
  static at::Tensor piece(const at::Tensor& t, std::size_t offset, std::size_t n) {
    return t.view({-1}).narrow(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(n));
  }
};
