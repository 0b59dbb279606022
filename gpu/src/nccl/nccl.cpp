// SPDX-License-Identifier: Apache-2.0
// Public functions for NCCL, and how its communicators are made.
#include "comm/communicator_devices.hpp"
#include "nccl/connection.hpp"

#include <fmt/format.h>

#include <functional>
#include <tutti/nccl.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::nccl {
namespace {

using gpu::detail::call_on;
using gpu::detail::submit_thread;

void check(const abi::table& calls, abi::result code, const char* what) {
  if (code != abi::success)
    throw error(errc::device_failed, fmt::format("{}: {}", what, calls.explain(code, nullptr)));
}
void check(const owned_communicator::use& use, const char* what) {
  if (use.get() == nullptr)
    throw error(errc::communicator_failed, fmt::format("{}: NCCL's communicator has ended", what));
}

// What a registration keeps: its end, which the submit thread carries out.
struct held {
  explicit held(std::shared_ptr<submit_thread> thread) noexcept : on(std::move(thread)) {}
  held(const held&) = delete;
  held& operator=(const held&) = delete;
  ~held() {
    if (end) on->submit(std::move(end));
  }
  const std::shared_ptr<submit_thread> on;
  std::function<void()> end;
};

// Returns the connection of `c`, and makes it if there is none.
task<std::shared_ptr<connection>> connection_of(communicator c) {
  if (!c) throw error(errc::invalid_argument, "memory for NCCL on an empty communicator");
  auto& side = gpu::detail::communicator_devices::of(c);
  if (!side.nccl()) {
    const gpu::stream s{gpu::device(gpu::detail::world_devices::of(c).on)};
    co_await exchange(c, batch(), s);
  }
  co_return std::static_pointer_cast<connection>(side.nccl());
}

}  // namespace

std::string why_not() { return abi::load().why; }
int version() noexcept { return abi::load().version(); }

operation<> exchange(const communicator& on, batch messages, const tutti::detail::on_stream& after) {
  tutti::detail::call what(tutti::detail::operation_kind::batch, tutti::detail::reference_to(on),
                           after.where);
  for (const batch::part& p : messages.parts())
    if (p.peer < 0 || p.peer >= on.size())
      throw error(errc::invalid_argument, fmt::format("nccl::exchange on {}: {} is not a rank (0 to {})",
                                                      on.name(), p.peer, on.size() - 1));
  what.part = tutti::detail::part_ref(new gpu::detail::device_call(
      after.after.state(), nullptr, nullptr, std::make_shared<const batch>(std::move(messages))));
  return operation<>(std::move(what));
}

task<registration> detail::register_view(communicator on, gpu::detail::view memory) {
  const std::shared_ptr<connection> self = co_await connection_of(std::move(on));
  const std::shared_ptr<owned_communicator> of = self->handle();
  if (of->calls.register_memory == nullptr)
    throw error(errc::not_supported, fmt::format("NCCL {} cannot register memory: 2.19 and later can",
                                                 abi::version_text(of->calls.version)));
  const auto made = std::make_shared<held>(self->thread());
  const std::function<void()> f = [made, of, memory] {
    owned_communicator::use use(*of);
    check(use, "ncclCommRegister");
    void* handle = nullptr;
    check(of->calls, of->calls.register_memory(use.get(), memory.data, memory.bytes(), &handle),
          "ncclCommRegister");
    made->end = [of, memory, handle] {
      // An abort also ends the registration.
      owned_communicator::use ending(*of);
      if (ending.get() != nullptr) of->calls.deregister_memory(ending.get(), handle);
    };
  };
  co_await call_on(self->thread(), f);
  co_return registration(made);
}

task<std::pair<registration, void*>> detail::allocate_bytes(communicator on, std::size_t bytes) {
  const std::shared_ptr<connection> self = co_await connection_of(std::move(on));
  const abi::table* const calls = &self->handle()->calls;
  if (calls->memory_allocate == nullptr)
    throw error(errc::not_supported, fmt::format("NCCL {} cannot allocate: 2.19 and later can",
                                                 abi::version_text(calls->version)));
  const auto made = std::make_shared<held>(self->thread());
  const auto memory = std::make_shared<void*>(nullptr);
  const std::function<void()> f = [made, memory, bytes, calls] {
    check(*calls, calls->memory_allocate(memory.get(), bytes), "ncclMemAlloc");
    made->end = [memory, calls] { calls->memory_free(*memory); };
  };
  co_await call_on(self->thread(), f);
  co_return std::pair<registration, void*>(registration(made), *memory);
}

task<std::shared_ptr<gpu::detail::vendor>> connect(communicator control, gpu::device on) {
  const abi::table& calls = abi::load().required("NCCL");
  const std::shared_ptr<submit_thread> thread = submit_thread::of(on.shared_state());
  const int rank = control.rank(), size = control.size();
  const std::function<abi::result()> nothing = [] { return abi::success; };
  const gpu::vendor_abi::library_texts texts{
      "NCCL",
      "ncclGetUniqueId",
      "",
      "ncclCommInitRank",
      "",
      "one of them has not called it, or they cannot reach each other (NCCL_DEBUG=INFO says more; "
      "NCCL_SOCKET_IFNAME chooses interfaces)"};
  abi::communicator* const handle = co_await abi::connect_ranks<abi::unique_id, abi::communicator>(
      std::move(control), thread, on.state().timeout(), &calls, texts, nothing);
  auto made = std::make_shared<connection>(on.shared_state(), thread, calls, handle, rank, size);
  co_return made;
}

}  // namespace tutti::nccl
