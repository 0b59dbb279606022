// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce_host.hpp"

#include "kernels/elements.hpp"
#include "kernels/table.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::gpu::kernels {
namespace {

using function = void (*)(const reduce_arguments&);
struct entry {
  reduce_kind kind;
  element_type type;
  const char* name;
  function run;
};

template <class T, class Op, bool Average>
void loop(const reduce_arguments& a) {
  for (std::uint64_t i = 0; i < a.count; ++i) reduce_element<T, Op, Average>(a, i);
}

#define TUTTI_ENTRY(kind, op, type, T, average) \
  entry{reduce_kind::kind, element_type::type, "tutti_" #kind "_" #type, &loop<T, op, average>},
const entry table[] = {TUTTI_KERNELS(TUTTI_ENTRY)};
#undef TUTTI_ENTRY

const entry* find(reduce_kind kind, element_type type) noexcept {
  if (kind == reduce_kind::premul_sum) kind = reduce_kind::sum;
  for (const entry& e : table)
    if (e.kind == kind && e.type == type) return &e;
  return nullptr;
}

}  // namespace

bool can_reduce(reduce_kind kind, element_type type) noexcept { return find(kind, type) != nullptr; }
const char* kernel_name(reduce_kind kind, element_type type) noexcept {
  const entry* const e = find(kind, type);
  return e == nullptr ? nullptr : e->name;
}
bool find_kernel(const char* name, reduce_kind& kind, element_type& type) noexcept {
  for (const entry& e : table)
    if (std::strcmp(e.name, name) == 0) {
      kind = e.kind;
      type = e.type;
      return true;
    }
  return false;
}

void reduce_on_host(reduce_kind kind, element_type type, const reduce_arguments& a) {
  if (const entry* const e = find(kind, type)) e->run(a);
}

reduce_arguments arguments_of(std::span<const void* const> inputs, std::span<void* const> outputs,
                              std::span<const double> factors, std::size_t count, int ranks) noexcept {
  reduce_arguments a{};
  std::copy(inputs.begin(), inputs.end(), a.inputs);
  std::copy(outputs.begin(), outputs.end(), a.outputs);
  std::copy(factors.begin(), factors.end(), a.factors);
  a.count = count;
  a.input_count = static_cast<int>(inputs.size());
  a.output_count = static_cast<int>(outputs.size());
  a.ranks = ranks;
  a.scaled = factors.empty() ? 0 : 1;
  return a;
}

void reduce_on_host(reduce_kind kind, element_type type, std::span<const void* const> inputs,
                    std::span<void* const> outputs, std::span<const double> factors, std::size_t count,
                    int ranks) {
  reduce_on_host(kind, type, arguments_of(inputs, outputs, factors, count, ranks));
}

}  // namespace tutti::gpu::kernels
