// SPDX-License-Identifier: Apache-2.0
// call: the arguments of an operation, for those that make operations by themselves or carry them out.
#pragma once

#include <tutti/algorithm.hpp>
#include <tutti/buffer.hpp>
#include <tutti/extend/executor_part.hpp>
#include <tutti/extend/operation_kind.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/status.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace tutti {
class communicator;
}
namespace tutti::detail {
struct prepared_call;
}

namespace tutti::extend::inline v1 {

// The view of a buffer of any kind, and what its elements are.
using detail::bytes_of;
using detail::element_type_of;
using detail::is_floating;
using detail::is_half;
using detail::is_integer;
using detail::view_of;

// A reduction of type-erased elements, and how it is made. fits() says whether a built-in one is defined for a type.
using detail::built_in;
using detail::fits;
using detail::make_reduction;
using detail::premul_sum_op;
using detail::reduces;
using detail::reduction;

// The state behind a handle, also behind an empty one.
communicator_ref reference_to(const communicator& c) noexcept;

// A list of buffers that one operation treats as one.
struct buffer_list {
  buffer_view (*at)(const void* list, std::size_t i) noexcept = nullptr;  // null: no list
  const void* list = nullptr;
  std::size_t size = 0;
};

// The arguments of an operation: values only, so that a completion token may store and move them. The constructors of
// tutti::operation and tutti::request take one.
struct call {
  call(operation_kind k, communicator_ref c, call_site w = call_site::current()) noexcept
      : kind(k), comm(std::move(c)), where(w) {}
  // A call with one buffer and a peer or root.
  call(operation_kind k, const communicator_ref& c, const buffer_view& data, int p, int t,
       call_site w) noexcept
      : kind(k), comm(c), in(data), out(data), peer(p), tag(t), where(w) {}

  operation_kind kind;
  communicator_ref comm;
  buffer_view in;         // read; for group: in.count ranks, as int
  buffer_view out;        // written; the same memory as `in` for in-place forms
  int peer = any_source;  // destination, source or root
  int tag = any_tag;
  algorithm wanted = algorithm::automatic;
  detail::reduction op;
  std::span<const std::size_t> in_counts, out_counts;  // elements per rank, for the uneven forms
  buffer_list list;  // of all_reduce, in place; `out` then has the element type and the total count
  detail::prepared_call* prepared = nullptr;  // of a collective that is prepared or being prepared
  part_ref part;                              // empty: host memory that the program keeps
  call_site where;                            // of the call, in the user's program

  bool on_device() const noexcept { return part && part->executes(); }
};

}  // namespace tutti::extend::inline v1
