// SPDX-License-Identifier: Apache-2.0
// The kinds of operations, and one row for each with all properties that differ between them.
#pragma once

#include <tutti/extend/version.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace tutti::extend::inline v1 {

enum class operation_kind : std::uint8_t {
  send,
  receive,
  probe,
  matched_probe,
  barrier,
  broadcast,
  reduce,
  all_reduce,
  scatter,
  gather,
  all_gather,
  reduce_scatter,
  all_to_all,
  scan,
  exclusive_scan,
  scatter_v,
  gather_v,
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
  group,
  split,
  duplicate,
  window,
  prepare,
  shrink,
  put,
  get,
  accumulate,
  put_signal,
  wait_signal,
  fetch_add,
  compare_exchange,
  flush,
  copy,
  upload,
  download,
  fill,
  convert,
  reached,
  batch
};

// A buffer's contents. `blocks`: one per rank, in rank order. The single buffer of broadcast is a result.
enum class shape : std::uint8_t { nothing, vector, block, blocks };

enum class side : std::uint8_t { in, out };

// Which ranks read their input, or write their result.
enum class ranks_that : std::uint8_t { none, root, all_but_root, all };

constexpr bool includes(ranks_that which, bool is_root) noexcept {
  return which == ranks_that::all || which == (is_root ? ranks_that::root : ranks_that::all_but_root);
}

// `set_up`: collectives whose call has no buffers. `one_sided`: operations on windows. `stream`: operations of one
// device, without a communicator.
enum class family : std::uint8_t { message, collective, set_up, repair, one_sided, stream };

struct operation_row {
  operation_kind kind;
  const char* name;
  family of;
  bool rooted;
  operation_kind even;  // the form with blocks of equal size: itself, unless `in_counts` or `out_counts`
  shape in, out;
  ranks_that reads, writes;
  // The buffer that all ranks have: of the same type, and where blocks are even of the same count.
  side agreed;
  bool reduces;

  constexpr bool uneven() const noexcept { return even != kind; }
  // Uneven, and every rank knows all counts.
  constexpr bool counts_known() const noexcept { return uneven() && !rooted && in != out; }
};

