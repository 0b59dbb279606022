// SPDX-License-Identifier: Apache-2.0
// The public side of NCCL: making communicators, and what they have beyond the operations of all.
#include "nccl/connect.hpp"
#include "nccl/group_impl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tutti/nccl.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::nccl {
namespace {

using gpu::detail::call;
using gpu::detail::operation_kind;

const abi::table& loaded() {
  std::string why;
  const abi::table* const calls = abi::load(why);
  if (calls == nullptr) throw error(errc::not_supported, "no NCCL: " + why);
  return *calls;
}

void check(const abi::table& calls, abi::result code, const char* what) {
  if (code != abi::success)
    throw error(errc::device_failed, fmt::format("{}: {}", what, calls.explain(code, nullptr)));
}
void check(const owned_communicator::use& use, const char* what) {
  if (use.get() == nullptr)
    throw error(errc::communicator_failed, fmt::format("{}: the communicator has ended", what));
}

// A collective call of NCCL's that makes a communicator; the host's time limit ends the wait for it, not the
// call.
task<abi::communicator*> make(std::shared_ptr<submit_thread> on, std::chrono::milliseconds limit,
                              std::string what, std::function<abi::communicator*()> f) {
  auto result = std::make_shared<abi::communicator*>(nullptr);
  const std::function<void()> run = [result, f] { *result = f(); };
  const bool made = co_await gpu::detail::in_time(std::move(on), limit, run);
  if (!made)
    throw error(
        errc::timed_out,
        fmt::format(
            "{}: NCCL has not connected the ranks within {} ms: one of them has not called it, or they "
            "cannot reach each other (NCCL_DEBUG=INFO says more; NCCL_SOCKET_IFNAME chooses interfaces)",
            what, limit.count()));
  co_return *result;
}

std::shared_ptr<group_impl> with(gpu::device on, std::shared_ptr<submit_thread> l, const abi::table& calls,
                                 abi::communicator* handle, tutti::communicator control, std::string name) {
  auto group = std::make_shared<group_impl>(on.shared_state(), std::move(l),
                                            std::make_shared<owned_communicator>(calls, handle),
                                            std::move(control), std::move(name));
  group->listen();
  return group;
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

communicator::communicator(std::shared_ptr<group_impl> impl) noexcept
    : any_communicator(impl), impl_(std::move(impl)) {}

gpu::operation communicator::run(const batch& messages, const gpu::stream& after) const {
  call what(operation_kind::batch, impl_, after.state());
  auto parts = std::make_shared<std::vector<batch::part>>(messages.parts());
  for (const batch::part& p : *parts) {
    if (p.peer < 0 || p.peer >= size())
      throw error(errc::invalid_argument,
                  fmt::format("a batch on {}: {} is not a rank (0 to {})", name(), p.peer, size() - 1));
    what.in.count += p.data.bytes();
  }
  what.in.element_bytes = what.out.element_bytes = 1;
  what.out.count = what.in.count;
  what.extra = parts;
  what.in.keep = parts;  // and with it the buffers
  return gpu::operation(std::move(what));
}

task<communicator> communicator::split(int color, int key) const {
  const std::shared_ptr<group_impl> self = impl_;
  if (!self) throw error(errc::invalid_argument, "split of an empty NCCL communicator");
  self->check_usable();
  tutti::communicator control = co_await self->control().split(color, key);
  const std::shared_ptr<owned_communicator> parent = self->shared_handle();
  const std::function<abi::communicator*()> f = [parent, color, key] {
    abi::communicator* child = nullptr;
    owned_communicator::use use(*parent);
    check(use, "ncclCommSplit");
    check(parent->calls, use.waiting([&] {
      return parent->calls.split(use.get(), color < 0 ? abi::no_color : color, key, &child, nullptr);
    }),
          "ncclCommSplit");
    return child;
  };
  const std::string name = fmt::format("{}/split", self->name());
  abi::communicator* const made = co_await make(self->shared_submit_thread(), self->on().timeout(), name, f);
  if (!control) co_return communicator();
  co_return communicator(with(gpu::device(self->shared_on()), self->shared_submit_thread(), parent->calls,
                              made, std::move(control), name));
}

task<communicator> communicator::shrink(tutti::communicator survivors) const {
  const std::shared_ptr<group_impl> self = impl_;
  if (!self || !survivors)
    throw error(errc::invalid_argument, "shrink of an empty NCCL communicator, or to nobody");
  const abi::table& calls = self->shared_handle()->calls;
  const std::shared_ptr<owned_communicator> parent = self->shared_handle();
  tutti::communicator control = co_await survivors.duplicate();
  const std::string name = fmt::format("{}/shrunk", self->name());
  // All of them take the same way: who has aborted has nothing left to shrink.
  struct survivor {
    int rank;
    int usable;
  };
  const survivor mine{self->rank(), parent->can_be_shrunk() ? 1 : 0};
  std::vector<survivor> left(static_cast<std::size_t>(survivors.size()));
  co_await control.all_gather(mine, left);
  if (std::any_of(left.begin(), left.end(), [](const survivor& s) { return s.usable == 0; })) {
    communicator fresh = co_await init(survivors, gpu::device(self->shared_on()));
    co_return fresh;
  }
  std::vector<int> excluded;
  for (int r = 0; r < self->size(); ++r)
    if (std::none_of(left.begin(), left.end(), [r](const survivor& s) { return s.rank == r; }))
      excluded.push_back(r);
  const std::function<abi::communicator*()> f = [parent, excluded]() mutable {
    abi::communicator* child = nullptr;
    owned_communicator::use use = owned_communicator::use::to_shrink(*parent);
    check(use, "ncclCommShrink");
    check(parent->calls, use.waiting([&] {
      return parent->calls.shrink(use.get(), excluded.data(), static_cast<int>(excluded.size()), &child,
                                  nullptr, abi::shrink_abort);
    }),
          "ncclCommShrink");
    return child;
  };
  abi::communicator* const made = co_await make(self->shared_submit_thread(), self->on().timeout(), name, f);
  co_return communicator(with(gpu::device(self->shared_on()), self->shared_submit_thread(), calls, made,
                              std::move(control), name));
}

void communicator::revoke() const {
  if (impl_)
    impl_->fail_all(errc::cancelled, fmt::format("rank {} has revoked {}", rank(), name()), true, true);
}
void communicator::abort() const {
  if (impl_) impl_->fail_all(errc::cancelled, fmt::format("rank {} has aborted {}", rank(), name()), true);
}

task<registration> communicator::register_view(gpu::detail::view memory) const {
  const std::shared_ptr<group_impl> self = impl_;
  if (!self) throw error(errc::invalid_argument, "register_memory on an empty NCCL communicator");
  self->check_usable();
  const std::shared_ptr<owned_communicator> of = self->shared_handle();
  if (of->calls.register_memory == nullptr)
    throw error(errc::not_supported, fmt::format("NCCL {} cannot register memory: 2.19 and later can",
                                                 abi::version_text(of->calls.version)));
  struct held {
    std::shared_ptr<submit_thread> on;
    std::shared_ptr<owned_communicator> of;
    gpu::detail::view memory;
    void* handle = nullptr;
    ~held() {
      if (handle == nullptr) return;
      struct ending : job {
        std::shared_ptr<owned_communicator> of;
        void* handle = nullptr;
        gpu::detail::view memory;
        void run() noexcept override {
          // An abort takes the registration along.
          owned_communicator::use use(*of);
          if (use.get() != nullptr) of->calls.deregister_memory(use.get(), handle);
        }
      };
      auto j = std::make_shared<ending>();
      j->of = of;
      j->handle = handle;
      j->memory = memory;
      on->submit(std::move(j));
    }
  };
  auto made = std::make_shared<held>();
  made->on = self->shared_submit_thread();
  made->of = of;
  made->memory = std::move(memory);
  const std::function<void()> f = [made] {
    owned_communicator::use use(*made->of);
    check(use, "ncclCommRegister");
    check(made->of->calls,
          made->of->calls.register_memory(use.get(), made->memory.data, made->memory.bytes(), &made->handle),
          "ncclCommRegister");
  };
  co_await submit_operation(self->shared_submit_thread(), f);
  co_return registration(made);
}

task<std::pair<registration, void*>> communicator::allocate_bytes(std::size_t bytes) const {
  const std::shared_ptr<group_impl> self = impl_;
  if (!self) throw error(errc::invalid_argument, "allocate on an empty NCCL communicator");
  const abi::table& calls = self->shared_handle()->calls;
  if (calls.memory_allocate == nullptr)
    throw error(errc::not_supported,
                fmt::format("NCCL {} cannot allocate: 2.19 and later can", abi::version_text(calls.version)));
  struct held {
    const abi::table* calls = nullptr;
    std::shared_ptr<submit_thread> on;
    void* memory = nullptr;
    ~held() {
      if (memory == nullptr) return;
      struct ending : job {
        const abi::table* calls = nullptr;
        void* memory = nullptr;
        void run() noexcept override { calls->memory_free(memory); }
      };
      auto j = std::make_shared<ending>();
      j->calls = calls;
      j->memory = memory;
      on->submit(std::move(j));
    }
  };
  auto made = std::make_shared<held>();
  made->calls = &calls;
  made->on = self->shared_submit_thread();
  const std::function<void()> f = [made, bytes] {
    check(*made->calls, made->calls->memory_allocate(&made->memory, bytes), "ncclMemAlloc");
  };
  co_await submit_operation(self->shared_submit_thread(), f);
  co_return std::pair<registration, void*>(registration(made), made->memory);
}

task<std::shared_ptr<gpu::detail::group>> connect(tutti::communicator control, gpu::device on,
                                                  std::string of) {
  const abi::table& calls = loaded();
  const std::shared_ptr<submit_thread> l = submit_thread::of(on.shared_state());
  // The id, and whether there is one: a rank 0 that has failed must not leave the others waiting.
  struct invitation {
    abi::unique_id id{};
    int code = 0;
    int version = 0;
  } mine;
  mine.version = calls.version;
  if (control.rank() == 0) {
    auto made = std::make_shared<invitation>(mine);
    const std::function<void()> f = [made, &calls] { made->code = calls.get_unique_id(&made->id); };
    co_await submit_operation(l, f);
    mine = *made;
  }
  co_await control.broadcast(mine, 0);
  check(calls, mine.code, "ncclGetUniqueId on rank 0");
  if (mine.version != calls.version)
    throw error(
        errc::mismatch,
        fmt::format("nccl::init: rank {} has NCCL {}, rank 0 has {}: all ranks need the same", control.rank(),
                    abi::version_text(calls.version), abi::version_text(mine.version)));
  const int rank = control.rank(), size = control.size();
  const std::function<abi::communicator*()> f = [&calls, id = mine.id, rank, size] {
    abi::communicator* c = nullptr;
    check(calls, calls.init(&c, size, id, rank), "ncclCommInitRank");
    return c;
  };
  abi::communicator* const handle = co_await make(l, on.state().timeout(), "nccl::init", f);
  std::shared_ptr<group_impl> made =
      with(on, l, calls, handle, std::move(control), fmt::format("NCCL of {}", of));
  // NCCL connects the ranks when it is first used: now, not in the middle of the program.
  gpu::stream s(on);
  gpu::device_buffer<int> one(on, 1);
  co_await s.fill(one, std::byte{0});
  co_await gpu::any_communicator(made).all_reduce(one, sum, s);
  co_return made;
}

task<communicator> init(tutti::communicator world, gpu::device on) {
  if (!world || !on) throw error(errc::invalid_argument, "nccl::init: an empty communicator, or no device");
  on.state().check();
  static_cast<void>(loaded());
  tutti::communicator control = co_await world.duplicate();
  std::shared_ptr<gpu::detail::group> made = co_await connect(std::move(control), on, world.name());
  co_return communicator(std::static_pointer_cast<group_impl>(std::move(made)));
}

}  // namespace tutti::nccl
