// SPDX-License-Identifier: Apache-2.0
// The connection of one rank to oneCCL, and the public functions.
#include "comm/communicator_devices.hpp"
#include "comm/submit_thread.hpp"
#include "kernels/host_kernels.hpp"
#include "oneccl/oneccl_api.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>
#include <tutti/oneccl.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace tutti::oneccl {
using namespace gpu::impl;
namespace {

// What the submit thread and the loop share.
struct core {
  const abi::table& calls;
  abi::communicator* const handle;
  const sycl_queue queue;
  const int rank, size;
};

// One call of oneCCL, with the memory that it uses.
struct job_data {
  device_arguments what;
  std::shared_ptr<allocation> in_host, out_host;  // in place of the call's own
};

// On the host oneCCL neither scales nor averages. This multiplies by the factor of a premul_sum, or divides by the number
// of ranks.
void reduce_in_place(const device_arguments& c, const view& elements, double factor, int ranks) {
  gpu::kernels::arguments what =
      gpu::kernels::conversion(elements.data, elements.data, factor, elements.count);
  what.ranks = ranks;
  gpu::kernels::find_reduction(c.op.kind, c.in.type)->on_host(what);
}

abi::result call_oneccl(const core& on, job_data& j) {
  const abi::table& n = on.calls;
  abi::communicator* const handle = on.handle;
  void* const stream = on.queue.handle;
  const bool by_queue = stream != nullptr;
  const device_arguments& c = j.what;
  void* const in = c.in.data;
  void* const out = c.out.data;
  const auto ranks = static_cast<std::size_t>(on.size);
  int op = abi::operation_of(c.op.kind);
  const bool average = c.op.kind == reduce_kind::avg, scaled = c.op.kind == reduce_kind::premul_sum;
  if (average) op = by_queue ? abi::average : abi::sum;
  if (scaled && by_queue) {
    if (const abi::result r = abi::make_scaled_sum(n, c, handle, &op); r != abi::success) return r;
  } else if (scaled) {
    op = abi::sum;
    reduce_in_place(c, c.in, factor_in(c.op, c.in.type), 1);
  }
  const scope_exit destroy_sum([&] {
    if (scaled && by_queue) n.destroy_operation(op, handle);
  });
  abi::result r = abi::success;
  if (c.kind == operation_kind::scatter) {
    r = n.scatter(in, out, c.out.bytes(), abi::uint8, c.peer, handle, stream);
  } else if (c.kind == operation_kind::all_to_all) {
    r = n.all_to_all(in, out, c.in.bytes() / ranks, abi::uint8, handle, stream);
  } else if (c.kind == operation_kind::gather) {
    // oneCCL has no gather: all ranks send to the root.
    std::vector<std::size_t> to(ranks, 0), from(ranks, on.rank == c.peer ? c.in.bytes() : 0);
    to[static_cast<std::size_t>(c.peer)] = c.in.bytes();
    r = n.all_to_all_v(in, to.data(), out, from.data(), abi::uint8, handle, stream);
  } else {
    r = abi::call_library(n, c, op, handle, stream);
  }
  try {
    if (r == abi::success && by_queue && on.queue.finish) on.queue.finish();
  } catch (const std::exception& thrown) {
    throw error(errc::device_failed, fmt::format("the SYCL queue: {}", thrown.what()));
  }
  if (r == abi::success && average && !by_queue && includes(row_of(c.kind).writes, on.rank == c.peer))
    reduce_in_place(c, c.out, 1, on.size);
  return r;
}

// An operation copies its input to the host, has the connection's thread call oneCCL, and copies the result to the
// device. Memory that oneCCL can use in place is not copied. oneCCL's calls block, and those of one communicator must
// come from one thread. So the connection has a thread, which makes them in the order in which operations started;
// the loop never does.
class connection final : public vendor {
 public:
  connection(std::shared_ptr<attachment> on, std::shared_ptr<submit_thread> thread, std::shared_ptr<core> c)
      : on_(std::move(on)),
        thread_(std::move(thread)),
        core_(std::move(c)),
        staging_(std::make_shared<pinned_pool>(on_->shared_driver(), true)),
        out_(stream_state::make(on_)),
        in_(stream_state::make(on_)) {}
  ~connection() override {
    if (!ended_) thread_->submit([of = core_] { of->calls.destroy(of->handle); });
  }

