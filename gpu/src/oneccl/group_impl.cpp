// SPDX-License-Identifier: Apache-2.0
#include "oneccl/group_impl.hpp"

#include "oneccl/connect.hpp"

#include "kernels/reduce_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstring>
#include <functional>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::oneccl {
namespace {

using gpu::detail::call;
using gpu::detail::operation_kind;
using gpu::detail::view;
using gpu::detail::work_state;

constexpr auto patience_after_farewell = std::chrono::seconds(2);

// One call of oneCCL's, and the memory that it works on.
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

// Elements that are only moved go as bytes: oneCCL need not know their type.
abi::result perform(const core& on, job_data& j) {
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
      // It has none: everybody sends to one.
      std::vector<std::size_t> to(ranks, 0), from(ranks, j.rank == j.peer ? j.in_count * e : 0);
      to[static_cast<std::size_t>(j.peer)] = j.in_count * e;
      r = n.all_to_all_v(j.in, to.data(), j.out, from.data(), abi::uint8, c, stream);
      break;
    }
    case operation_kind::send:
      r = n.send(j.in, j.in_count * e, abi::uint8, j.peer, c, stream);
      break;
    case operation_kind::receive:
      r = n.receive(j.out, j.out_count * e, abi::uint8, j.peer, c, stream);
      break;
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
  if (c.kind == operation_kind::broadcast || c.kind == operation_kind::scatter) return c.peer == rank;
  return c.kind != operation_kind::receive;
}
bool has_output(const call& c, int rank) noexcept {
  if (c.kind == operation_kind::reduce || c.kind == operation_kind::gather) return c.peer == rank;
  return c.kind != operation_kind::send &&
         !(c.kind == operation_kind::broadcast && c.peer == rank && c.in.data == c.out.data);
}

}  // namespace

group_impl::group_impl(std::shared_ptr<gpu::detail::attachment> on,
                       std::shared_ptr<gpu::detail::submit_thread> l, std::shared_ptr<core> c,
                       tutti::communicator control, std::string name)
    : group(std::move(on), std::move(name), control.rank(), control.size()),
      submit_thread_(std::move(l)),
      core_(std::move(c)),
      staging_(std::make_shared<gpu::detail::staging>(on_->shared_driver())),
      companions_(*this, std::move(control)) {
  const auto make = [this] {
    return std::make_shared<gpu::detail::stream_state>(on_, on_->driver().make_stream(true), true);
  };
  out_ = make();
  in_ = make();
}

group_impl::~group_impl() {
  forget_done();
  const bool idle = pending_.empty() && failure_ == errc::success;
  if (!idle) fail_all(errc::cancelled, fmt::format("the last handle of {} has gone", name()), true);
  companions_.say_farewell();
  if (idle) {
    struct end : gpu::detail::job {
      std::shared_ptr<core> of;
      void run() noexcept override { of->calls.destroy(of->handle); }
    };
    auto last = std::make_shared<end>();
    last->of = core_;
    submit_thread_->submit(std::move(last));
  }
  end_all("the communicator has gone");
}

void group_impl::check_usable() const {
  on_->check();
  if (failure_ != errc::success)
    throw error(errc::communicator_failed, fmt::format("{} failed earlier: {}", name(), failure_text_));
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
  if (c.kind == operation_kind::probe) return "oneCCL has no probe";
  if (gpu::detail::group::is_message(c.kind) && c.tag != 0 &&
      !(c.kind == operation_kind::receive && c.tag == any_tag))
    return "oneCCL has no tags";
  if (c.kind == operation_kind::receive && c.peer == any_source)
    return "oneCCL receives from a rank that is named, not from any";
  if (!gpu::detail::group::is_message(c.kind) && !gpu::detail::group::has_chunks(c))
    return "oneCCL has no uneven blocks, lists, scans and barriers";
  if (by_queue && c.kind == operation_kind::all_to_all && overlap(c.in, c.out))
    return "oneCCL cannot do it in place";
  return {};
}

std::shared_ptr<work_state> group_impl::start(call what) {
  check_usable();
  if (const std::string_view why = why_not_by_oneccl(what, core_->queue.handle != nullptr); !why.empty())
    throw error(errc::not_supported,
                fmt::format("{}: {}; the same operation of tutti::communicator is staged (gpu::open)",
                            title(what), why));
  if (is_message(what.kind) && what.peer == rank())
    throw error(errc::not_supported, fmt::format("{}: oneCCL has no messages to oneself", title(what)));
  std::shared_ptr<void> ready = event_before(what);
  std::shared_ptr<work_state> w = begin(std::move(what));
  forget_done();
  running& r = add(w);
  const auto last = std::exchange(last_, w->what.kind);
  ++sequence_;
  try {
    pending_.push_back({sequence_, w});
    r.tasks.spawn(run(&r, sequence_, std::move(ready)));
  } catch (...) {
    // Memory for it was lacking: it has not been called.
    if (!pending_.empty() && pending_.back().work == w) pending_.pop_back();
    --sequence_;
    last_ = last;
    r.ended = true;
    throw;
  }
  return w;
}

void group_impl::forget_done() noexcept {
  while (!pending_.empty() && pending_.front().work->done) pending_.pop_front();
}

