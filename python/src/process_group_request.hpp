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
  using buffer_view = tutti::detail::buffer_view;
  using call = tutti::detail::call;

  request(const char* operation, const char* profiled_as, c10d::OpType op)
      : name(operation), profiled(profiled_as), type(op) {}

  const char* name;
  const char* profiled;
  c10d::OpType type;
  bool async = true;
  bool message = false;
  bool follows = false;  // see work::follows_
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  plan calls;
  tensors inputs;                                       // shown by the profiler
  tensors outputs;                                      // result of the work
  std::vector<std::function<void(std::size_t)>> after;  // see plan

  // Memory that the operation reads.
  buffer_view reads(const at::Tensor& t) {
    inputs.push_back(t);
    return view_of(keep(t.is_cpu() && t.is_contiguous() ? t : on_host(t)));
  }
  // Memory that the operation writes, and reads first if `reads_it`.
  buffer_view writes(const at::Tensor& t, bool reads_it = false) {
    if (t.is_cpu() && t.is_contiguous()) return view_of(keep(t));
    if (!reads_it) wait_for_device(t);
    at::Tensor copy = reads_it ? on_host(t) : empty_on_host(t.sizes(), t);
    after.push_back([t, copy](std::size_t) { t.copy_(copy); });
    return view_of(keep(copy));
  }
  // Memory for a message. It may be shorter than the tensor, whose other elements stay as they are.
  buffer_view receives(const at::Tensor& t) {
    if (t.is_cpu() && t.is_contiguous()) return view_of(keep(t));
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
    for (const at::Tensor& t : to) wait_for_device(t);
    const at::Tensor flat = empty_on_host({static_cast<std::int64_t>(total(to))}, to[0]);
    after.push_back([to, flat](std::size_t) { parted(flat, to); });
    return view_of(keep(flat));
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
