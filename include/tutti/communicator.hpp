// SPDX-License-Identifier: Apache-2.0
// communicator: a group of ranks, with the messages and collectives between them.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/chunked.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/detail/same_build.hpp>
#include <tutti/matched_message.hpp>
#include <tutti/operation.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/request.hpp>
#include <tutti/status.hpp>
#include <tutti/window.hpp>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

struct counters;
template <class T>
class task;
namespace detail {
struct communicator_access;
}

// A cheap handle of a group of ranks: copies share it. No other communicator receives its messages. The last copy
// closes the communicator on this rank: at once, or from the loop if an exception destroys it or it goes on another
// thread. A main that ends by an exception so fails the communicator before its handles close it.
//
// Threads: a communicator belongs to the loop of its runtime. Call its operations on the loop thread, from
// coroutines and handlers that run there. On any other thread they end with errc::wrong_thread;
// boost::asio::post or co_spawn on get_executor() leads to the loop thread.
//
// Order: messages from one rank to another with the same tag do not overtake each other. All ranks start
// collectives in the same order, by which they are matched; several may be in flight.
//
// The following holds for all operations. Their comments add only what differs.
// Completes: on each rank when its own part is done. Other ranks may still be working on theirs.
// Buffers: one object or a contiguous range of a trivially copyable type. Counts are in elements. The class
// operation says how long buffers stay valid.
// Errors: a collective that fails on one rank fails on every rank that has not completed it. The communicator
// has then failed, and all further calls report that.
// - errc::invalid_argument: wrong arguments, on this rank only; no data moves, and the communicator has not
//   failed. In a collective the others wait for this rank: let the error leave main, call it again, or abort().
// - errc::timed_out: init_options::timeout has passed.
// - errc::peer_failed, errc::peer_left: a peer has died or left. An operation on any_source ends when any
//   member dies, once for each death.
// - errc::mismatch: ranks call different collectives, counts, element types, reductions or roots. The text
//   names both calls. A rank that completes before the calls are compared may report success, such as the
//   root of a broadcast or a sender of gather. One of its later calls then fails. group, split and duplicate
//   then give no rank a communicator. Calls without elements exchange nothing: a difference among them shows
//   in a later collective, or not at all.
// - errc::communicator_failed: the communicator had failed before the call.
// Cancellation: fails the communicator on all ranks if it is a collective. A receive or probe loses no message.
//
// The last parameter of every operation is its call site, for error texts: callers leave it out.
//
// Memory of devices (tutti/gpu.hpp): every operation that takes a buffer also takes a gpu::device_buffer or
// gpu::device_span, or a tensor on a device (tutti/torch.hpp). The last argument is then the stream that the
// operation follows: `world.all_reduce(x, sum, stream)`. The operation accesses no buffer before the stream
// has passed the work enqueued on it when the operation starts. It completes when the device has done it; see
// tutti/gpu/open.hpp. All ranks of a collective use device memory, or none; so do both sides of a message.
class communicator {
  using kind = detail::operation_kind;
  struct no_reduction {};

 public:
  using executor_type = boost::asio::io_context::executor_type;

  // A handle without a group: no rank is a member.
  communicator() noexcept = default;
  explicit communicator(detail::communicator_ref state) noexcept : state_(std::move(state)) {}

  // This rank's number in the group, from 0 to size() - 1; -1 for a handle without a group.
  int rank() const noexcept;
  // The number of ranks; 0 for a handle without a group.
  int size() const noexcept;
  // False for a handle without a group, such as split() gives to a rank with a negative color.
  explicit operator bool() const noexcept { return static_cast<bool>(state_); }
  // The executor of the loop thread; valid as long as that io_context. Requires a group.
  executor_type get_executor() const noexcept { return detail::executor_of(*state_); }
  // The name that error texts use, such as "world".
  const std::string& name() const noexcept;

  // ---- point to point ----

