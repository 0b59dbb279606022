// SPDX-License-Identifier: Apache-2.0
// The public side of oneCCL: making communicators.
#include "oneccl/connect.hpp"
#include "oneccl/connection.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::oneccl {
namespace {

using gpu::detail::submit_operation;
using gpu::detail::submit_thread;

const abi::table& loaded() {
  std::string why;
  const abi::table* const calls = abi::load(why);
  if (calls == nullptr) throw error(errc::not_supported, "no oneCCL: " + why);
  return *calls;
}

void check(const abi::table& calls, abi::result code, const char* what) {
  if (code != abi::success)
    throw error(errc::device_failed,
                fmt::format("{}: {} (CCL_LOG_LEVEL=info says more; it needs libfabric, libfabric1 of Debian)",
                            what, calls.explain(code, nullptr)));
}

// How oneCCL finds its peers, where nobody has said it. It looks at the environment when it is first called.
void see_to_environment(bool has_queue) {
  const auto otherwise = [](const char* name, const char* value) { ::setenv(name, value, 0); };
  if (!has_queue) otherwise("CCL_PLUGIN", "ONECCL_LEGACY_CPU");
  if (::getenv("LOCAL_RANK") == nullptr || ::getenv("LOCAL_WORLD_SIZE") == nullptr) return;
  otherwise("CCL_PROCESS_LAUNCHER", "torchrun");
  otherwise("CCL_ATL_TRANSPORT", "ofi");
  // Two threads of each process spin: without the cores for that, half the time goes by.
  if (2 * std::atol(::getenv("LOCAL_WORLD_SIZE")) > static_cast<long>(std::thread::hardware_concurrency()))
    otherwise("CCL_YIELD", "sched_yield");
}

// A collective call that makes a communicator; the host's time limit ends the wait for it, not the call.
task<abi::communicator*> make(std::shared_ptr<submit_thread> on, std::chrono::milliseconds limit,
                              std::string what, std::function<abi::communicator*()> f) {
  auto result = std::make_shared<abi::communicator*>(nullptr);
  const std::function<void()> run = [result, f] { *result = f(); };
  const bool made = co_await gpu::detail::in_time(on, limit, run);
  if (!made) {
    on->leave_behind();
    throw error(
        errc::timed_out,
        fmt::format(
            "{}: oneCCL has not connected the ranks within {} ms: one of them has not called it, two of "
            "them are threads of one process, or they cannot reach each other (CCL_LOG_LEVEL=info says "
            "more; FI_PROVIDER=tcp, FI_TCP_IFACE choose the way)",
            what, limit.count()));
  }
  co_return *result;
}

}  // namespace

std::string why_not() {
  std::string why;
  abi::load(why);
  return why;
}
int version() noexcept {
  std::string why;
  const abi::table* const calls = abi::load(why);
  return calls == nullptr ? 0 : calls->version;
}

task<std::shared_ptr<gpu::detail::vendor>> connect(communicator control, gpu::device on, sycl_queue queue) {
  const abi::table& calls = loaded();
  see_to_environment(queue.handle != nullptr);
  const auto l = std::make_shared<submit_thread>(on.shared_state());
  // The id, and whether there is one: a rank 0 that has failed must not leave the others waiting.
  struct invitation {
    abi::unique_id id{};
    int code = 0;
    int version = 0;
  };
  auto mine = std::make_shared<invitation>();
  mine->version = calls.version;
  const bool device = queue.handle != nullptr;
  const int ordinal = on.ordinal();
  if (control.rank() == 0) {
    const std::function<void()> f = [mine, device, ordinal, &calls] {
      if (device) mine->code = calls.set_device(static_cast<std::uint32_t>(ordinal));
      if (mine->code == abi::success) mine->code = calls.get_unique_id(&mine->id);
    };
    co_await submit_operation(l, f);
  }
  co_await control.broadcast(*mine, 0);
  check(calls, mine->code,
        device ? "onecclSetDevice, or onecclGetUniqueId, on rank 0" : "onecclGetUniqueId on rank 0");
  if (mine->version != calls.version)
    throw error(errc::mismatch,
                fmt::format("rank {} has oneCCL {}, rank 0 has {}: all ranks need the same", control.rank(),
                            abi::version_text(calls.version), abi::version_text(mine->version)));
  const int rank = control.rank(), size = control.size();
  const std::function<abi::communicator*()> f = [mine, device, ordinal, rank, size, &calls] {
    abi::communicator* c = nullptr;
    if (device && rank != 0)
      check(calls, calls.set_device(static_cast<std::uint32_t>(ordinal)), "onecclSetDevice");
    check(calls, calls.init(&c, static_cast<std::size_t>(size), mine->id, rank), "onecclCommInitRank");
    return c;
  };
  abi::communicator* const handle = co_await make(l, on.state().timeout(), "oneCCL of " + control.name(), f);
  std::shared_ptr<core> of(new core{calls, handle, std::move(queue)});
  auto made = std::make_shared<connection>(on.shared_state(), l, std::move(of), rank, size);
  co_return made;
}

}  // namespace tutti::oneccl
