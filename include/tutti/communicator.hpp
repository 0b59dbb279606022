// SPDX-License-Identifier: Apache-2.0
// communicator: the ranks of a group, and what they can say to each other.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/chunked.hpp>
#include <tutti/detail/asio_config.hpp>
#include <tutti/operation.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/request.hpp>
#include <tutti/status.hpp>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <ranges>
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

// A group of ranks whose messages no other communicator sees. A cheap handle: copies share the group.
//
// Belongs to its runtime's loop: its operations are called on the loop thread, from coroutines and handlers
// that run there. From another thread they end with errc::wrong_thread; boost::asio::post or co_spawn on
// get_executor() is the way in.
//
// Buffers: one object or a contiguous range of a trivially copyable type; counts are in elements. A buffer
// must stay valid, and unmodified (sent) or untouched (received), until its operation has completed, failed
// or been cancelled. Every wait ends at the latest after init_options::timeout with errc::timed_out, and
// earlier when a peer dies (errc::peer_failed) or leaves (errc::peer_left); one from any_source when any
// member dies, once for each death. Wrong arguments end with errc::invalid_argument and move nothing.
//
// Order: messages from one rank to another with one tag do not overtake each other. Collectives are matched
// by the order in which they are started, which must be the same on all ranks; several may be in flight.
// Ranks that call different collectives, counts, element types, reductions or roots get errc::mismatch,
// naming both calls. A rank that is done before the calls were compared may have success, such as the root of
// a broadcast or the sender of a block to gather; one of its later calls then fails. group, split and
// duplicate give no rank a communicator then. A collective that fails on one rank fails on all that have not
// completed it; the communicator is then failed, and says so to every further call.
//
// Every operation takes, last, the place that it is called from (its caller leaves it out): errors about
// buffers name it.
//
// Memory of devices (tutti/gpu.hpp): wherever a buffer is taken, a gpu::device_buffer or gpu::device_span is, too,
// with the stream that the operation comes after as the last argument: world.all_reduce(x, sum, stream). Such an
// operation reads and writes nothing before that stream has passed what is on it when the operation starts, and
// completes when the device has done it; see tutti/gpu/open.hpp. So does a tensor on a device (tutti/torch.hpp). A collective takes memory of devices on all ranks or
// on none, and a message that is sent from such memory is received into such memory.
class communicator {
 public:
  using executor_type = boost::asio::io_context::executor_type;

  communicator() noexcept = default;  // a member of nothing
  explicit communicator(detail::communicator_ref state) noexcept : state_(std::move(state)) {}

  int rank() const noexcept;
  int size() const noexcept;
  // False: this rank is not a member.
  explicit operator bool() const noexcept { return static_cast<bool>(state_); }
  executor_type get_executor() const noexcept { return detail::executor_of(*state_); }
  const std::string& name() const noexcept;  // as in error texts: "world"

  // ---- point to point ----