  // Sends `data` to rank `dest` with `tag` (>= 0).
  // Completes: when the buffer may be changed. A short message is copied out: at once, or when the link is
  // connected and has room. A long one completes when the receiver has taken it. Long means over 256 KiB on
  // TCP, over 64 KiB in shared memory, over 16 KiB to this rank itself or over an MPI, and over 4 KiB from
  // memory of tutti::shared_allocator. While 4 MiB sent to a rank are not received, every message is long.
  // Cancellation: takes the message back unless the receiver has received it.
  // Cost: two copies in shared memory, into and out of a ring; one for long messages from memory of
  // tutti::shared_allocator. On TCP only the kernel's copies.
  template <Buffer B>
  operation_on<B> send(B&& data, int dest, int tag = 0,
                       detail::origin_of<B> from = call_site::current()) const {
    return message<operation_on<B>>(kind::send, data, dest, tag, from);
  }
  template <detail::of_device B>
  operation<> send(const B& data, int dest, detail::origin_of<B> from) const {
    return send(data, dest, 0, from);
  }
  // Receives one message from `source` (or any_source) with `tag` (or any_tag) into `data`. The message may
  // be shorter than `data`: status.bytes is its length in bytes.
  // Completes: when the whole message is in `data`.
  // Errors: errc::truncated for a longer message; nothing is written past the end of `data`.
  // Cancellation: loses no message. A message that was on its way goes to the next matching receive.
  template <class B>
  operation<status> recv(B&& data, int source, int tag = any_tag,
                         detail::origin_of<B> from = call_site::current()) const {
    static_assert(WritableBuffer<B>,
                  "recv needs a writable buffer that outlives the operation: an lvalue, or a span");
    return message<operation<status>>(kind::receive, data, source, tag, from);
  }
  template <detail::of_device B>
  operation<status> recv(const B& data, int source, detail::origin_of<B> from) const {
    return recv(data, source, any_tag, from);
  }
  // Starts a send before it returns; see request.
  template <Buffer B>
  request isend(B&& data, int dest, int tag = 0, detail::origin_of<B> from = call_site::current()) const {
    static_assert(detail::lasting<B>, "isend needs a buffer that outlives the request: an lvalue, or a span");
    return message<request>(kind::send, data, dest, tag, from);
  }
  // Starts a receive before it returns; see request.
  template <class B>
  request irecv(B&& data, int source, int tag = any_tag,
                detail::origin_of<B> from = call_site::current()) const {
    static_assert(WritableBuffer<B>,
                  "irecv needs a writable buffer that outlives the request: an lvalue, or a span");
    return message<request>(kind::receive, data, source, tag, from);
  }
  template <detail::of_device B>
  request isend(const B& data, int dest, detail::origin_of<B> from) const {
    return isend(data, dest, 0, from);
  }
  template <detail::of_device B>
  request irecv(const B& data, int source, detail::origin_of<B> from) const {
    return irecv(data, source, any_tag, from);
  }

  // Waits for a message from `source` (or any_source) with `tag` (or any_tag) and returns its status. The
  // message stays queued on this rank until a receive takes it, which may be another coroutine's.
  // With a stream last, probes for a message that was sent from device memory.
  // Completes: when a receive with these arguments would match a message.
  operation<status> probe(int source = any_source, int tag = any_tag,
                          const detail::maybe_on_stream& from = call_site::current()) const {
    if (from.after == nullptr)
      return operation<status>(std::in_place, kind::probe, state_, detail::buffer_view{}, source, tag,
                               from.where);
    detail::call what(kind::probe, state_, detail::buffer_view{}, source, tag, from.where);
    what.part = from.after->part_of({});
    return operation<status>(std::move(what));
  }
  // Waits for such a message and takes it out of its queue, so that no other receive or probe of this rank gets
  // it: for several coroutines that receive messages of unknown length.
  //
  //   tutti::matched_message m = co_await world.matched_probe();
  //   std::vector<float> data(m.status().count<float>());
  //   co_await m.recv(data);
  //
  // Receives that are posted get a message before matched probes that wait; these get it in the order of their
  // start. The others wait on.
  // Cancellation: loses no message. One that the program has not got yet is queued again in its place.
  // Cost: as a probe and a receive that comes after its message.
  operation<matched_message> matched_probe(int source = any_source, int tag = any_tag,
                                           call_site where = call_site::current()) const {
    return operation<matched_message>(std::in_place, kind::matched_probe, state_, detail::buffer_view{},
                                      source, tag, where);
  }
  // Messages from memory of devices are not taken: use probe and recv with a stream.
  operation<matched_message> matched_probe(int source, int tag, const detail::on_stream&) const = delete;