  task<> perform(work_state* w, device_group::turn* mine) override {
    if (ended_)
      throw error(errc::communicator_failed, "an operation before has ended early, and oneCCL with it");
    bool finished = false;
    // An operation that ends early ends the connection: the thread may never return from its call.
    const scope_exit unless_finished([this, &finished] {
      if (finished) return;
      ended_ = true;
      thread_->leave_behind();
    });
    const device_arguments& c = w->what;
    driver& d = on_->driver();
    auto j = std::make_shared<job_data>();
    j->what = c;
    j->what.whole = nullptr;
    j->what.ready.reset();
    void*& in = j->what.in.data;
    void*& out = j->what.out.data;
    const tutti::extend::operation_row& row = row_of(c.kind);
    const bool takes = includes(row.reads, core_->rank == c.peer),
               gives = includes(row.writes, core_->rank == c.peer);
    const bool in_place = c.kind == operation_kind::all_reduce || c.kind == operation_kind::reduce ||
                          c.kind == operation_kind::broadcast;
    const bool changes_input = c.op.kind == reduce_kind::premul_sum && core_->queue.handle == nullptr;

    if (!is_direct(c.in) || changes_input ||
        (!in_place && core_->queue.handle == nullptr && overlap(c.in, c.out))) {
      j->in_host = staging_->take(std::max<std::size_t>(c.in.bytes(), 1));
      in = j->in_host->data;
    }
    if (!is_direct(c.out)) {
      j->out_host = staging_->take(std::max<std::size_t>(c.out.bytes(), 1));
      out = j->out_host->data;
    }
    // A broadcast has one buffer for input and output.
    if (c.kind == operation_kind::broadcast && j->out_host && !takes) in = out;
    if (c.kind == operation_kind::broadcast && j->in_host && takes) out = in;

    // oneCCL takes no null pointer, even if there is nothing to move.
    static std::byte nothing[8] = {};
    if (in == nullptr) in = nothing;
    if (out == nullptr) out = nothing;

    d.wait(out_->native(), c.ready.get());
    if (j->in_host && takes) d.copy(in, c.in.data, c.in.bytes(), out_->native());
    mark loaded;
    loaded.set(*out_, {j->in_host, c.in.keep});
    mine->end();
    co_await loaded;

    if (c.in.bytes() > 0 || c.out.bytes() > 0) {
      const std::function<void()> f = [j, on = core_] {
        if (const abi::result r = call_oneccl(*on, *j); r != abi::success)
          throw error(errc::device_failed, "oneCCL: " + on->calls.explain(r, on->handle));
      };
      co_await call_on(thread_, f);
    }

    if (j->out_host && gives) d.copy(c.out.data, out, c.out.bytes(), in_->native());
    w->keep_until_done(j);
    w->finish_in(*in_);
    finished = true;
  }

 private:
  // Whether oneCCL can use the memory in place.
  bool is_direct(const view& v) const noexcept {
    if (core_->queue.handle != nullptr || v.bytes() == 0) return true;
    return on_->driver().describe(v.data).kind != gpu::memory_kind::device;
  }