  // Sends `data` to `dest` with `tag` (>= 0). Completes when the buffer may be changed: small messages are
  // copied out at once, long ones when the receiver has taken them. Long: over 256 KiB on TCP; in shared
  // memory over 16 KiB, or over 4 KiB for messages that lie in memory of tutti::shared_allocator. Cancelling
  // takes back what has not been received. Copies: shared memory 2 (in and out of a ring), or 1 for long
  // messages that lie in memory of tutti::shared_allocator; TCP the kernel's.
  template <Buffer B>
  operation_on<B> send(B&& data, int dest, int tag = 0,
                       detail::origin_of<B> from = call_site::current()) const {
    return message<operation_on<B>>(detail::operation_kind::send, data, dest, tag, from);
  }
  template <detail::of_device B, detail::Stream S>
  operation<> send(const B& data, int dest, const S& after, call_site where = call_site::current()) const {
    return send(data, dest, 0, {after, where});
  }
  // Receives one message from `source` (or any_source) with `tag` (or any_tag). Completes with the message in
  // `data`. A longer message is errc::truncated, with nothing written past the end; a shorter one is fine:
  // status.bytes. Cancelling a receive that has no message yet loses none.
  template <class B>
  operation<status> recv(B&& data, int source, int tag = any_tag,
                         detail::origin_of<B> from = call_site::current()) const {
    static_assert(WritableBuffer<B>,
                  "recv needs a writable buffer that outlives the operation: an lvalue, or a span");
    return message<operation<status>>(detail::operation_kind::receive, data, source, tag, from);
  }
  template <detail::of_device B, detail::Stream S>
  operation<status> recv(const B& data, int source, const S& after,
                         call_site where = call_site::current()) const {
    return recv(data, source, any_tag, {after, where});
  }
  // The same, started on return; see request.
  template <Buffer B>
  request isend(B&& data, int dest, int tag = 0, detail::origin_of<B> from = call_site::current()) const {
    static_assert(detail::lasting<B>, "isend needs a buffer that outlives the request: an lvalue, or a span");
    return message<request>(detail::operation_kind::send, data, dest, tag, from);
  }
  template <class B>
  request irecv(B&& data, int source, int tag = any_tag,
                detail::origin_of<B> from = call_site::current()) const {
    static_assert(WritableBuffer<B>,
                  "irecv needs a writable buffer that outlives the request: an lvalue, or a span");
    return message<request>(detail::operation_kind::receive, data, source, tag, from);
  }
  template <detail::of_device B, detail::Stream S>
  request isend(const B& data, int dest, const S& after, call_site where = call_site::current()) const {
    return isend(data, dest, 0, {after, where});
  }
  template <detail::of_device B, detail::Stream S>
  request irecv(const B& data, int source, const S& after, call_site where = call_site::current()) const {
    return irecv(data, source, any_tag, {after, where});
  }

  // Completes when a message from `source` (or any_source) with `tag` (or any_tag) could be received, with
  // its status, and leaves it where it is. It stays this rank's until a receive takes it: another coroutine's
  // may be faster.
  operation<status> probe(int source = any_source, int tag = any_tag,
                          call_site where = call_site::current()) const {
    return operation<status>(std::in_place, detail::operation_kind::probe, state_, detail::buffer_view{},
                             source, tag, where);
  }
  // Of messages from memory of devices.
  template <detail::Stream S>
  operation<status> probe(int source, int tag, const S& after, call_site where = call_site::current()) const {
    detail::call what(detail::operation_kind::probe, state_, detail::buffer_view{}, source, tag, where);
    what.part = device_part_of(after);
    return operation<status>(std::move(what));
  }

  // ---- collectives ----
  //
  // Operations complete on each rank when its own part is done: its buffers are its own again, and its result
  // is there. Results may be given in place where that is said; other overlaps are errc::invalid_argument.
  // `root` is the same on all ranks. Each has several algorithms, chosen by size, ranks and hosts;
  // world.all_reduce(x, sum).with(algorithm::ring) names one. None allocates in steady state; temporary
  // memory, where an algorithm needs some, is kept for the next call.

  // Completes when every rank has started its barrier.
  operation<> barrier(call_site where = call_site::current()) const {
    return operation<>(detail::call(detail::operation_kind::barrier, state_, where));
  }
  // ... and its stream has passed what was on it then.
  template <detail::Stream S>
  operation<> barrier(const S& after, call_site where = call_site::current()) const {
    detail::call what(detail::operation_kind::barrier, state_, where);
    what.part = device_part_of(after);
    return operation<>(std::move(what));
  }

  // `data` of `root` to `data` of every rank; counts must be equal.
  template <class B>
  operation<> broadcast(B&& data, int root, detail::origin_of<B> from = call_site::current()) const {
    static_assert(WritableBuffer<B>,
                  "broadcast needs a writable buffer that outlives it: an lvalue, or a span");
    return message<operation<>>(detail::operation_kind::broadcast, data, root, 0, from);
  }

