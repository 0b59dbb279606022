// SPDX-License-Identifier: Apache-2.0
// Translates a step of a random program into a call, on any kind of memory.
#pragma once

#include "coll/random/program.hpp"

#include <cstddef>
#include <tutti/communicator.hpp>
#include <vector>

namespace tutti::test {

// `last`: the last arguments of such calls.
template <class Memory, class Op, class... Last>
operation<> reduction_of(const communicator& c, const step& s, const part& plan, Memory in, Memory out, Op op,
                         const Last&... last) {
  using kind = coll::operation_kind;
  switch (s.kind) {
    case kind::reduce:
      return s.in_place ? c.reduce(out, op, s.root, last...) : c.reduce(in, out, op, s.root, last...);
    case kind::all_reduce:
      return s.in_place ? c.all_reduce(out, op, last...) : c.all_reduce(in, out, op, last...);
    case kind::scan:
      return c.scan(in, out, op, last...);
    case kind::exclusive_scan:
      return c.exclusive_scan(in, out, op, last...);
    case kind::reduce_scatter:
      return c.reduce_scatter(in, out, op, last...);
    default:
      return c.reduce_scatter_v(in, plan.in_counts, out, op, last...);
  }
}

template <class Memory, class... Last>
operation<> call_of(const communicator& c, const step& s, const part& plan, Memory in, Memory out,
                    const Last&... last) {
  using kind = coll::operation_kind;
  switch (s.kind) {
    case kind::barrier:
      return c.barrier(last...);
    case kind::broadcast:
      return c.broadcast(out, s.root, last...);
    case kind::scatter:
      return c.scatter(in, out, s.root, last...);
    case kind::gather:
      return c.gather(in, out, s.root, last...);
    case kind::all_gather:
      return c.all_gather(in, out, last...);
    case kind::all_to_all:
      return c.all_to_all(in, out, last...);
    case kind::scatter_v:
      return c.scatter_v(in, plan.in_counts, out, s.root, last...);
    case kind::gather_v:
      return c.gather_v(in, out, plan.out_counts, s.root, last...);
    case kind::all_gather_v:
      return c.all_gather_v(in, out, plan.out_counts, last...);
    case kind::all_to_all_v:
      return c.all_to_all_v(in, plan.in_counts, out, plan.out_counts, last...);
    default:
      break;
  }
  switch (s.op) {
    case fold::sum:
      return reduction_of(c, s, plan, in, out, sum, last...);
    case fold::product:
      return reduction_of(c, s, plan, in, out, product, last...);
    case fold::max:
      return reduction_of(c, s, plan, in, out, tutti::max, last...);
    default:
      return reduction_of(c, s, plan, in, out, bxor, last...);
  }
}

}  // namespace tutti::test