  // ---- collectives ----
  //
  // Each rank's operation completes when its own part is done: its result is in place, and its buffers may be
  // reused. Results may be computed in place only where the comment says so; other overlaps are
  // errc::invalid_argument. `root` is the same on all ranks. The library chooses an algorithm by size, ranks
  // and hosts. `world.all_reduce(x, sum).with(algorithm::ring)` selects one by name. In steady state no
  // collective allocates: temporary memory is kept for the next call.

  // Waits until every rank has started this barrier, and a stream, if one is named, has passed the work enqueued
  // on it at the start.
  operation<> barrier(const detail::maybe_on_stream& from = call_site::current()) const {
    detail::call what(kind::barrier, state_, from.where);
    if (from.after != nullptr) what.part = from.after->part_of({});
    return operation<>(std::move(what));
  }

  // Copies `data` of `root` to `data` of every rank. Counts are equal on all ranks.
  template <class B>
  operation<> broadcast(B&& data, int root, detail::origin_of<B> from = call_site::current()) const {
    static_assert(WritableBuffer<B>,
                  "broadcast needs a writable buffer that outlives it: an lvalue, or a span");
    return message<operation<>>(kind::broadcast, data, root, 0, from);
  }

  // Reduces `inout` of all ranks element by element, and puts the result in `inout` of every rank. All ranks
  // get the same bits. With the same ranks and algorithm, the bits are the same from run to run; for more than 16 ranks
  // of a host also with the same TUTTI_FLAT_RANKS, and with ranks bound to the same caches.
  template <class B, class Op>
    requires(!detail::buffer_range<B>)
  operation<> all_reduce(B&& inout, const Op& op, detail::origin_of<B> from = call_site::current()) const {
    return operation<>(call_of<B, B>(kind::all_reduce, inout, inout, 0, from, op));
  }
  // all_reduce out of place: reads `in` and writes `out`, which have the same count.
  template <Buffer I, class B, class Op>
    requires(!detail::buffer_range<I> && !std::is_convertible_v<const Op&, detail::origin_of<I>>)
  operation_on<I> all_reduce(I&& in, B&& out, const Op& op,
                             detail::origin_of<I> from = call_site::current()) const {
    return operation<>(call_of<I, B>(kind::all_reduce, in, out, 0, from, op));
  }
  // Reduces a list of spans (such as std::vector<std::span<float>>, of small tensors) in place as one buffer.
  // Buffers: list and spans stay valid until completion.
  // Cost: copies every element once in and once out.
  template <class List, class Op>
    requires detail::buffer_range<List>
  operation_on<List> all_reduce(List&& list, const Op& op,
                                detail::origin_of<detail::value_in<List>> from = call_site::current()) const {
    using span = detail::value_in<List>;
    static_assert(WritableBuffer<span>, "all_reduce of a list needs spans of elements that are not const");
    detail::call what(kind::all_reduce, state_, detail::place_of(from));
    if constexpr (!detail::tensor<span>)
      what.out = {nullptr, 0, sizeof(element_of_t<span>), detail::element_type_of<element_of_t<span>>()};
    for (const span& piece : list) {
      detail::buffer_view all = detail::view_of(piece);
      all.count += what.out.count;
      what.out = all;
    }
    what.out.data = nullptr;
    what.in = what.out;
    what.peer = 0;
    what.op = reduction_of<span>(op, what.out);
    what.list.list = detail::data_of(list);
    what.list.size = detail::count_of(list);
    what.list.at = [](const void* first, std::size_t i) noexcept {
      return detail::view_of(const_cast<span&>(static_cast<const span*>(first)[i]));
    };
    if constexpr (detail::device_memory<span>) what.part = from.after.part_of({});
    if constexpr (detail::tensor<span>) what.part = detail::tensor_access<span>::keep(from, list);
    return operation<>(std::move(what));
  }