  // Element by element, `inout` of all ranks reduced into `inout` of every rank. Bit for bit the same result
  // on all ranks, and from run to run with the same ranks and algorithm.
  template <class B, class Op>
    requires(!detail::buffer_range<B>)
  operation<> all_reduce(B&& inout, const Op& op, detail::origin_of<B> from = call_site::current()) const {
    return reduction<B, B>(detail::operation_kind::all_reduce, inout, inout, op, 0, from);
  }
  // The same out of place; `in` and `out` have the same count.
  template <Buffer I, class B, class Op>
    requires(!detail::buffer_range<I> && !std::is_convertible_v<const Op&, detail::origin_of<I>>)
  operation_on<I> all_reduce(I&& in, B&& out, const Op& op,
                             detail::origin_of<I> from = call_site::current()) const {
    return reduction<I, B>(detail::operation_kind::all_reduce, in, out, op, 0, from);
  }
  // A list of spans (std::vector<std::span<float>>, ...) reduced in place as if they were one buffer: one
  // operation for many small tensors. List and spans stay valid until it has completed. Copies everything
  // once in and once out.
  template <class List, class Op>
    requires detail::buffer_range<List>
  operation_on<List> all_reduce(
      List&& list, const Op& op,
      detail::origin_of<std::ranges::range_value_t<List>> from = call_site::current()) const {
    using span = std::remove_cv_t<std::ranges::range_value_t<List>>;
    static_assert(WritableBuffer<span>, "all_reduce of a list needs spans of elements that are not const");
    detail::call what(detail::operation_kind::all_reduce, state_, detail::place_of(from));
    if constexpr (!detail::tensor<span>) {
      what.out.element_bytes = sizeof(element_of_t<span>);
      what.out.type = detail::element_type_of<element_of_t<span>>();
    }
    for (const span& piece : list) {
      const detail::buffer_view view = detail::view_of(piece);
      what.out.count += view.count;
      if constexpr (detail::tensor<span>) {
        what.out.element_bytes = view.element_bytes;
        what.out.type = view.type;
      }
    }
    what.in = what.out;
    what.peer = 0;
    what.op = reduction_of<span>(op, what.out);
    what.list.list = std::ranges::data(list);
    what.list.size = std::ranges::size(list);
    what.list.at = [](const void* first, std::size_t i) noexcept {
      return detail::view_of(const_cast<span&>(static_cast<const span*>(first)[i]));
    };
    if constexpr (detail::device_memory<span>) what.part = device_part_of(from.after);
    if constexpr (detail::tensor<span>) what.part = detail::tensor_access<span>::keep(from, list);
    return operation<>(std::move(what));
  }

  // The same in place, chunk by chunk: each finished chunk is handed out while the next are on their way.
  //
  //   auto chunks = world.all_reduce_chunks(gradient, sum);
  //   for (;;) { auto chunk = co_await chunks.next(); if (!chunk) break; step(*chunk); }
  //
  // Started on return. `chunk`: elements, the same on all ranks; 0 lets the size decide. Each chunk is an
  // all_reduce of its own in the order of collectives.
  template <class B, class Op>
  chunked_all_reduce<element_of_t<B>, detail::span_of<B>> all_reduce_chunks(
      B&& inout, const Op& op, std::size_t chunk = 0,
      detail::origin_of<B> from = call_site::current()) const {
    using chunks = chunked_all_reduce<element_of_t<B>, detail::span_of<B>>;
    detail::call what = reduction_call<B, B>(detail::operation_kind::all_reduce, inout, inout, op, 0, from);
    const detail::buffer_view all = what.out;
    const std::size_t n = chunk != 0 ? chunk : chunks::default_chunk(all.count, all.element_bytes);
    if constexpr (detail::tensor<B>)
      return chunks(std::move(what), inout, n);
    else
      return chunks(std::move(what), detail::span_of<B>(static_cast<element_of_t<B>*>(all.data), all.count),
                    n);
  }

  // `in` of all ranks reduced into `out` of `root`; elsewhere `out` is not touched and may be empty.
  template <Buffer I, class B, class Op>
  operation_on<I> reduce(I&& in, B&& out, const Op& op, int root,
                         detail::origin_of<I> from = call_site::current()) const {
    return reduction<I, B>(detail::operation_kind::reduce, in, out, op, root, from);
  }
  // In place: the result is in `inout` of `root`; that of the others stays as it was.
  template <class B, class Op>
  operation<> reduce(B&& inout, const Op& op, int root,
                     detail::origin_of<B> from = call_site::current()) const {
    return reduction<B, B>(detail::operation_kind::reduce, inout, inout, op, root, from);
  }

