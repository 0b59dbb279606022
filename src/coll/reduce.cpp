// SPDX-License-Identifier: Apache-2.0
#include "coll/reduce.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <tutti/convert.hpp>
#include <tutti/error.hpp>

namespace tutti::coll {
namespace {

element_type unsigned_of(element_type type) noexcept {
  static_assert(static_cast<int>(element_type::int8) % 2 == 0);  // and each is followed by its unsigned one
  return detail::is_integer(type) ? static_cast<element_type>(static_cast<int>(type) | 1) : type;
}

constinit std::atomic<const kernels*> current{nullptr};

// What the kernels need to know about a block of elements. No two of their loops do the same.
struct elements {
  reduce_kind kind;
  element_type type;
  std::size_t count;

  elements(reduce_kind k, element_type t, std::size_t n) noexcept : kind(k), type(t), count(n) {
    if (kind == reduce_kind::premul_sum) kind = reduce_kind::sum;  // already multiplied
    if (type == element_type::boolean) {                           // one byte, 0 or 1
      type = element_type::uint8;
      if (kind == reduce_kind::min) kind = reduce_kind::band;
      if (kind == reduce_kind::max) kind = reduce_kind::bor;
    }
    using over = detail::loops_over;
    const over loops = detail::row_of(kind).loops;
    if (loops == over::bytes) {
      count *= bytes_of(type);
      type = element_type::uint8;
    }
    if (loops == over::unsigned_reals && detail::is_complex(type)) {
      type = type == element_type::complex_float32 ? element_type::float32 : element_type::float64;
      count *= 2;
    }
    if (loops == over::unsigned_reals || loops == over::unsigned_ones) type = unsigned_of(type);
  }
};

}  // namespace

std::span<const kernels* const> all_kernels() noexcept {
  static constexpr const kernels* all[] = {
      &baseline_kernels,
#if defined(__x86_64__)
      &avx2_kernels,
      &avx512_kernels,
#endif
  };
  return all;
}

const kernels& current_kernels() noexcept {
  // relaxed: the tables are constants, so nothing else is published
  const kernels* chosen = current.load(std::memory_order_relaxed);
  if (chosen == nullptr) {
    for (const kernels* each : all_kernels())
      if (each->usable()) chosen = each;
    current.store(chosen, std::memory_order_relaxed);
  }
  return *chosen;
}

void choose_kernels(const kernels& chosen) noexcept { current.store(&chosen, std::memory_order_relaxed); }

element_type accumulator_of(const detail::reduction& op, element_type type) noexcept {
  return detail::row_of(op.kind).rounds && detail::is_half(type) ? element_type::float32 : type;
}

void prepare(const detail::reduction& op, element_type type, const void* in, void* out, std::size_t count,
             std::size_t element_bytes) noexcept {
  if (op.kind == reduce_kind::premul_sum) {
    const elements e(reduce_kind::sum, type, count);
    current_kernels().multiply(e.type, op.state.data(), in, out, e.count);
  } else if (in != out && count > 0) {
    std::memcpy(out, in, count * element_bytes);
  }
}

void combine(const detail::reduction& op, element_type type, const void* left, const void* right, void* out,
             std::size_t count) {
  const void* const inputs[] = {left, right};
  if (op.fold != nullptr) return op.fold(op, inputs, 2, out, count);
  const elements e(op.kind == reduce_kind::avg ? reduce_kind::sum : op.kind, type, count);
  current_kernels().fold(e.kind, e.type, {inputs, out, e.count, 1});
}

void finish(const detail::reduction& op, element_type type, void* data, std::size_t count,
            int ranks) noexcept {
  if (op.kind != reduce_kind::avg) return;
  const void* const inputs[] = {data};
  const elements e(op.kind, type, count);
  current_kernels().fold(e.kind, e.type, {inputs, data, e.count, ranks});
}

void reduce_all(const detail::reduction& op, element_type type, std::span<const void* const> inputs,
                void* out, std::size_t count) {
  if (op.fold != nullptr) return op.fold(op, inputs.data(), inputs.size(), out, count);
  const elements e(op.kind, type, count);
  current_kernels().fold(e.kind, e.type, {inputs, out, e.count, static_cast<int>(inputs.size())});
}

}  // namespace tutti::coll

namespace tutti {
namespace {

template <class From, class To>
void convert_all(std::span<const From> from, std::span<To> to) {
  if (from.size() != to.size())
    throw error(errc::invalid_argument,
                fmt::format("convert: {} elements to {}; give both the same size", from.size(), to.size()));
  if constexpr (std::is_same_v<From, float>) {
    coll::current_kernels().narrow(detail::element_type_of<To>(), from.data(), to.data(), from.size());
  } else {
    coll::current_kernels().widen(detail::element_type_of<From>(), from.data(), to.data(), from.size());
  }
}

}  // namespace

void convert(std::span<const float> from, std::span<float16> to) { convert_all(from, to); }
void convert(std::span<const float> from, std::span<bfloat16> to) { convert_all(from, to); }
void convert(std::span<const float16> from, std::span<float> to) { convert_all(from, to); }
void convert(std::span<const bfloat16> from, std::span<float> to) { convert_all(from, to); }

}  // namespace tutti
