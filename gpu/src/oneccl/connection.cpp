// SPDX-License-Identifier: Apache-2.0
#include "oneccl/connection.hpp"

#include "comm/calls.hpp"
#include "kernels/host_kernels.hpp"
#include "oneccl/connect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace tutti::oneccl {
namespace {

using gpu::detail::call;
using gpu::detail::operation_kind;
using gpu::detail::view;
using gpu::detail::work_state;

// One call of oneCCL, and the memory that it uses.
struct job_data {
  operation_kind kind{};
  void* in = nullptr;
  void* out = nullptr;
  std::size_t in_count = 0, out_count = 0;
  std::uint32_t element_bytes = 0;
  element_type type = element_type::opaque;
  tutti::detail::reduction op;
  int peer = -1;
  int rank = 0;
  int size = 1;
  std::vector<std::shared_ptr<const void>> keep;
};

bool overlap(const view& a, const view& b) noexcept {
  const auto x = reinterpret_cast<std::uintptr_t>(a.data), y = reinterpret_cast<std::uintptr_t>(b.data);
  return a.bytes() > 0 && b.bytes() > 0 && x < y + b.bytes() && y < x + a.bytes();
}

// Operations that only move elements move bytes: oneCCL need not know the type.
abi::result call_oneccl(const core& on, job_data& j) {
  const abi::table& n = on.calls;
  abi::communicator* const c = on.handle;
  void* const stream = on.queue.handle;
  const bool by_queue = stream != nullptr;
  const std::size_t e = j.element_bytes;
  const auto ranks = static_cast<std::size_t>(j.size);
  const int type = abi::type_of(j.type);
  int op = abi::operation_of(j.op.kind);
  const bool average = j.op.kind == reduce_kind::avg, scaled = j.op.kind == reduce_kind::premul_sum;
  if (average) op = by_queue ? abi::average : abi::sum;
  if (scaled && by_queue) {
    alignas(16) std::byte factor[16];
    std::memcpy(factor, j.op.state.data(), sizeof factor);
    if (const abi::result r = n.make_premul_sum(&op, factor, type, abi::host_immediate, c); r != abi::success)
      return r;
  } else if (scaled) {
    op = abi::sum;
    const double factor = gpu::detail::factor_in(j.op, j.type);
    const void* const from = j.in;
    gpu::kernels::reduce_on_host(reduce_kind::premul_sum, j.type, std::span(&from, 1), std::span(&j.in, 1),
                                 std::span(&factor, 1), j.in_count, 1);
  }
  abi::result r = abi::success;
  switch (j.kind) {
    case operation_kind::all_reduce:
      r = n.all_reduce(j.in, j.out, j.in_count, type, op, c, stream);
      break;
    case operation_kind::reduce:
      r = n.reduce(j.in, j.out, j.in_count, type, op, j.peer, c, stream);
      break;
    case operation_kind::reduce_scatter:
      r = n.reduce_scatter(j.in, j.out, j.out_count, type, op, c, stream);
      break;
    case operation_kind::broadcast:
      r = n.broadcast(j.in, j.out, j.in_count * e, abi::uint8, j.peer, c, stream);
      break;
    case operation_kind::scatter:
      r = n.scatter(j.in, j.out, j.out_count * e, abi::uint8, j.peer, c, stream);
      break;
    case operation_kind::all_gather:
      r = n.all_gather(j.in, j.out, j.in_count * e, abi::uint8, c, stream);
      break;
    case operation_kind::all_to_all:
      r = n.all_to_all(j.in, j.out, j.in_count / ranks * e, abi::uint8, c, stream);
      break;
    case operation_kind::gather: {
      // oneCCL has no gather: all ranks send to the root.
      std::vector<std::size_t> to(ranks, 0), from(ranks, j.rank == j.peer ? j.in_count * e : 0);
      to[static_cast<std::size_t>(j.peer)] = j.in_count * e;
      r = n.all_to_all_v(j.in, to.data(), j.out, from.data(), abi::uint8, c, stream);
      break;
    }
    default:
      r = abi::not_implemented;
  }
  std::exception_ptr failure;
  try {
    if (r == abi::success && by_queue && on.queue.finish) on.queue.finish();
  } catch (const std::exception& thrown) {
    failure =
        std::make_exception_ptr(error(errc::device_failed, fmt::format("the SYCL queue: {}", thrown.what())));
  }
  if (scaled && by_queue) n.destroy_operation(op, c);
  if (failure) std::rethrow_exception(failure);
  if (r == abi::success && average && !by_queue && (j.kind != operation_kind::reduce || j.rank == j.peer)) {
    const void* const from = j.out;
    gpu::kernels::reduce_on_host(reduce_kind::avg, j.type, std::span(&from, 1), std::span(&j.out, 1), {},
                                 j.out_count, j.size);
  }
  return r;
}

bool has_input(const call& c, int rank) noexcept {
  return (c.kind != operation_kind::broadcast && c.kind != operation_kind::scatter) || c.peer == rank;
}
bool has_output(const call& c, int rank) noexcept {
  if (c.kind == operation_kind::reduce || c.kind == operation_kind::gather) return c.peer == rank;
  return !(c.kind == operation_kind::broadcast && c.peer == rank && c.in.data == c.out.data);
}

}  // namespace