  const std::shared_ptr<attachment> on_;
  const std::shared_ptr<submit_thread> thread_;
  const std::shared_ptr<core> core_;
  const std::shared_ptr<pinned_pool> staging_;
  const std::shared_ptr<stream_state> out_;  // device to host; `in_` is the way back
  const std::shared_ptr<stream_state> in_;
  bool ended_ = false;
};

// Sets the variables by which oneCCL finds its peers, unless they are set. Its first call reads them.
void see_to_environment(bool has_queue) {
  const auto otherwise = [](const char* name, const char* value) { ::setenv(name, value, 0); };
  if (!has_queue) otherwise("CCL_PLUGIN", "ONECCL_LEGACY_CPU");
  if (::getenv("LOCAL_RANK") == nullptr || ::getenv("LOCAL_WORLD_SIZE") == nullptr) return;
  otherwise("CCL_PROCESS_LAUNCHER", "torchrun");
  otherwise("CCL_ATL_TRANSPORT", "ofi");
  // Two threads of each process spin. Without a core for each, half the time is lost.
  if (2 * std::atol(::getenv("LOCAL_WORLD_SIZE")) > static_cast<long>(std::thread::hardware_concurrency()))
    otherwise("CCL_YIELD", "sched_yield");
}

}  // namespace

std::string why_not() { return abi::load().why; }
int version() noexcept { return abi::load().version(); }

std::string_view why_not_by_oneccl(const device_arguments& c, bool by_queue) noexcept {
  const reduce_kind kind = c.op.kind;
  const bool made_of_sum = kind == reduce_kind::avg || kind == reduce_kind::premul_sum;
  const bool wide = kind == reduce_kind::premul_sum &&
                    (c.in.type == element_type::int64 || c.in.type == element_type::uint64);
  if (kind == reduce_kind::user) return "oneCCL has no reduction by a callable";
  if (kind != reduce_kind::none &&
      (abi::type_of(c.in.type) < 0 || wide || gpu::kernels::find_reduction(kind, c.in.type) == nullptr ||
       (!made_of_sum && abi::operation_of(kind) < 0)))
    return "oneCCL has no such reduction of this type";
  if (!has_chunks(c)) return "oneCCL has no uneven blocks, lists, scans and barriers";
  if (by_queue && c.kind == operation_kind::all_to_all && overlap(c.in, c.out))
    return "oneCCL cannot do it in place";
  return {};
}

task<std::shared_ptr<vendor>> connect(communicator control, gpu::device on, sycl_queue queue) {
  const abi::table& calls = abi::load().required("oneCCL");
  see_to_environment(queue.handle != nullptr);
  const auto thread = std::make_shared<submit_thread>(on.shared_state());
  const int rank = control.rank(), size = control.size(),
            device = queue.handle != nullptr ? on.ordinal() : -1;
  const std::function<abi::result()> set_device = [&calls, device] {
    return device < 0 ? abi::success : calls.set_device(static_cast<std::uint32_t>(device));
  };
  const gpu::vendor_abi::library_texts texts{
      "oneCCL",
      "onecclSetDevice or onecclGetUniqueId",
      "onecclSetDevice",
      "onecclCommInitRank",
      " (CCL_LOG_LEVEL=info says more; it needs libfabric, libfabric1 of Debian)",
      "one of them has not called it, two of them are threads of one process, or they cannot reach each "
      "other (CCL_LOG_LEVEL=info says more; FI_PROVIDER=tcp, FI_TCP_IFACE choose the way)"};
  abi::communicator* handle = nullptr;
  // oneCCL cannot abort: what is made too late stays.
  const std::function<void(abi::communicator*)> stays = [](abi::communicator*) {};
  const scope_exit unless_connected([&] {
    if (handle == nullptr) thread->leave_behind();  // it serves this connection alone, and may be in a call
  });
  handle = co_await abi::connect_ranks<abi::unique_id, abi::communicator>(
      std::move(control), thread, on.state().timeout(), &calls, texts, set_device, stays);
  std::shared_ptr<core> of(new core{calls, handle, std::move(queue), rank, size});
  auto made = std::make_shared<connection>(on.shared_state(), thread, std::move(of));
  co_return made;
}

}  // namespace tutti::oneccl