namespace rows {
using k = operation_kind;
using e = shape;
using r = ranks_that;
using f = family;
using s = side;
inline constexpr bool rooted = true;

// clang-format off
inline constexpr operation_row operation_rows[] = {
// kind                 name                family                    even form          input       result      reads    writes           agreed  reduces
  {k::send,             "send",             f::message,      !rooted, k::send,           e::vector,  e::nothing, r::all,  r::none,         s::in,  false},
  {k::receive,          "recv",             f::message,      !rooted, k::receive,        e::nothing, e::vector,  r::none, r::all,          s::out, false},
  {k::probe,            "probe",            f::message,      !rooted, k::probe,          e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::matched_probe,    "matched_probe",    f::message,      !rooted, k::matched_probe,  e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::barrier,          "barrier",          f::collective,   !rooted, k::barrier,        e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::broadcast,        "broadcast",        f::collective,   rooted,  k::broadcast,      e::nothing, e::vector,  r::root, r::all_but_root, s::out, false},
  {k::reduce,           "reduce",           f::collective,   rooted,  k::reduce,         e::vector,  e::vector,  r::all,  r::root,         s::in,  true},
  {k::all_reduce,       "all_reduce",       f::collective,   !rooted, k::all_reduce,     e::vector,  e::vector,  r::all,  r::all,          s::out, true},
  {k::scatter,          "scatter",          f::collective,   rooted,  k::scatter,        e::blocks,  e::block,   r::root, r::all,          s::out, false},
  {k::gather,           "gather",           f::collective,   rooted,  k::gather,         e::block,   e::blocks,  r::all,  r::root,         s::in,  false},
  {k::all_gather,       "all_gather",       f::collective,   !rooted, k::all_gather,     e::block,   e::blocks,  r::all,  r::all,          s::in,  false},
  {k::reduce_scatter,   "reduce_scatter",   f::collective,   !rooted, k::reduce_scatter, e::blocks,  e::block,   r::all,  r::all,          s::out, true},
  {k::all_to_all,       "all_to_all",       f::collective,   !rooted, k::all_to_all,     e::blocks,  e::blocks,  r::all,  r::all,          s::in,  false},
  {k::scan,             "scan",             f::collective,   !rooted, k::scan,           e::vector,  e::vector,  r::all,  r::all,          s::in,  true},
  {k::exclusive_scan,   "exclusive_scan",   f::collective,   !rooted, k::exclusive_scan, e::vector,  e::vector,  r::all,  r::all,          s::in,  true},
  {k::scatter_v,        "scatter_v",        f::collective,   rooted,  k::scatter,        e::blocks,  e::block,   r::root, r::all,          s::out, false},
  {k::gather_v,         "gather_v",         f::collective,   rooted,  k::gather,         e::block,   e::blocks,  r::all,  r::root,         s::in,  false},
  {k::all_gather_v,     "all_gather_v",     f::collective,   !rooted, k::all_gather,     e::block,   e::blocks,  r::all,  r::all,          s::in,  false},
  {k::reduce_scatter_v, "reduce_scatter_v", f::collective,   !rooted, k::reduce_scatter, e::blocks,  e::block,   r::all,  r::all,          s::out, true},
  {k::all_to_all_v,     "all_to_all_v",     f::collective,   !rooted, k::all_to_all,     e::blocks,  e::blocks,  r::all,  r::all,          s::out, false},
  {k::group,            "group",            f::set_up,       !rooted, k::group,          e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::split,            "split",            f::set_up,       !rooted, k::split,          e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::duplicate,        "duplicate",        f::set_up,       !rooted, k::duplicate,      e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::window,          "window",           f::set_up,       !rooted, k::window,           e::nothing, e::vector,  r::none, r::none,         s::out, false},
  {k::prepare,          "prepare",          f::set_up,       !rooted, k::prepare,        e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::shrink,           "shrink",           f::repair,       !rooted, k::shrink,         e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::put,             "put",              f::one_sided,    !rooted, k::put,              e::vector,  e::nothing, r::all,  r::none,         s::in,  false},
  {k::get,             "get",              f::one_sided,    !rooted, k::get,              e::nothing, e::vector,  r::none, r::all,          s::out, false},
  {k::accumulate,      "accumulate",       f::one_sided,    !rooted, k::accumulate,       e::vector,  e::nothing, r::all,  r::none,         s::in,  true},
  {k::put_signal,      "put_signal",       f::one_sided,    !rooted, k::put_signal,       e::vector,  e::nothing, r::all,  r::none,         s::in,  false},
  {k::wait_signal,     "wait_signal",      f::one_sided,    !rooted, k::wait_signal,      e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::fetch_add,       "fetch_add",        f::one_sided,    !rooted, k::fetch_add,        e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::compare_exchange,"compare_exchange", f::one_sided,    !rooted, k::compare_exchange, e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::flush,           "flush",            f::one_sided,    !rooted, k::flush,            e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::copy,             "copy",             f::stream,       !rooted, k::copy,           e::vector,  e::vector,  r::all,  r::all,          s::out, false},
  {k::upload,           "upload",           f::stream,       !rooted, k::upload,         e::vector,  e::vector,  r::all,  r::all,          s::out, false},
  {k::download,         "download",         f::stream,       !rooted, k::download,       e::vector,  e::vector,  r::all,  r::all,          s::out, false},
  {k::fill,             "fill",             f::stream,       !rooted, k::fill,           e::nothing, e::vector,  r::none, r::all,          s::out, false},
  {k::convert,          "convert",          f::stream,       !rooted, k::convert,        e::vector,  e::vector,  r::all,  r::all,          s::out, false},
  {k::reached,          "reached",          f::stream,       !rooted, k::reached,        e::nothing, e::nothing, r::none, r::none,         s::out, false},
  {k::batch,            "batch",            f::set_up,       !rooted, k::batch,          e::nothing, e::nothing, r::none, r::none,         s::out, false},
};
// clang-format on
}  // namespace rows

using rows::operation_rows;

constexpr bool rows_are_in_order() noexcept {
  for (std::size_t i = 0; i < std::size(operation_rows); ++i)
    if (static_cast<std::size_t>(operation_rows[i].kind) != i) return false;
  return std::size(operation_rows) == static_cast<std::size_t>(operation_kind::batch) + 1;
}
static_assert(rows_are_in_order());

constexpr const operation_row& row_of(operation_kind kind) noexcept {
  return operation_rows[static_cast<std::size_t>(kind)];
}

// Between two ranks, and in no order among collectives: its failure is its own.
constexpr bool is_pairwise(operation_kind kind) noexcept {
  return row_of(kind).of == family::message || row_of(kind).of == family::one_sided;
}

// False for the kind in a damaged record.
constexpr bool is_known(operation_kind kind) noexcept {
  return static_cast<std::size_t>(kind) < std::size(operation_rows);
}

// "all_reduce", or "?" for an unknown kind.
constexpr const char* name_of(operation_kind kind) noexcept {
  return is_known(kind) ? row_of(kind).name : "?";
}

}  // namespace tutti::extend::inline v1

namespace tutti::detail {
using extend::name_of, extend::row_of;  // overloads of its own
}
