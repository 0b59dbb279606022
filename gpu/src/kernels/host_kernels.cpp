// SPDX-License-Identifier: Apache-2.0
#include "kernels/host_kernels.hpp"

#include "kernels/elements.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::gpu::kernels {
namespace {

template <class T, class Op, bool Average>
void reduce_all(const reduce_arguments& a) {
  for (std::uint64_t i = 0; i < a.count; ++i) reduce_pack<T, Op, Average>(a, i);
}
template <class From, class To>
void convert_all(const convert_arguments& a) {
  for (std::uint64_t i = 0; i < a.count; ++i) convert_pack<From, To>(a, i);
}

#define TUTTI_REDUCTION(kind, op, type, T, average) \
  {reduce_kind::kind, element_type::type, "tutti_" #kind "_" #type, &reduce_all<T, op, average>},
const reduction_kernel reductions[] = {TUTTI_KERNELS(TUTTI_REDUCTION)};
#undef TUTTI_REDUCTION
#define TUTTI_CONVERSION(from, From, to, To) \
  {element_type::from, element_type::to, "tutti_convert_" #from "_to_" #to, &convert_all<From, To>},
const conversion_kernel conversions[] = {TUTTI_CONVERSIONS(TUTTI_CONVERSION)};
#undef TUTTI_CONVERSION

template <class Kernel, std::size_t N, class Is>
const Kernel* find(const Kernel (&among)[N], Is is) noexcept {
  const Kernel* const found = std::find_if(std::begin(among), std::end(among), is);
  return found == std::end(among) ? nullptr : found;
}

}  // namespace

const reduction_kernel* find_reduction(reduce_kind kind, element_type type) noexcept {
  if (kind == reduce_kind::premul_sum) kind = reduce_kind::sum;
  return find(reductions, [=](const reduction_kernel& k) { return k.kind == kind && k.type == type; });
}
const reduction_kernel* find_reduction(std::string_view name) noexcept {
  return find(reductions, [=](const reduction_kernel& k) { return k.name == name; });
}
const conversion_kernel* find_conversion(element_type from, element_type to) noexcept {
  return find(conversions, [=](const conversion_kernel& k) { return k.from == from && k.to == to; });
}
const conversion_kernel* find_conversion(std::string_view name) noexcept {
  return find(conversions, [=](const conversion_kernel& k) { return k.name == name; });
}

void reduce_on_host(reduce_kind kind, element_type type, std::span<const void* const> inputs,
                    std::span<void* const> outputs, std::span<const double> factors, std::size_t count,
                    int ranks) {
  const reduction_kernel* const kernel = find_reduction(kind, type);
  if (kernel == nullptr) return;
  reduce_arguments a{};
  std::copy(inputs.begin(), inputs.end(), a.inputs);
  std::copy(outputs.begin(), outputs.end(), a.outputs);
  std::copy(factors.begin(), factors.end(), a.factors);
  a.count = count;
  a.input_count = static_cast<int>(inputs.size());
  a.output_count = static_cast<int>(outputs.size());
  a.ranks = ranks;
  a.scaled = factors.empty() ? 0 : 1;
  kernel->on_host(a);
}

}  // namespace tutti::gpu::kernels
