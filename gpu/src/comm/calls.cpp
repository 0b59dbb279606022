// SPDX-License-Identifier: Apache-2.0
#include "comm/calls.hpp"

#include <cstdint>
#include <cstring>

namespace tutti::gpu::detail {

namespace {

// Reads `state` as that of the types T which is `type`.
template <class... T>
double number_in(const std::byte* state, element_type type) noexcept {
  double number = 0;
  const auto read_as = [&]<class U>(U value) {
    if (tutti::detail::element_type_of<U>() != type) return;
    std::memcpy(&value, state, sizeof value);
    number = static_cast<double>(value);
  };
  (read_as(T{}), ...);
  return number;
}

}  // namespace

double factor_in(const tutti::detail::reduction& op, element_type type) noexcept {
  if (tutti::detail::is_half(type)) type = element_type::float32;  // as factor_of() has it
  return number_in<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, float,
                   double>(op.state.data(), type);
}

std::size_t block_of(const call& c, int size) noexcept {
  const tutti::detail::operation_row& row = row_of(c.kind);
  if (row.out == shape::block) return c.out.count;
  const bool blocks = row.in == shape::blocks;
  return blocks ? c.in.count / static_cast<std::size_t>(size) : c.in.count;
}

bool has_chunks(const call& c) noexcept {
  const tutti::detail::operation_row& row = row_of(c.kind);
  return row.of == tutti::detail::family::collective && !row.uneven() && row.out != shape::nothing &&
         c.kind != operation_kind::scan && c.kind != operation_kind::exclusive_scan &&
         (c.whole == nullptr || c.whole->list.at == nullptr);
}

}  // namespace tutti::gpu::detail
