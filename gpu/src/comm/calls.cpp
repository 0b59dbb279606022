// SPDX-License-Identifier: Apache-2.0
#include "comm/calls.hpp"

#include <cstdint>
#include <cstring>

namespace tutti::gpu::detail {

double factor_in(const tutti::detail::reduction& op, element_type type) noexcept {
  const auto as = [&op]<class T>(T) {
    T value;
    std::memcpy(&value, op.state.data(), sizeof value);
    return static_cast<double>(value);
  };
  switch (type) {
    case element_type::int8:
      return as(std::int8_t{});
    case element_type::uint8:
      return as(std::uint8_t{});
    case element_type::int16:
      return as(std::int16_t{});
    case element_type::uint16:
      return as(std::uint16_t{});
    case element_type::int32:
      return as(std::int32_t{});
    case element_type::uint32:
      return as(std::uint32_t{});
    case element_type::float64:
      return as(double{});
    default:
      return as(float{});
  }
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
