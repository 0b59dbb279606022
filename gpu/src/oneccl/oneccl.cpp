// SPDX-License-Identifier: Apache-2.0
// Connecting to oneCCL, and its public functions.
#include "oneccl/connection.hpp"

#include <stdlib.h>

#include <cstdlib>
#include <functional>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::oneccl {
namespace {

using gpu::detail::submit_thread;

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

task<std::shared_ptr<gpu::detail::vendor>> connect(communicator control, gpu::device on, sycl_queue queue) {
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
  try {
    handle = co_await abi::connect_ranks<abi::unique_id, abi::communicator>(
        std::move(control), thread, on.state().timeout(), &calls, texts, set_device);
  } catch (const error& e) {
    if (e.code() == errc::timed_out) thread->leave_behind();  // it serves this connection alone
    throw;
  }
  std::shared_ptr<core> of(new core{calls, handle, std::move(queue)});
  auto made = std::make_shared<connection>(on.shared_state(), thread, std::move(of), rank, size);
  co_return made;
}

}  // namespace tutti::oneccl
