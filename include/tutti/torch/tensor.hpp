// SPDX-License-Identifier: Apache-2.0
// Tensors of PyTorch as buffers of every operation. Part of tutti/torch.hpp; needs PyTorch's headers.
#pragma once

#include <tutti/communicator.hpp>

#include <ATen/core/Tensor.h>

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::detail {

// Calls f(std::type_identity<T>{}) with the element type T; with any_element for types without arithmetic
// (float8 and others).
template <class F>
decltype(auto) with_type_of(at::ScalarType type, F f) {
  switch (type) {
    case at::kBool:
      return f(std::type_identity<bool>{});
    case at::kChar:
      return f(std::type_identity<std::int8_t>{});
    case at::kByte:
      return f(std::type_identity<std::uint8_t>{});
    case at::kShort:
      return f(std::type_identity<std::int16_t>{});
    case at::kUInt16:
      return f(std::type_identity<std::uint16_t>{});
    case at::kInt:
      return f(std::type_identity<std::int32_t>{});
    case at::kUInt32:
      return f(std::type_identity<std::uint32_t>{});
    case at::kLong:
      return f(std::type_identity<std::int64_t>{});
    case at::kUInt64:
      return f(std::type_identity<std::uint64_t>{});
    case at::kFloat:
      return f(std::type_identity<float>{});
    case at::kDouble:
      return f(std::type_identity<double>{});
    case at::kHalf:
      return f(std::type_identity<float16>{});
    case at::kBFloat16:
      return f(std::type_identity<bfloat16>{});
    case at::kComplexFloat:
      return f(std::type_identity<std::complex<float>>{});
    case at::kComplexDouble:
      return f(std::type_identity<std::complex<double>>{});
    default:
      return f(std::type_identity<any_element>{});
  }
}

inline element_type type_of(at::ScalarType type) noexcept {
  return with_type_of(type, []<class T>(std::type_identity<T>) { return element_type_of<T>(); });
}

inline buffer_view view_of_tensor(const at::Tensor& t) noexcept {
  buffer_view view;
  if (!t.defined() || !t.device().is_cpu() || t.layout() != at::kStrided)
    return view;  // rejected by its tensor_part
  view.data = t.mutable_data_ptr();
  view.count = static_cast<std::size_t>(t.numel());
  view.element_bytes = static_cast<std::uint32_t>(t.element_size());
  view.type = type_of(t.scalar_type());
  return view;
}

// Whether this reduction is defined for elements of this type.
inline bool fits(reduce_kind kind, element_type type) noexcept {
  const reduction_row& row = row_of(kind);
  return (row.integers && is_integer(type)) || (row.floating && is_floating(type)) ||
         (row.complex && is_complex(type)) || (row.boolean && type == element_type::boolean);
}

// The part of a call on tensors: keeps them alive until the operation has ended.
class tensor_part final : public call_part {
 public:
  explicit tensor_part(std::vector<at::Tensor> kept) : call_part(false), kept_(std::move(kept)) {}
  std::string bad_argument(const call& what) const override;

 private:
  std::vector<at::Tensor> kept_;
};

template <>
struct tensor_access<at::Tensor> {
  static buffer_view view(const at::Tensor& t) noexcept { return view_of_tensor(t); }
  template <class... More>
    requires(std::same_as<More, at::Tensor> && ...)
  static part_ref keep(const at::Tensor& first, const More&... more) {
    return part_ref(new tensor_part({first, more...}));
  }
  template <buffer_range List>
  static part_ref keep(const List& list) {
    return part_ref(
        new tensor_part(std::vector<at::Tensor>(std::ranges::begin(list), std::ranges::end(list))));
  }
  // A reduction that does not fit is rejected when the operation starts.
  template <class Op>
  static tutti::detail::reduction reduction(const Op& op, element_type type) {
    static_assert(built_in<Op>,
                  "tutti: a callable needs the type of the elements: reduce std::span<T>(t.data_ptr<T>(), "
                  "t.numel()) with it");
    tutti::detail::reduction r;
    if constexpr (Op::kind != reduce_kind::premul_sum) {
      r.kind = Op::kind;
    } else {
      for (const at::ScalarType s :
           {at::kChar, at::kByte, at::kShort, at::kUInt16, at::kInt, at::kUInt32, at::kLong, at::kUInt64,
            at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble})
        with_type_of(s, [&]<class T>(std::type_identity<T>) {
          if constexpr (reduces<Op, T>())
            if (element_type_of<T>() == type) r = make_reduction<Op, T>(op);
        });
    }
    return r;
  }
};

inline std::string tensor_part::bad_argument(const call& what) const {
  for (const at::Tensor& t : kept_) {
    if (!t.defined()) return "a tensor is undefined; give it memory, such as torch::empty(...)";
    if (!t.device().is_cpu())
      return "a tensor is on " + t.device().str() + "; operations on tensors take those of the CPU: t.cpu()";
    if (t.layout() != at::kStrided) return "a tensor is sparse; t.to_dense() is one that can be sent";
    if (!t.is_contiguous()) return "a tensor is not contiguous; t.contiguous() is a copy that is";
    if (t.is_conj() || t.is_neg()) return "a tensor is a lazy conjugate; t.resolve_conj() is its values";
    if (t.scalar_type() != kept_.front().scalar_type())
      return std::string("tensors are of different types, ") + c10::toString(kept_.front().scalar_type()) +
             " and " + c10::toString(t.scalar_type()) + "; t.to(type) converts one";
  }
  if (row_of(what.kind).reduces && !fits(what.op.kind, what.out.type))
    return std::string("this reduction is not defined for elements of ") +
           c10::toString(kept_.front().scalar_type()) +
           " (premul_sum of integers takes an integer factor); t.to(torch::kFloat) converts them";
  return {};
}

}  // namespace tutti::detail
