// SPDX-License-Identifier: Apache-2.0
// The collectives that move blocks, for every element type, on buffers of any memory.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::test::movement {

using kind = coll::operation_kind;

struct arguments {
  coll::operation_kind kind{};
  std::span<std::byte> in;
  std::span<std::byte> out;
  std::span<const std::size_t> in_counts;
  std::span<const std::size_t> out_counts;
  int root = 0;
};

// `Buffers`: host_memory, or another class with the same interface.
template <class Buffers>
struct one_case {
  std::string name;
  std::size_t element_bytes = 0;
  operation<> (*call)(const communicator& world, const arguments& with, const Buffers& at) = nullptr;
};

struct particle {
  double mass;
  float place[3];
  char name[7];
};

template <class T, class Buffers>
operation<> call_of(const communicator& world, const arguments& with, const Buffers& at) {
  const auto in = at.template as<const T>(with.in);
  const auto out = at.template as<T>(with.out);
  return at.call([&](const auto&... s) -> operation<> {
    switch (with.kind) {
      case kind::broadcast:
        return world.broadcast(out, with.root, s...);
      case kind::scatter:
        return world.scatter(in, out, with.root, s...);
      case kind::gather:
        return world.gather(in, out, with.root, s...);
      case kind::all_gather:
        return world.all_gather(in, out, s...);
      case kind::all_to_all:
        return world.all_to_all(in, out, s...);
      case kind::scatter_v:
        return world.scatter_v(in, with.in_counts, out, with.root, s...);
      case kind::gather_v:
        return world.gather_v(in, out, with.out_counts, with.root, s...);
      case kind::all_gather_v:
        return world.all_gather_v(in, out, with.out_counts, s...);
      case kind::all_to_all_v:
        return world.all_to_all_v(in, with.in_counts, out, with.out_counts, s...);
      default:
        return world.barrier(s...);
    }
  });
}

// The first is float.
template <class Buffers>
const std::vector<one_case<Buffers>>& cases() {
  const auto made = []<class T>(T, const char* name = name_of(detail::element_type_of<T>())) {
    return one_case<Buffers>{name, sizeof(T), call_of<T, Buffers>};
  };
  static const std::vector<one_case<Buffers>> all = {made(float{}),
                                                     made(std::int8_t{}),
                                                     made(std::uint8_t{}),
                                                     made(std::int16_t{}),
                                                     made(std::uint16_t{}),
                                                     made(std::int32_t{}),
                                                     made(std::uint32_t{}),
                                                     made(std::int64_t{}),
                                                     made(std::uint64_t{}),
                                                     made(double{}),
                                                     made(float16{}),
                                                     made(bfloat16{}),
                                                     made(bool{}),
                                                     made(std::complex<float>{}),
                                                     made(std::complex<double>{}),
                                                     made(std::byte{}, "bytes"),
                                                     made(particle{}, "structs")};
  return all;
}

}  // namespace tutti::test::movement