connection::connection(std::shared_ptr<gpu::detail::attachment> on,
                       std::shared_ptr<gpu::detail::submit_thread> thread, std::shared_ptr<core> c, int rank,
                       int size)
    : on_(std::move(on)),
      thread_(std::move(thread)),
      core_(std::move(c)),
      rank_(rank),
      size_(size),
      staging_(std::make_shared<gpu::detail::staging>(on_->shared_driver())) {
  const auto make = [this] {
    return std::make_shared<gpu::detail::stream_state>(on_, on_->driver().make_stream(true), true);
  };
  out_ = make();
  in_ = make();
}

connection::~connection() {
  if (!ended_) thread_->submit([of = core_] { of->calls.destroy(of->handle); });
}

std::string_view why_not_by_oneccl(const call& c, bool by_queue) noexcept {
  const reduce_kind kind = c.op.kind;
  const bool made_of_sum = kind == reduce_kind::avg || kind == reduce_kind::premul_sum;
  const bool wide = kind == reduce_kind::premul_sum &&
                    (c.in.type == element_type::int64 || c.in.type == element_type::uint64);
  if (kind == reduce_kind::user) return "oneCCL has no reduction by a callable";
  if (kind != reduce_kind::none &&
      (abi::type_of(c.in.type) < 0 || wide || (!made_of_sum && abi::operation_of(kind) < 0)))
    return "oneCCL has no such reduction of this type";
  if (!gpu::detail::has_chunks(c)) return "oneCCL has no uneven blocks, lists, scans and barriers";
  if (by_queue && c.kind == operation_kind::all_to_all && overlap(c.in, c.out))
    return "oneCCL cannot do it in place";
  return {};
}

// Ends the connection if an operation ends early: the thread may never return from its call.
class connection::unfinished {
 public:
  explicit unfinished(connection& of) noexcept : of_(of) {}
  unfinished(const unfinished&) = delete;
  unfinished& operator=(const unfinished&) = delete;
  ~unfinished() {
    if (finished_) return;
    of_.ended_ = true;
    of_.thread_->leave_behind();
  }
  void finished() noexcept { finished_ = true; }

 private:
  connection& of_;
  bool finished_ = false;
};

// Whether oneCCL can use the memory in place.
bool connection::is_direct(const view& v) const noexcept {
  if (core_->queue.handle != nullptr || v.bytes() == 0) return true;
  return on_->driver().describe(v.data).kind != gpu::memory_kind::device;
}

task<> connection::perform(work_state* w, gpu::detail::device_group::turn* mine) {
  if (ended_)
    throw error(errc::communicator_failed, "an operation before has ended early, and oneCCL with it");
  unfinished here(*this);
  const call& c = w->what;
  gpu::detail::driver& d = on_->driver();
  auto j = std::make_shared<job_data>();
  j->kind = c.kind;
  j->in_count = c.in.count;
  j->out_count = c.out.count;
  j->element_bytes = c.in.element_bytes;
  j->type = c.in.type;
  j->op = c.op;
  j->peer = c.peer;
  j->rank = rank_;
  j->size = size_;
  j->keep = {c.in.keep, c.out.keep};
  const bool takes = has_input(c, rank_), gives = has_output(c, rank_);
  const bool in_place = c.kind == operation_kind::all_reduce || c.kind == operation_kind::reduce ||
                        c.kind == operation_kind::broadcast;
  const bool changes_input = c.op.kind == reduce_kind::premul_sum && core_->queue.handle == nullptr;

  j->in = c.in.data;
  j->out = c.out.data;
  std::shared_ptr<gpu::detail::allocation> in_host, out_host;
  if (!is_direct(c.in) || changes_input ||
      (!in_place && core_->queue.handle == nullptr && overlap(c.in, c.out))) {
    in_host = staging_->take(std::max<std::size_t>(c.in.bytes(), 1));
    j->in = in_host->data;
    j->keep.push_back(in_host);
  }
  if (!is_direct(c.out)) {
    out_host = staging_->take(std::max<std::size_t>(c.out.bytes(), 1));
    j->out = out_host->data;
    j->keep.push_back(out_host);
  }
  // A broadcast has one buffer for input and output.
  if (c.kind == operation_kind::broadcast && out_host && !takes) j->in = j->out;
  if (c.kind == operation_kind::broadcast && in_host && takes) j->out = j->in;

  // oneCCL takes no null pointer, even if there is nothing to move.
  static std::byte nothing[8] = {};
  if (j->in == nullptr) j->in = nothing;
  if (j->out == nullptr) j->out = nothing;

  d.wait(out_->native(), c.ready.get());
  if (in_host && takes) d.copy(j->in, c.in.data, c.in.bytes(), out_->native());
  gpu::detail::mark loaded;
  gpu::detail::point& p = out_->signal();
  p.alive = {in_host, c.in.keep};
  loaded.set(*on_, p);
  mine->end();
  co_await loaded;

  if (c.in.bytes() > 0 || c.out.bytes() > 0) {
    auto code = std::make_shared<abi::result>(abi::success);
    const std::function<void()> f = [j, code, on = core_] { *code = call_oneccl(*on, *j); };
    co_await gpu::detail::call_on(thread_, f);
    if (*code != abi::success)
      throw error(errc::device_failed, "oneCCL: " + core_->calls.explain(*code, core_->handle));
  }

  if (out_host && gives) d.copy(c.out.data, j->out, c.out.bytes(), in_->native());
  w->keep_until_done(j);
  w->set_enqueued(*in_);
  w->finish_with(*in_);
  here.finished();
}

}  // namespace tutti::oneccl
