// SPDX-License-Identifier: Apache-2.0
#include "comm/vendor_library.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tutti/half.hpp>

namespace tutti::gpu::vendor_abi {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

namespace {

// Indexed by the libraries' numbers.
constexpr element_type types[] = {element_type::int8,    element_type::uint8,   element_type::int32,
                                  element_type::uint32,  element_type::int64,   element_type::uint64,
                                  element_type::float16, element_type::float32, element_type::float64,
                                  element_type::bfloat16};
constexpr reduce_kind operations[] = {reduce_kind::sum, reduce_kind::product, reduce_kind::max,
                                      reduce_kind::min, reduce_kind::avg};
static_assert(types[bfloat16] == element_type::bfloat16 && operations[average] == reduce_kind::avg);

template <class T, std::size_t N>
int index_of(T wanted, const T (&among)[N]) noexcept {
  const T* const found = std::find(std::begin(among), std::end(among), wanted);
  return found == std::end(among) ? -1 : static_cast<int>(found - among);
}

}  // namespace

int type_of(element_type type) noexcept { return index_of(type, types); }
int operation_of(reduce_kind kind) noexcept { return index_of(kind, operations); }

void store_factor(const detail::call& c, std::byte (&factor)[16]) noexcept {
  std::memcpy(factor, c.op.state.data(), sizeof factor);
  if (!tutti::detail::is_half(c.in.type)) return;
  float f = 0;  // as factors of halves are kept
  std::memcpy(&f, factor, sizeof f);
  const std::uint16_t bits =
      c.in.type == element_type::float16 ? tutti::float16(f).bits() : tutti::bfloat16(f).bits();
  std::memcpy(factor, &bits, sizeof bits);
}

std::string explain(const char* library, int version, result code, const char* message, const char* more) {
  const bool says_more = more != nullptr && *more != '\0';
  return fmt::format("{} {}: {} ({}){}{}", library, version_text(version),
                     message == nullptr ? "error" : message, code, says_more ? ": " : "",
                     says_more ? more : "");
}

}  // namespace tutti::gpu::vendor_abi
