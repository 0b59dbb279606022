// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device_place.hpp"
#include "process_group.hpp"
#include "tensors.hpp"

#include <c10/core/StreamGuard.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::python {

// An operation that is being prepared.
struct process_group::request {
  using buffer_view = extend::buffer_view;
  using call = extend::call;

  request(process_group& of, const char* operation, const char* profiled_as, c10d::OpType op)
      : group(of), name(operation), profiled(profiled_as), type(op) {}

  process_group& group;

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
  bool placed = false;
  std::shared_ptr<device_place> place;  // null: on the host
  std::optional<c10::StreamGuard> on_stream;

  // Where the operation runs: on the host, or on the device of its first tensor (place_of). What it copies meanwhile is
  // on the place's stream. Messages run on the host: only two ranks call them, and all open a device.
  c10::Device at(const at::Tensor& t) {
    if (!std::exchange(placed, true) && !message && (place = group.place_of(t.device(), name))) {
      place->begin();
      on_stream.emplace(place->stream);
    }
    return place ? place->device : c10::Device(c10::kCPU);
  }

  // Memory that the operation reads.
  buffer_view reads(const at::Tensor& t) {
    const bool plain = is_plain(t, at(t));
    inputs.push_back(t);
    claim(t, false, plain);
    return elements_of(keep(plain ? t : copy_of(t)));
  }
  // Memory that the operation writes, and reads first if `reads_it`.
  buffer_view writes(const at::Tensor& t, bool reads_it = false) {
    const bool plain = is_plain(t, at(t));
    claim(t, true);
    if (plain) return elements_of(keep(t));
    settle_copies(at(t), t);
    at::Tensor copy = reads_it ? copied_to(at(t), t) : empty_on(at(t), t.sizes(), t);
    after.push_back([t, copy](std::size_t) { t.copy_(copy); });
    return elements_of(keep(copy));
  }
  // Memory for a message. It may be shorter than the tensor, whose other elements stay as they are.
  buffer_view receives(const at::Tensor& t) {
    const c10::Device host(c10::kCPU);
    if (is_plain(t, host)) return elements_of(keep(t));
    settle_copies(host, t);
    const at::Tensor copy = empty_on(host, t.sizes(), t);
    after.push_back([t, copy, host](std::size_t received) {
      if (received == copy.nbytes()) {
        t.copy_(copy);
      } else if (received > 0) {
        const at::Tensor all = copied_to(host, t);
        std::memcpy(all.mutable_data_ptr(), copy.const_data_ptr(), received);
        t.copy_(all);
      }
    });
    return elements_of(keep(copy));
  }
  // One piece of memory for the elements of all these tensors.
  buffer_view writes_list(const tensors& to) {
    for (const at::Tensor& t : to) {
      claim(t, true);
      settle_copies(at(t), t);
    }
    const at::Tensor flat = empty_on(at(to[0]), {static_cast<std::int64_t>(total(to))}, to[0]);
    after.push_back([to, flat](std::size_t) { parted(flat, to); });
    return elements_of(keep(flat));
  }
  // The elements of these tensors, copied.
  buffer_view reads_list(const tensors& from) {
    for (const at::Tensor& t : from) claim(t, false, false);
    const at::Tensor all = joined(at(from[0]), from);
    for (const at::Tensor& t : from) copied(t);
    return reads(all);
  }
  // The reduction of such tensors. Averages of integers are sums, which each rank then divides as `x / size` of C does.
  extend::reduction reduces(const c10d::ReduceOp& op, const at::Tensor& like, const tensors& results,
                            int size) {
    if (op.op_ != c10d::ReduceOp::AVG || !at::isIntegralType(like.scalar_type(), false))
      return reduction_of(op, like.scalar_type(), name);
    for (const at::Tensor& t : results) copied(t);
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
    group.hooks_->wait_for(memory);
    if (async && until_end) used.push_back(memory);
  }
  const at::Tensor& keep(const at::Tensor& t) {
    calls.keeps.push_back(t);
    return calls.keeps.back();
  }
  at::Tensor copy_of(const at::Tensor& t) {
    const at::Tensor made = copied_to(at(t), t);
    copied(t);
    return made;
  }
  // What is done to the tensor on a device, beside the operation, goes on after the call.
  void copied(const at::Tensor& t) {
    if (place) settle_copies(place->device, t);
  }
  void set_counts(call& c, bool in, bool out) {
    if (in) c.in_counts = calls.in_counts;
    if (out) c.out_counts = calls.out_counts;
  }
};

}  // namespace tutti::python