  // all_reduce in place, in chunks: the program gets each reduced chunk while later chunks are in flight.
  //
  //   auto chunks = world.all_reduce_chunks(gradient, sum);
  //   for (;;) { auto chunk = co_await chunks.next(); if (!chunk) break; step(*chunk); }
  //
  // The operation starts before this call returns. `chunk` is a number of elements, the same on all ranks; 0
  // chooses one from the size. Each chunk counts as one all_reduce in the order of collectives.
  template <class B, class Op>
  chunked_all_reduce<element_of_t<B>, detail::span_of<B>> all_reduce_chunks(
      B&& inout, const Op& op, std::size_t chunk = 0,
      detail::origin_of<B> from = call_site::current()) const {
    using chunks = chunked_all_reduce<element_of_t<B>, detail::span_of<B>>;
    detail::call what = call_of<B, B>(kind::all_reduce, inout, inout, 0, from, op);
    const detail::buffer_view all = what.out;
    const std::size_t n = chunk != 0 ? chunk : chunks::default_chunk(all.count, all.element_bytes);
    if constexpr (detail::tensor<B>)
      return chunks(std::move(what), inout, n);
    else
      return chunks(std::move(what), detail::span_of<B>(static_cast<element_of_t<B>*>(all.data), all.count),
                    n);
  }

  // Reduces `in` of all ranks into `out` of `root`. On other ranks `out` is not touched and may be empty.
  template <Buffer I, class B, class Op>
  operation_on<I> reduce(I&& in, B&& out, const Op& op, int root,
                         detail::origin_of<I> from = call_site::current()) const {
    return operation<>(call_of<I, B>(kind::reduce, in, out, root, from, op));
  }
  // Reduces `inout` of all ranks into `inout` of `root`. On other ranks `inout` keeps its contents.
  template <class B, class Op>
  operation<> reduce(B&& inout, const Op& op, int root,
                     detail::origin_of<B> from = call_site::current()) const {
    return operation<>(call_of<B, B>(kind::reduce, inout, inout, root, from, op));
  }

  // Copies block i of `in` of `root` to `out` of rank i. On `root`, `in` has size() times the count of `out`.
  // On other ranks `in` is not read and may be empty. In place: `out` of `root` is its own block of `in`.
  template <Buffer I, class B>
  operation_on<I> scatter(I&& in, B&& out, int root, detail::origin_of<I> from = call_site::current()) const {
    return operation<>(call_of<I, B>(kind::scatter, in, out, root, from));
  }
  // Copies `in` of rank i to block i of `out` of `root`: the reverse of scatter, with the same rules.
  template <Buffer I, class B>
  operation_on<I> gather(I&& in, B&& out, int root, detail::origin_of<I> from = call_site::current()) const {
    return operation<>(call_of<I, B>(kind::gather, in, out, root, from));
  }
  // Gathers on every rank: `out` has size() times the count of `in`. In place: `in` is the own block of `out`.
  template <Buffer I, class B>
  operation_on<I> all_gather(I&& in, B&& out, detail::origin_of<I> from = call_site::current()) const {
    return operation<>(call_of<I, B>(kind::all_gather, in, out, 0, from));
  }
  // Reduces `in` of all ranks and puts block i of the result in `out` of rank i. `in` has size() times the
  // count of `out`. In place: `out` is the own block of `in`.
  template <Buffer I, class B, class Op>
  operation_on<I> reduce_scatter(I&& in, B&& out, const Op& op,
                                 detail::origin_of<I> from = call_site::current()) const {
    return operation<>(call_of<I, B>(kind::reduce_scatter, in, out, 0, from, op));
  }
  // Copies block j of `in` of rank i to block i of `out` of rank j. Both buffers have the same count, a
  // multiple of size(). In place: `in` and `out` are the same buffer.
  template <Buffer I, class B>
  operation_on<I> all_to_all(I&& in, B&& out, detail::origin_of<I> from = call_site::current()) const {
    return operation<>(call_of<I, B>(kind::all_to_all, in, out, 0, from));
  }

  // Inclusive prefix reduction: `out` of rank i is the reduction of `in` of ranks 0 to i. In place: `in` and
  // `out` are the same buffer. There is no avg of a scan.
  template <Buffer I, class B, class Op>
  operation_on<I> scan(I&& in, B&& out, const Op& op,
                       detail::origin_of<I> from = call_site::current()) const {
    check_prefix<Op>();
    return operation<>(call_of<I, B>(kind::scan, in, out, 0, from, op));
  }
  // Exclusive prefix reduction: as scan, of ranks 0 to i - 1. `out` of rank 0 keeps its contents.
  template <Buffer I, class B, class Op>
  operation_on<I> exclusive_scan(I&& in, B&& out, const Op& op,
                                 detail::origin_of<I> from = call_site::current()) const {
    check_prefix<Op>();
    return operation<>(call_of<I, B>(kind::exclusive_scan, in, out, 0, from, op));
  }

