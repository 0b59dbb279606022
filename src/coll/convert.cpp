// SPDX-License-Identifier: Apache-2.0
#include <tutti/convert.hpp>

#include "coll/reduce.hpp"

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti {
namespace {

void expect_equal_sizes(std::size_t from, std::size_t to) {
  if (from != to)
    throw error(errc::invalid_argument,
                fmt::format("convert: {} elements to {}; give both the same size", from, to));
}

template <class Half>
void narrowed(std::span<const float> from, std::span<Half> to) {
  expect_equal_sizes(from.size(), to.size());
  coll::narrow(detail::element_type_of<Half>(), from.data(), to.data(), from.size());
}
template <class Half>
void widened(std::span<const Half> from, std::span<float> to) {
  expect_equal_sizes(from.size(), to.size());
  coll::widen(detail::element_type_of<Half>(), from.data(), to.data(), from.size());
}

}  // namespace

void convert(std::span<const float> from, std::span<float16> to) { narrowed(from, to); }
void convert(std::span<const float> from, std::span<bfloat16> to) { narrowed(from, to); }
void convert(std::span<const float16> from, std::span<float> to) { widened(from, to); }
void convert(std::span<const bfloat16> from, std::span<float> to) { widened(from, to); }

}  // namespace tutti