  // Block i of `root`'s `in` to `out` of rank i: `in` has size() times the count of `out`. Elsewhere `in` is
  // not looked at and may be empty. In place: root's `out` is its own block of `in`.
  template <Buffer I, class B>
  operation_on<I> scatter(I&& in, B&& out, int root, detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::scatter, in, {}, out, {}, root, from);
  }
  // `in` of rank i to block i of `root`'s `out`, the mirror image of scatter.
  template <Buffer I, class B>
  operation_on<I> gather(I&& in, B&& out, int root, detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::gather, in, {}, out, {}, root, from);
  }
  // `in` of rank i to block i of `out` of every rank: `out` has size() times the count of `in`. In place:
  // `in` is the own block of `out`.
  template <Buffer I, class B>
  operation_on<I> all_gather(I&& in, B&& out, detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::all_gather, in, {}, out, {}, 0, from);
  }
  // The reduction of all ranks' `in`, block i of it to `out` of rank i: `in` has size() times the count of
  // `out`. In place: `out` is the own block of `in`.
  template <Buffer I, class B, class Op>
  operation_on<I> reduce_scatter(I&& in, B&& out, const Op& op,
                                 detail::origin_of<I> from = call_site::current()) const {
    return reduction<I, B>(detail::operation_kind::reduce_scatter, in, out, op, 0, from);
  }
  // Block j of rank i's `in` to block i of rank j's `out`; both have the same count, a multiple of size(). In
  // place: `in` and `out` are the same buffer.
  template <Buffer I, class B>
  operation_on<I> all_to_all(I&& in, B&& out, detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::all_to_all, in, {}, out, {}, 0, from);
  }

  // `out` of rank i: the reduction of `in` of ranks 0 to i. In place with `in` and `out` the same buffer. avg
  // does not exist here.
  template <Buffer I, class B, class Op>
  operation_on<I> scan(I&& in, B&& out, const Op& op,
                       detail::origin_of<I> from = call_site::current()) const {
    return prefix<I, B>(detail::operation_kind::scan, in, out, op, from);
  }
  // The same of ranks 0 to i - 1; `out` of rank 0 stays as it was.
  template <Buffer I, class B, class Op>
  operation_on<I> exclusive_scan(I&& in, B&& out, const Op& op,
                                 detail::origin_of<I> from = call_site::current()) const {
    return prefix<I, B>(detail::operation_kind::exclusive_scan, in, out, op, from);
  }

  // ---- collectives of uneven blocks ----
  //
  // `counts` has the elements of every rank's block, in the order of the ranks; the blocks lie one behind the
  // other. It must stay valid until completion. A block that is not as long as its receiver expects is
  // errc::mismatch.

  // `counts` is looked at on `root` only.
  template <Buffer I, class B>
  operation_on<I> scatter_v(I&& in, std::span<const std::size_t> counts, B&& out, int root,
                            detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::scatter_v, in, counts, out, {}, root, from);
  }
  // `counts` is looked at on `root` only.
  template <Buffer I, class B>
  operation_on<I> gather_v(I&& in, B&& out, std::span<const std::size_t> counts, int root,
                           detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::gather_v, in, {}, out, counts, root, from);
  }
  // `counts` is the same on all ranks.
  template <Buffer I, class B>
  operation_on<I> all_gather_v(I&& in, B&& out, std::span<const std::size_t> counts,
                               detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::all_gather_v, in, {}, out, counts, 0, from);
  }
  // `counts` is the same on all ranks.
  template <Buffer I, class B, class Op>
  operation_on<I> reduce_scatter_v(I&& in, std::span<const std::size_t> counts, B&& out, const Op& op,
                                   detail::origin_of<I> from = call_site::current()) const {
    detail::call what = reduction_call<I, B>(detail::operation_kind::reduce_scatter_v, in, out, op, 0, from);
    what.in_counts = {counts.data(), counts.size()};
    return operation<>(std::move(what));
  }
  // in_counts[j] elements go to rank j, out_counts[i] come from rank i.
  template <Buffer I, class B>
  operation_on<I> all_to_all_v(I&& in, std::span<const std::size_t> in_counts, B&& out,
                               std::span<const std::size_t> out_counts,
                               detail::origin_of<I> from = call_site::current()) const {
    return uneven<I, B>(detail::operation_kind::all_to_all_v, in, in_counts, out, out_counts, 0, from);
  }

  // ---- groups ----
  //
  // New communicators, made by all ranks of this one together, several at a time if wanted. They see nothing
  // of each other and are freed when the last handle goes. Allocate.

  // Of these ranks, which get the ranks 0, 1, ... in the order of the list, the same list everywhere. Others
  // get an empty handle. The list stays valid until completion.
  operation<communicator> group(std::span<const int> ranks, call_site where = call_site::current()) const {
    detail::call what(detail::operation_kind::group, state_, where);
    what.in.data = const_cast<int*>(ranks.data());
    what.in.count = ranks.size();
    return operation<communicator>(std::move(what));
  }
  // One for each color: its ranks are ordered by key, then by rank here. A negative color gets an empty
  // handle.
  operation<communicator> split(int color, int key, call_site where = call_site::current()) const {
    detail::call what(detail::operation_kind::split, state_, where);
    what.peer = color;
    what.tag = key;
    return operation<communicator>(std::move(what));
  }
  // The same ranks.
  operation<communicator> duplicate(call_site where = call_site::current()) const {
    return operation<communicator>(detail::call(detail::operation_kind::duplicate, state_, where));
  }

  // ---- failure ----

  // Fails the communicator on all its ranks: what is pending there, or is called next, ends with
  // errc::cancelled and a text that names this rank; later calls with errc::communicator_failed. Collectives
  // that this rank has completed complete on the others, too. Communicators made from this one fail with it;
  // the one it was made from goes on. Does not wait; others hear of it in one message.
  void abort();
  // The ranks that this rank knows to have failed, in ascending order: it has lost its connection to them,
  // another member has told it, or the members have agreed in shrink(). When an operation throws
  // errc::peer_failed, they include every rank that the error names.
  std::vector<int> failed_ranks() const;
  // The way on after a failure: a new communicator of the members that are left, in the order of their ranks.
  //
  //   auto r = co_await tutti::as_result(world.all_reduce(gradient, tutti::sum));
  //   if (r.error) { world = co_await world.shrink(); continue; }
  //
  // Called by all members that are left, on a communicator that has failed for whatever reason. On one that
  // has not, it first ends what is pending on it, on all its members, so that they come too: with
  // errc::peer_failed where a member has died, else errc::cancelled. Communicators made from this one fail
  // with it, and are to be made anew from the result.
  //
  // All agree on the members, also when more of them die meanwhile: whoever dies before the end is left out,
  // or is found dead in the next operation. Members that have left, or have dropped their last handle, are
  // left out too. With nobody gone, all members are in it again. Messages of the old communicator never reach
  // the new one. There is no quorum: of a network that falls in two, both halves may go on; size() tells.
  //
  // errc::timed_out on all that wait, when a member does not call it within the communicator's timeout,
  // naming it; errc::peer_failed on a rank that the others cannot reach. Either can be followed by another
  // shrink(). Cancelling ends it for all. Takes two messages per member, through the first that is left.
  // Allocates.
  operation<communicator> shrink(call_site where = call_site::current()) const {
    return operation<communicator>(detail::call(detail::operation_kind::shrink, state_, where));
  }

  // The other way on: a new epoch of the world. With a fixed number of nodes (tutti-run --on-failure restart)
  // that is all ranks again, those that have died too, started anew. With --nnodes MIN:MAX it is those that
  // are there: the ranks that are left keep their order and come first, then those of the nodes that have come
  // meanwhile (newcomers()), and processes started anew; none has fewer than MIN nodes.
  //
  // Every rank that is left calls it, on a communicator of its world; a rank that is started anew
  // gets the same from tutti::run or init. Gives the world's communicator of the new epoch, of a fixed
  // number of nodes with all ranks under their old numbers; nothing that was sent in an earlier one reaches it. What this world's
  // communicators still had pending ends with errc::peer_failed, and further calls with
  // errc::communicator_failed.
  //
  // Ranks meet at the store of their world again, which rank 0 keeps. errc::join_failed when not all have
  // come within init_options::timeout, naming those that are missing, and when whatever started the ranks
  // does not start them anew. More ranks may die meanwhile: it waits for those too.
  task<communicator> rejoin() const;
  // The ranks for which operations of this rank wait at the moment, and which do not progress although they
  // are not known to be dead: stopped, or busy outside of their loops; ascending. Looked at about twice a
  // second. They may go on at any time, and then nothing is lost.
  std::vector<int> suspected_ranks() const;

  friend counters counters_of(const communicator& c);
  friend struct detail::communicator_access;
  friend bool operator==(const communicator& a, const communicator& b) noexcept {
    return a.state_.get() == b.state_.get();
  }

 private:
  // `Result`: an operation or a request.
  template <class Result, class B>
  Result message(detail::operation_kind kind, B& data, int peer, int tag,
                 const detail::origin_of<B>& from) const {
    if constexpr (detail::device_memory<B> || detail::tensor<B>) {
      detail::call what(kind, state_, detail::view_of(data), peer, tag, detail::place_of(from));
      what.part = part_of(from, data);
      return Result(std::move(what));
    } else {
      return Result(std::in_place, kind, state_, detail::view_of(data), peer, tag, from);
    }
  }
  // With `in` and `out` as they are given, by their types I and B.
  template <class I, class B>
  detail::call call_of(detail::operation_kind kind, const std::remove_reference_t<I>& in,
                       std::remove_reference_t<B>& out, int root, const detail::origin_of<I>& from) const {
    static_assert(WritableBuffer<B>,
                  "tutti: the result needs a writable buffer that outlives the operation: an lvalue, or a "
                  "span of elements that are not const");
    static_assert(std::is_same_v<element_of_t<I>, element_of_t<B>>,
                  "tutti: both buffers need one element type");
    static_assert(detail::device_memory<I> == detail::device_memory<B>,
                  "tutti: both buffers are of the host, or both of devices");
    detail::call what(kind, state_, detail::place_of(from));
    what.in = detail::view_of(in);
    what.out = detail::view_of(out);
    what.peer = root;
    if constexpr (detail::device_memory<I> || detail::tensor<I>) what.part = part_of(from, in, out);
    return what;
  }
  template <class From, class B, class... More>
  static detail::part_ref part_of(const From& from, const B& buffer, const More&... more) {
    if constexpr (detail::device_memory<B>)
      return device_part_of(from.after, buffer, more...);
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
  template <class I, class B, class Op>
  detail::call reduction_call(detail::operation_kind kind, const std::remove_reference_t<I>& in,
                              std::remove_reference_t<B>& out, const Op& op, int root,
                              const detail::origin_of<I>& from) const {
    detail::call what = call_of<I, B>(kind, in, out, root, from);
    what.op = reduction_of<B>(op, what.out);
    return what;
  }
  template <class I, class B, class Op>
  operation<> reduction(detail::operation_kind kind, const std::remove_reference_t<I>& in,
                        std::remove_reference_t<B>& out, const Op& op, int root,
                        const detail::origin_of<I>& from) const {
    return operation<>(reduction_call<I, B>(kind, in, out, op, root, from));
  }
  template <class I, class B>
  operation<> uneven(detail::operation_kind kind, const std::remove_reference_t<I>& in,
                     std::span<const std::size_t> in_counts, std::remove_reference_t<B>& out,
                     std::span<const std::size_t> out_counts, int root,
                     const detail::origin_of<I>& from) const {
    detail::call what = call_of<I, B>(kind, in, out, root, from);
    what.in_counts = {in_counts.data(), in_counts.size()};
    what.out_counts = {out_counts.data(), out_counts.size()};
    return operation<>(std::move(what));
  }
  template <class I, class B, class Op>
  operation<> prefix(detail::operation_kind kind, const std::remove_reference_t<I>& in,
                     std::remove_reference_t<B>& out, const Op& op, const detail::origin_of<I>& from) const {
    if constexpr (detail::built_in<Op>)
      static_assert(Op::kind != reduce_kind::avg,
                    "tutti: there is no avg of a scan; divide its sum by rank() + 1");
    return reduction<I, B>(kind, in, out, op, 0, from);
  }

  detail::communicator_ref state_;
};

// How many ranks wait to come into the world of this communicator, as this rank knows at the moment: those of
// nodes that have been started since (tutti-run --nnodes MIN:MAX), and processes started anew. They are in
// when all ranks call rejoin(), which ranks agree on by an all_reduce at a step of their choice, for they may
// learn of newcomers at different times. 0 in a world of a fixed number of nodes. Costs nothing.
//
// Throws errc::invalid_argument (an empty communicator), errc::shut_down (the runtime has ended),
// errc::wrong_thread (outside the loop's thread).
int newcomers(const communicator& world);

}  // namespace tutti
