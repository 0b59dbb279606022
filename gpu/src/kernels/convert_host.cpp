// SPDX-License-Identifier: Apache-2.0
#include "kernels/convert_host.hpp"

#include "kernels/elements.hpp"
#include "kernels/table.hpp"

#include <cstring>

namespace tutti::gpu::kernels {
namespace {

struct entry {
  element_type from;
  element_type to;
  const char* name;
  void (*run)(const convert_arguments&);
};

template <class From, class To>
void loop(const convert_arguments& a) {
  for (std::uint64_t i = 0; i < a.count; ++i) convert_element<From, To>(a, i);
}

#define TUTTI_ENTRY(from, From, to, To) \
  entry{element_type::from, element_type::to, "tutti_convert_" #from "_to_" #to, &loop<From, To>},
const entry table[] = {TUTTI_CONVERSIONS(TUTTI_ENTRY)};
#undef TUTTI_ENTRY

const entry* find(element_type from, element_type to) noexcept {
  for (const entry& e : table)
    if (e.from == from && e.to == to) return &e;
  return nullptr;
}

}  // namespace

bool can_convert(element_type from, element_type to) noexcept { return find(from, to) != nullptr; }

void convert_on_host(element_type from, element_type to, const convert_arguments& a) {
  if (const entry* const e = find(from, to)) e->run(a);
}

const char* conversion_name(element_type from, element_type to) noexcept {
  const entry* const e = find(from, to);
  return e == nullptr ? nullptr : e->name;
}

bool find_conversion(const char* name, element_type& from, element_type& to) noexcept {
  for (const entry& e : table)
    if (std::strcmp(e.name, name) == 0) {
      from = e.from;
      to = e.to;
      return true;
    }
  return false;
}

}  // namespace tutti::gpu::kernels
