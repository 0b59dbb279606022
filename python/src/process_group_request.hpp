// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "process_group.hpp"
#include "tensors.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

namespace tutti::python {

// An operation that is being prepared.
struct process_group::request {
  using buffer_view = extend::buffer_view;
  using call = extend::call;

  request(group_hooks& of, const char* operation, const char* profiled_as, c10d::OpType op)
      : group(of), name(operation), profiled(profiled_as), type(op) {}

  group_hooks& group;

  const char* name;
  const char* profiled;
  c10d::OpType type;
  bool async = true;
  bool message = false;
  bool from_self = false;
  bool follows = false;  // see work::follows_
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  plan calls;
  tensors inputs;                                       // shown by the profiler
  tensors outputs;                                      // result of the work
  std::vector<memory_range> used;                       // until the end; empty if the caller waits for it
  std::vector<std::function<void(std::size_t)>> after;  // see plan

  // Memory that the operation reads.
  buffer_view reads(const at::Tensor& t) {
    inputs.push_back(t);
    claim(t, false, is_plain(t));
    return view_of(keep(is_plain(t) ? t : on_host(t)));
  }
  // Memory that the operation writes, and reads first if `reads_it`.
  buffer_view writes(const at::Tensor& t, bool reads_it = false) {
    claim(t, true);
    if (is_plain(t)) return view_of(keep(t));
    if (!reads_it) wait_for_device(t);
    at::Tensor copy = reads_it ? on_host(t) : empty_on_host(t.sizes(), t);
    after.push_back([t, copy](std::size_t) { t.copy_(copy); });
    return view_of(keep(copy));
  }
  // Memory for a message. It may be shorter than the tensor, whose other elements stay as they are.
  buffer_view receives(const at::Tensor& t) {
    if (is_plain(t)) return view_of(keep(t));
    wait_for_device(t);
    const at::Tensor copy = empty_on_host(t.sizes(), t);
    after.push_back([t, copy](std::size_t received) {
      if (received == copy.nbytes()) {
        t.copy_(copy);
      } else if (received > 0) {
        const at::Tensor all = on_host(t);
        std::memcpy(all.mutable_data_ptr(), copy.const_data_ptr(), received);
        t.copy_(all);
      }
    });
    return view_of(keep(copy));
  }
  // One piece of memory for the elements of all these tensors.
  buffer_view writes_list(const tensors& to) {
    for (const at::Tensor& t : to) {
      claim(t, true);
      wait_for_device(t);
    }
    const at::Tensor flat = empty_on_host({static_cast<std::int64_t>(total(to))}, to[0]);
    after.push_back([to, flat](std::size_t) { parted(flat, to); });
    return view_of(keep(flat));
  }
  // The elements of these tensors, copied.
  buffer_view reads_list(const tensors& from) {
    for (const at::Tensor& t : from) claim(t, false, false);
    return reads(joined(from));
  }
  // The reduction of such tensors. Averages of integers are sums, which each rank then divides as `x / size` of C does.
  extend::reduction reduces(const c10d::ReduceOp& op, const at::Tensor& like, const tensors& results,
                            int size) {
    if (op.op_ != c10d::ReduceOp::AVG || !at::isIntegralType(like.scalar_type(), false))
      return reduction_of(op, like.scalar_type(), name);
    if (!results.empty())
      after.push_back([results, size](std::size_t) {
        for (const at::Tensor& t : results) t.div_(size, "trunc");
      });
    return reduction_of(c10d::ReduceOp(c10d::ReduceOp::SUM), like.scalar_type(), name);
  }
  // Waits for the group's collectives that are still using the memory. `until_end`: this one uses it until its end.
  void claim(const at::Tensor& t, bool written, bool until_end = true) {
    if (message) return;
    const memory_range memory = memory_of(t, written);
    group.wait_for(memory);
    if (async && until_end) used.push_back(memory);
  }
  const at::Tensor& keep(const at::Tensor& t) {
    calls.keeps.push_back(t);
    return calls.keeps.back();
  }
  void set_counts(call& c, bool in, bool out) {
    if (in) c.in_counts = calls.in_counts;
    if (out) c.out_counts = calls.out_counts;
  }
};

}  // namespace tutti::python
