// SPDX-License-Identifier: Apache-2.0
#include "coll/conformance/movement_cases.hpp"

#include <complex>
#include <cstdint>

namespace tutti::test {
namespace {

using kind = coll::operation_kind;

struct particle {
  double mass;
  float place[3];
  char name[7];
};

template <class T>
std::span<T> as(std::span<std::byte> b) {
  return {reinterpret_cast<T*>(b.data()), b.size() / sizeof(T)};
}

template <class T>
operation<> call_of(const communicator& world, const movement_arguments& with) {
  const std::span<const T> in = as<T>(with.in);
  const std::span<T> out = as<T>(with.out);
  switch (with.kind) {
    case kind::broadcast:
      return world.broadcast(out, with.root);
    case kind::scatter:
      return world.scatter(in, out, with.root);
    case kind::gather:
      return world.gather(in, out, with.root);
    case kind::all_gather:
      return world.all_gather(in, out);
    case kind::all_to_all:
      return world.all_to_all(in, out);
    case kind::scatter_v:
      return world.scatter_v(in, with.in_counts, out, with.root);
    case kind::gather_v:
      return world.gather_v(in, out, with.out_counts, with.root);
    case kind::all_gather_v:
      return world.all_gather_v(in, out, with.out_counts);
    case kind::all_to_all_v:
      return world.all_to_all_v(in, with.in_counts, out, with.out_counts);
    default:
      return world.barrier();
  }
}

template <class T>
movement_case made(const char* name = name_of(detail::element_type_of<T>())) {
  return {name, sizeof(T), call_of<T>};
}

}  // namespace

const std::vector<movement_case>& movement_cases() {
  static const std::vector<movement_case> all = {made<float>(),
                                                 made<std::int8_t>(),
                                                 made<std::uint8_t>(),
                                                 made<std::int16_t>(),
                                                 made<std::uint16_t>(),
                                                 made<std::int32_t>(),
                                                 made<std::uint32_t>(),
                                                 made<std::int64_t>(),
                                                 made<std::uint64_t>(),
                                                 made<double>(),
                                                 made<float16>(),
                                                 made<bfloat16>(),
                                                 made<bool>(),
                                                 made<std::complex<float>>(),
                                                 made<std::complex<double>>(),
                                                 made<std::byte>("bytes"),
                                                 made<particle>("structs")};
  return all;
}

}  // namespace tutti::test