  // ---- collectives of uneven blocks ----
  //
  // As the forms above, with a count for each rank: `counts` holds the elements of every rank's block, in
  // rank order. Blocks follow each other without gaps.
  // Buffers: the counts stay valid until completion. Temporary ones are for co_await alone.
  // Errors: errc::mismatch if a block's length differs from what its receiver expects.

  // Scatters uneven blocks. Only `root` reads `counts`.
  template <Buffer I, detail::count_list C = std::span<const std::size_t>, class B>
  operation_on<I, C> scatter_v(I&& in, C&& counts, B&& out, int root,
                               detail::origin_of<I> from = call_site::current()) const {
    return with_counts(call_of<I, B>(kind::scatter_v, in, out, root, from), std::forward<C>(counts), {});
  }
  // Gathers uneven blocks. Only `root` reads `counts`.
  template <Buffer I, class B, detail::count_list C = std::span<const std::size_t>>
  operation_on<I, C> gather_v(I&& in, B&& out, C&& counts, int root,
                              detail::origin_of<I> from = call_site::current()) const {
    return with_counts(call_of<I, B>(kind::gather_v, in, out, root, from), {}, std::forward<C>(counts));
  }
  // Gathers uneven blocks on every rank. `counts` is the same on all ranks.
  template <Buffer I, class B, detail::count_list C = std::span<const std::size_t>>
  operation_on<I, C> all_gather_v(I&& in, B&& out, C&& counts,
                                  detail::origin_of<I> from = call_site::current()) const {
    return with_counts(call_of<I, B>(kind::all_gather_v, in, out, 0, from), {}, std::forward<C>(counts));
  }
  // Reduces, and scatters uneven blocks of the result. `counts` is the same on all ranks.
  template <Buffer I, detail::count_list C = std::span<const std::size_t>, class B, class Op>
  operation_on<I, C> reduce_scatter_v(I&& in, C&& counts, B&& out, const Op& op,
                                      detail::origin_of<I> from = call_site::current()) const {
    return with_counts(call_of<I, B>(kind::reduce_scatter_v, in, out, 0, from, op), std::forward<C>(counts),
                       {});
  }
  // Sends in_counts[j] elements to rank j and receives out_counts[i] elements from rank i.
  template <Buffer I, detail::count_list C = std::span<const std::size_t>, class B,
            detail::count_list D = std::span<const std::size_t>>
  operation_on<I, C, D> all_to_all_v(I&& in, C&& in_counts, B&& out, D&& out_counts,
                                     detail::origin_of<I> from = call_site::current()) const {
    return with_counts(call_of<I, B>(kind::all_to_all_v, in, out, 0, from), std::forward<C>(in_counts),
                       std::forward<D>(out_counts));
  }

  // ---- groups ----
  //
  // New communicators, made by all ranks of this one together; several calls may be in flight. Each has a
  // message space of its own. A communicator is freed when its last handle is destroyed.
  // Cost: allocates.

  // Makes a communicator of the listed ranks, which become ranks 0, 1, ... in list order. The list is the
  // same on all ranks. Ranks outside it get an empty handle.
  // Buffers: the list stays valid until completion. A temporary one is for co_await alone.
  template <detail::rank_list R = std::span<const int>>
  operation_reading<communicator, R> group(R&& ranks, call_site where = call_site::current()) const {
    const std::span<const int> list = std::forward<R>(ranks);
    detail::call what(kind::group, state_, where);
    what.in.data = const_cast<int*>(list.data());
    what.in.count = list.size();
    return operation<communicator>(std::move(what));
  }
  // Makes one communicator for each color. Its ranks are ordered by key, then by rank in this communicator. A
  // rank with a negative color gets an empty handle.
  operation<communicator> split(int color, int key, call_site where = call_site::current()) const {
    detail::call what(kind::split, state_, where);
    what.peer = color;
    what.tag = key;
    return operation<communicator>(std::move(what));
  }
  // Makes a communicator of the same ranks.
  operation<communicator> duplicate(call_site where = call_site::current()) const {
    return operation<communicator>(detail::call(kind::duplicate, state_, where));
  }

