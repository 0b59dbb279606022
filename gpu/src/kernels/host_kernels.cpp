// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_kernels.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::gpu::kernels {
namespace {

template <class From, class To, class Op, bool Average>
void reduce_all(const arguments& a) {
  for (std::uint64_t i = 0; i < a.count; ++i) reduce_pack<From, To, Op, Average>(a, i);
}

#define TUTTI_REDUCTION(kind, op, type, T, average)                                     \
  {reduce_kind::kind, element_type::type, element_type::type, "tutti_" #kind "_" #type, \
   &reduce_all<T, T, op, average>},
#define TUTTI_CONVERSION(from, From, to, To)                                                 \
  {reduce_kind::none, element_type::from, element_type::to, "tutti_scale_" #from "_to_" #to, \
   &reduce_all<From, To, add, false>},
const kernel all[] = {TUTTI_KERNELS(TUTTI_REDUCTION) TUTTI_CONVERSIONS(TUTTI_CONVERSION)};
#undef TUTTI_REDUCTION
#undef TUTTI_CONVERSION

template <class Is>
const kernel* find(Is is) noexcept {
  const kernel* const found = std::find_if(std::begin(all), std::end(all), is);
  return found == std::end(all) ? nullptr : found;
}

}  // namespace

std::span<const kernel> all_kernels() noexcept { return all; }
const kernel* find_reduction(reduce_kind kind, element_type type) noexcept {
  if (kind == reduce_kind::premul_sum) kind = reduce_kind::sum;
  return find([=](const kernel& k) { return kind != reduce_kind::none && k.kind == kind && k.from == type; });
}
const kernel* find_conversion(element_type from, element_type to) noexcept {
  return find([=](const kernel& k) { return k.kind == reduce_kind::none && k.from == from && k.to == to; });
}
const kernel* find_kernel(std::string_view name) noexcept {
  return find([=](const kernel& k) { return k.name == name; });
}

}  // namespace tutti::gpu::kernels