task<> group_impl::run(running* r, std::uint64_t sequence, std::shared_ptr<void> ready) {
  const std::shared_ptr<work_state> w = r->of;
  errc why = errc::success;
  std::string text;
  try {
    co_await carry_out(w.get(), ready.get());
  } catch (const error& e) {
    why = static_cast<errc>(e.code().value());
    text = e.what();
  } catch (const std::exception& e) {
    why = errc::resources;
    text = e.what();
  }
  if (why == errc::timed_out && r->stopped == errc::success) {
    std::string missing;
    try {
      missing = co_await companions_.who_is_missing(sequence);
    } catch (const std::exception&) {
      // Stopped meanwhile: another rank has found out first.
    }
    if (missing.empty())
      missing = "; all ranks have called it: it is slower than the time limit allows, or one does not get on";
    text = fmt::format("{} #{}: not done within {} ms{}", title(w->what), sequence, on_->timeout().count(),
                       missing);
  }
  if ((why == errc::cancelled || why == errc::timed_out) && r->stopped != errc::success) {
    why = r->stopped;
    text = r->reason;
  }
  if (why != errc::success) {
    w->stop = nullptr;
    if (why == errc::device_failed && on_->failed()) text = on_->failure_text();
    w->fail(why, text);
    // A collective that one rank has given up cannot be finished by the others, nor can oneCCL take it back.
    fail_all(why, text, true);
  }
  ready.reset();
  r->ended = true;
}

// What oneCCL can be given as it is.
bool group_impl::is_direct(const view& v) const noexcept {
  if (core_->queue.handle != nullptr || v.bytes() == 0) return true;
  return on_->driver().describe(v.data).kind != gpu::memory_kind::device;
}

task<> group_impl::carry_out(work_state* w, void* ready) {
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
  j->rank = rank();
  j->size = size();
  j->keep = {c.in.keep, c.out.keep};
  const bool takes = has_input(c, rank()), gives = has_output(c, rank());
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
  // One buffer for both sides.
  if (c.kind == operation_kind::broadcast && out_host && !takes) j->in = j->out;
  if (c.kind == operation_kind::broadcast && in_host && takes) j->out = j->in;

  // It takes no null, also where there is nothing to move.
  static std::byte nothing[8] = {};
  if (j->in == nullptr) j->in = nothing;
  if (j->out == nullptr) j->out = nothing;

  d.wait(out_->native(), ready);
  if (in_host && takes) d.copy(j->in, c.in.data, c.in.bytes(), out_->native());
  gpu::detail::mark loaded;
  gpu::detail::point& p = out_->signal();
  p.alive = {in_host, c.in.keep};
  loaded.set(*on_, p);
  co_await loaded;

  if (c.in.bytes() > 0 || c.out.bytes() > 0) {
    auto code = std::make_shared<abi::result>(abi::success);
    const std::function<void()> f = [j, code, on = core_] { *code = perform(*on, *j); };
    const std::chrono::milliseconds limit = on_->timeout();
    gpu::detail::submit_operation calling(submit_thread_, f);
    co_await with_timeout(std::move(calling), limit);
    if (*code != abi::success)
      throw error(errc::device_failed,
                  fmt::format("{}: {}", title(c), core_->calls.explain(*code, core_->handle)));
  }

  if (out_host && gives) d.copy(c.out.data, j->out, c.out.bytes(), in_->native());
  w->result.bytes = c.kind == operation_kind::receive ? c.out.bytes() : c.in.bytes();
  if (c.kind == operation_kind::receive) w->result.source = c.peer;
  w->keep_until_done(j);
  w->set_enqueued(*in_);
  w->finish_with(*in_);
}

void group_impl::fail_all(errc why, const std::string& text, bool tell) noexcept {
  if (failure_ != errc::success) return;
  failure_ = why;
  failure_text_ = text;
  // The thread may never come out of its call.
  submit_thread_->leave_behind();
  if (tell) companions_.say_failed(why, text, false);
  const auto now = std::exchange(pending_, {});
  for (const pending& p : now)
    if (!p.work->done && p.work->stop != nullptr) p.work->stop(*p.work, why, text);
}

void group_impl::peer_gone(int peer, errc why, const std::string& text) noexcept {
  fail_all(why, fmt::format("{}: rank {} is gone: {}", name(), peer, text), false);
}
void group_impl::peer_left(int peer) noexcept {
  forget_done();
  if (!pending_.empty()) tasks_.spawn(see_to_the_end(peer, sequence_));
}
void group_impl::peer_failed(int peer, errc why, const std::string& text, bool) noexcept {
  fail_all(why, fmt::format("rank {} says: {}", peer, text), false);
}

// A rank leaves when it has seen its work done, which may be before this one has seen its own.
task<> group_impl::see_to_the_end(int peer, std::uint64_t last) {
  boost::asio::steady_timer grace(on_->get_executor(), patience_after_farewell);
  co_await grace.async_wait(boost::asio::deferred);
  forget_done();
  if (pending_.empty() || pending_.front().sequence > last) co_return;
  fail_all(errc::peer_left,
           fmt::format("{}: rank {} has left while {} #{} was pending", name(), peer,
                       name_of(pending_.front().work->what.kind), pending_.front().sequence),
           false);
}

}  // namespace tutti::oneccl