  // Makes a window of `buffer`: memory that the other ranks read and write without a receive here. See class window.
  // Sizes and numbers of signals may differ by rank.
  // Completes: when every rank has called it.
  // Buffers: stays until the window has been dropped.
  // Errors: errc::mismatch on all ranks if element types differ; errc::invalid_argument, by the call, for a negative number
  // of signals.
  // Cost: as duplicate: each window has a communicator of its own. Allocates.
  template <class B>
  operation<tutti::window<element_of_t<B>>> window(B&& buffer, window_options how = {},
                                                   call_site where = call_site::current()) const {
    static_assert(WritableBuffer<B>, "window needs a writable buffer that outlives it: an lvalue, or a span");
    static_assert(!detail::of_device<B>,
                  "tutti: a window is memory of the host, or a tutti::gpu::device_buffer");
    detail::call what(kind::window, state_, where);
    what.out = detail::view_of(buffer);
    if (how.signals < 0) throw error(errc::invalid_argument, "window: window_options::signals is negative");
    what.in.count = static_cast<std::size_t>(how.signals);
    return operation<tutti::window<element_of_t<B>>>(std::move(what));
  }
  // Of a gpu::device_buffer: a task that makes a gpu::window (tutti/gpu/window.hpp). The library that has the memory
  // defines window_of().
  template <detail::device_memory B>
  auto window(B& buffer, window_options how = {}) const {
    return window_of(*this, buffer, how);
  }

  // ---- failure ----

  // Fails the communicator on all its ranks. Returns without waiting: this rank sends each member one
  // message. Pending operations end with errc::cancelled and a text that names this rank, on all ranks. On
  // another rank without pending ones, the next call ends so. Later calls end with errc::communicator_failed.
  // Collectives that this rank has completed still complete elsewhere. Communicators made from this one fail
  // with it. The communicator that this one was made from stays usable.
  void abort();
  // Returns the ranks that this rank knows to have failed, in ascending order. It knows from a lost
  // connection, from another member's message, or from the agreement in shrink(). When an operation throws
  // errc::peer_failed, the list includes every rank that the error names.
  // Errors: errc::wrong_thread outside the loop thread.
  std::vector<int> failed_ranks() const;
  // Makes a communicator of the surviving members, in rank order, to go on after a failure.
  //
  //   auto r = co_await tutti::as_result(world.all_reduce(gradient, tutti::sum));
  //   if (r.error) { world = co_await world.shrink(); continue; }
  //
  // All surviving members call it on a communicator that has failed for any reason. On one that has not
  // failed, shrink first ends the pending operations of all members, so that they call it too. Those end with
  // errc::peer_failed if a member has died, otherwise with errc::cancelled. Communicators made from this one
  // fail with it; make them again from the result.
  //
  // The members agree on the list, even if more of them die meanwhile. A member that dies during the
  // agreement is left out, or the next operation finds it dead. Members that have left or dropped their last
  // handle are left out too. If nobody is gone, the result has all members. No message of the old
  // communicator reaches the new one. If the network splits in two, both halves may go on: see size().
  // Errors: errc::timed_out on all waiting ranks, naming a member that did not call within the communicator's
  // timeout. errc::peer_failed on a rank that the others cannot reach. Either may be followed by shrink() again.
  // Cancellation: ends it for all members.
  // Cost: two messages per member, through the lowest surviving rank. Allocates.
  operation<communicator> shrink(call_site where = call_site::current()) const {
    return operation<communicator>(detail::call(kind::shrink, state_, where));
  }

  // Starts a new epoch of the world and returns its communicator: the way to go on with restarted or added
  // ranks. With a fixed number of nodes (tutti-run --on-failure restart) the new world has all ranks under
  // their old numbers; dead ones are restarted. With --nnodes MIN:MAX it has the nodes that are there, at least
  // MIN: surviving ranks first, in their order, then those of new nodes (newcomers()) and restarted processes.
  //
  // Every surviving rank calls it on a communicator of its world. A restarted rank gets the same communicator
  // from tutti::run or init. Nothing sent in an earlier epoch reaches the new one. On all communicators of the
  // old world, pending operations end with errc::peer_failed, later calls with errc::communicator_failed.
  // Completes: when all ranks, also those that die meanwhile, have met at the store, which rank 0 serves.
  // Errors: errc::join_failed, naming the missing ranks, if not all come within init_options::timeout. Also
  // if whatever started the ranks does not restart them.
  task<communicator> rejoin() const;
  // Returns, in ascending order, the ranks that this rank's operations wait for and that make no progress,
  // although they are not known to be dead. Such a rank is stopped, or busy outside its loop. It may go on at
  // any time, and nothing is lost. Updated about twice a second.
  // Errors: errc::wrong_thread outside the loop thread.
  std::vector<int> suspected_ranks() const;

  friend counters counters_of(const communicator& c);
  friend struct detail::communicator_access;
  friend bool operator==(const communicator& a, const communicator& b) noexcept {
    return a.state_.get() == b.state_.get();
  }

 private:
  // Makes an operation or a request (`Result`) of a message.
  template <class Result, class B>
  Result message(kind of, B& data, int peer, int tag, const detail::origin_of<B>& from) const {
    if constexpr (detail::device_memory<B> || detail::tensor<B>) {
      detail::call what(of, state_, detail::view_of(data), peer, tag, detail::place_of(from));
      what.part = part_of(from, data);
      return Result(std::move(what));
    } else {
      return Result(std::in_place, of, state_, detail::view_of(data), peer, tag, from);
    }
  }
  // The call of a collective with buffers `in` and `out`, of types I and B as the caller passed them.
  template <class I, class B, class Op = no_reduction>
  detail::call call_of(kind of, const std::remove_reference_t<I>& in, std::remove_reference_t<B>& out,
                       int root, const detail::origin_of<I>& from, const Op& op = {}) const {
    static_assert(WritableBuffer<B>,
                  "tutti: the result needs a writable buffer that outlives the operation: an lvalue, or a "
                  "span of elements that are not const");
    static_assert(std::is_same_v<element_of_t<I>, element_of_t<B>>,
                  "tutti: both buffers need one element type");
    static_assert(detail::device_memory<I> == detail::device_memory<B>,
                  "tutti: both buffers are of the host, or both of devices");
    detail::call what(of, state_, detail::place_of(from));
    what.in = detail::view_of(in);
    what.out = detail::view_of(out);
    what.peer = root;
    if constexpr (!std::is_same_v<Op, no_reduction>) what.op = reduction_of<B>(op, what.out);
    if constexpr (detail::device_memory<I> || detail::tensor<I>) what.part = part_of(from, in, out);
    return what;
  }
  template <class From, class B, class... More>
  static detail::part_ref part_of(const From& from, const B& buffer, const More&... more) {
    if constexpr (detail::device_memory<B>)
      return from.after.part_of(detail::owner_of(buffer), detail::owner_of(more)...);
    else
      return detail::tensor_access<B>::keep(from, buffer, more...);
  }
  template <class B, class Op>
  static detail::reduction reduction_of(const Op& op, const detail::buffer_view& data) {
    if constexpr (detail::tensor<B>)
      return detail::tensor_access<std::remove_cvref_t<B>>::reduction(op, data.type);
    else
      return detail::make_reduction<Op, element_of_t<B>>(op);
  }
  static operation<> with_counts(detail::call what, std::span<const std::size_t> in,
                                 std::span<const std::size_t> out) {
    what.in_counts = in;
    what.out_counts = out;
    return operation<>(std::move(what));
  }
  template <class Op>
  static constexpr void check_prefix() {
    if constexpr (detail::built_in<Op>)
      static_assert(Op::kind != reduce_kind::avg,
                    "tutti: there is no avg of a scan; divide its sum by rank() + 1");
  }

  detail::communicator_ref state_;
};

// Returns how many ranks wait to join the world of this communicator, as far as this rank knows. These are
// ranks of nodes started since (tutti-run --nnodes MIN:MAX), and restarted processes. They join when all
// ranks call rejoin(). Ranks may learn of newcomers at different times, so they agree on the call, for
// example by an all_reduce at a chosen step. Returns 0 in a world with a fixed number of nodes.
// Errors: throws errc::invalid_argument (empty communicator), errc::shut_down or errc::wrong_thread.
// Cost: none.
int newcomers(const communicator& world);

}  // namespace tutti
