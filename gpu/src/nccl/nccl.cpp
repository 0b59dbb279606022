// SPDX-License-Identifier: Apache-2.0
// The connection of one rank to NCCL, and the public functions.
#include "comm/communicator_devices.hpp"
#include "comm/submit_thread.hpp"
#include "nccl/owned_communicator.hpp"

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tutti/extend/failure.hpp>
#include <tutti/nccl.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::nccl {
using namespace gpu::impl;
namespace {

abi::result enqueue(const owned_communicator& on, owned_communicator::use& use, const device_arguments& what,
                    void* stream) {
  const abi::table& n = on.calls;
  abi::communicator* const c = use.get();
  int op = abi::operation_of(what.op.kind);
  const bool scaled = what.op.kind == reduce_kind::premul_sum;
  if (scaled) {
    if (const abi::result r = abi::make_scaled_sum(n, what, c, &op); r != abi::success) return r;
  }
  // Calls inside a group do not wait; the end of the group does.
  const auto grouped = [&](std::size_t calls, auto each) {
    abi::result r = n.group_start();
    for (std::size_t i = 0; i < calls && r == abi::success; ++i) r = each(i);
    const abi::result ended = use.waiting([&] { return n.group_end(); });
    return r == abi::success ? ended : r;
  };
  // Sends a block to `peer`, and receives one from it, as far as the collective moves blocks between the two.
  const auto exchange_with = [&](std::size_t peer) {
    const tutti::extend::operation_row& row = row_of(what.kind);
    const int other = static_cast<int>(peer);
    const bool is_root = on.rank == what.peer, is_other = other == what.peer;
    const std::size_t bytes = block_of(what, static_cast<int>(on.ranks.size())) * what.in.element_bytes;
    const auto block = [=](const view& of, bool blocks) {
      return static_cast<std::byte*>(of.data) + (blocks ? peer * bytes : 0);
    };
    abi::result r = abi::success;
    if (includes(row.reads, is_root) && includes(row.writes, is_other))
      r = n.send(block(what.in, row.in == shape::blocks), bytes, abi::uint8, other, c, stream);
    if (r == abi::success && includes(row.writes, is_root) && includes(row.reads, is_other))
      r = n.receive(block(what.out, row.out == shape::blocks), bytes, abi::uint8, other, c, stream);
    return r;
  };
  abi::result r = abi::success;
  if (what.kind == operation_kind::batch) {
    const auto& parts = static_cast<const batch*>(what.extra.get())->parts();
    r = grouped(parts.size(), [&](std::size_t i) {
      const batch::part& p = parts[i];
      return p.sends ? n.send(p.data.data, p.data.bytes(), abi::uint8, p.peer, c, stream)
                     : n.receive(p.data.data, p.data.bytes(), abi::uint8, p.peer, c, stream);
    });
  } else if (what.kind == operation_kind::gather || what.kind == operation_kind::scatter ||
             what.kind == operation_kind::all_to_all) {
    r = grouped(on.ranks.size(), exchange_with);
  } else {
    r = use.waiting([&] { return abi::call_library(n, what, op, c, stream); });
  }
  if (scaled && use.get() != nullptr) n.destroy_operation(op, c);
  return r;
}

// The device's submit thread calls NCCL in the order in which operations started; the loop never does. Operations run
// on a stream of the connection. An abort waits for those of the other ranks of the node, so a rank that ends NCCL's
// communicator fails `control`, and thereby ends it on all ranks.
class connection final : public vendor,
                         attachment::listener,
                         public std::enable_shared_from_this<connection> {
 public:
  connection(std::shared_ptr<attachment> on, communicator control, std::shared_ptr<submit_thread> thread,
             std::shared_ptr<owned_communicator> handle, std::shared_ptr<idle_communicators> idle)
      : on_(std::move(on)),
        control_(std::move(control)),
        thread_(std::move(thread)),
        handle_(std::move(handle)),
        idle_(std::move(idle)),
        stream_(stream_state::make(on_)),
        side_(stream_state::make(on_)) {
    on_->listen(*this);
  }
  ~connection() override {
    on_->unlisten(*this);
    forget_done();
    if (!pending_.empty()) end(error(errc::cancelled, "the communicator has gone"));
    poll();
    if (ended_.empty()) idle_->add(handle_);
  }

  task<> perform(work_state* w, device_group::turn* mine) override {
    if (!ended_.empty())
      throw error(errc::communicator_failed, fmt::format("NCCL's communicator has ended: {}", ended_));
    forget_done();
    const std::shared_ptr<work_state> work = w->shared_from_this();
    work->voided = make_recycled<std::atomic<bool>>(false);
    const auto hold = make_recycled<frees_hold>(on_->shared_driver());
    work->keep_until_done(hold);
    auto j = make_recycled<operation_job>(shared_from_this(), work);
    // Reserving the point is the last step that may fail. After it the operation counts as called.
    point& place = j->take_place();
    pending_.push_back({work, hold});
    work->keep_until_done(work->what.extra);
    work->owner = this;
    work->stop = [](work_state& state, const error& why) { static_cast<connection*>(state.owner)->end(why); };
    work->finish_at(place);
    thread_->submit(std::move(j));
    mine->end();
    co_await work->until_enqueued();
    work->rethrow();
  }

  const std::shared_ptr<owned_communicator>& handle() const noexcept { return handle_; }
  const std::shared_ptr<submit_thread>& thread() const noexcept { return thread_; }

 private:
  // One operation on its way through the submit thread.
  class operation_job final : public job {
   public:
    operation_job(std::shared_ptr<connection> by, std::shared_ptr<work_state> w)
        : what_(w->what),
          handle_(by->handle_),
          stream_(by->stream_),
          side_(by->side_),
          passed_(by->on_->take_event()),
          by_(by),
          work_(w) {
      if (what_.kind != operation_kind::all_to_all || what_.in.data != what_.out.data ||
          what_.in.bytes() == 0)
        return;
      copy_of_input_ = gpu::impl::allocate(gpu::device(by->on_), what_.in.bytes(), gpu::memory_kind::device);
      w->keep_until_done(copy_of_input_);
    }
    ~operation_job() override {
      if (passed_ != nullptr) work_->on->give_event(passed_);  // the submit thread ended before finished()
    }

    // Reserves the operation's point in the stream, before the job is submitted.
    point& take_place() {
      place_ = stream_->reserve();
      return *place_.at;
    }

    void run() noexcept override {
      driver& d = stream_->on().driver();
      try {
        d.wait(stream_->native(), what_.ready.get());
        if (copy_of_input_) {
          d.copy(copy_of_input_->data, what_.in.data, what_.in.bytes(), stream_->native());
          what_.in.data = copy_of_input_->data;
        }
        call_nccl();
        d.record(passed_, stream_->native());
      } catch (const error& e) {
        failure_ = e;
        work_->voided->store(true, std::memory_order_release);  // before the point can pass
      }
      try {
        stream_->enqueue(place_);  // even after a failure: later points must pass
      } catch (const error&) {
        // The device has failed, which its loop finds by itself.
      }
    }

    void finished() noexcept override {
      const std::shared_ptr<connection> by = by_.lock();
      if (failure_) {
        work_->fail(*failure_);
        if (by) by->end(*failure_);
        return;
      }
      if (work_->done) return;
      try {
        work_->on->driver().wait(side_->native(), passed_);
        work_->set_enqueued(std::exchange(passed_, nullptr), *side_);
      } catch (const error& e) {
        work_->fail(e);
      }
    }

   private:
    void call_nccl() {
      owned_communicator::use use(*handle_);
      if (use.get() == nullptr) throw error(errc::communicator_failed, "NCCL's communicator has ended");
      const abi::result r = enqueue(*handle_, use, what_, stream_->native());
      if (r != abi::success)
        throw error(r == abi::remote_error ? errc::peer_failed : errc::device_failed,
                    "NCCL: " + handle_->calls.explain(r, use.get()));
    }

    device_arguments what_;
    std::shared_ptr<allocation> copy_of_input_;  // for all_to_all in place, which NCCL lacks
    const std::shared_ptr<owned_communicator> handle_;
    const std::shared_ptr<stream_state> stream_, side_;
    stream_state::reserved place_;
    void* passed_;
    std::optional<error> failure_;
    const std::weak_ptr<connection> by_;
    const std::shared_ptr<work_state> work_;
  };

  void forget_done() noexcept {
    // Only from the front: the others follow later.
    while (!pending_.empty() && pending_.front().work->done) {
      pending_.front().work->stop = nullptr;
      pending_.pop_front();
    }
  }
  // Looks whether another rank has ended NCCL's communicator. Operations learn of it by their own communicator.
  bool poll() noexcept override {
    if (!ended_.empty()) return false;
    const tutti::extend::failure told = tutti::extend::failure_of(control_);
    if (told.code == errc::success || told.code == errc::shut_down) return false;
    forget_done();
    if (!pending_.empty()) return false;
    end(error(told.code, told.text));
    return true;
  }
  // Fails all pending operations, and ends NCCL's communicator on all ranks.
  void end(const error& why) noexcept {
    frees_holds holds;
    for (const auto& [work, held] : std::exchange(pending_, {})) {
      work->stop = nullptr;
      work->fail(why);
      if (auto hold = held.lock()) holds.push_back(std::move(hold));
    }
    if (!ended_.empty()) return;
    ended_ = *why.what() == '\0' ? "it was cancelled" : why.what();
    tutti::extend::fail(control_, code_of(why), ended_);
    idle_->end(handle_, std::move(holds), {stream_, side_});
  }

  struct started {
    std::shared_ptr<work_state> work;
    std::weak_ptr<frees_hold> held;
  };
  const std::shared_ptr<attachment> on_;
  const communicator control_;
  const std::shared_ptr<submit_thread> thread_;
  const std::shared_ptr<owned_communicator> handle_;
  const std::shared_ptr<idle_communicators> idle_;
  const std::shared_ptr<stream_state> stream_;  // NCCL's work, enqueued by the submit thread
  const std::shared_ptr<stream_state> side_;    // opens gates, enqueued by the loop
  recycled_deque<started> pending_;
  std::string ended_;  // the reason; empty while connected
};

void check(const abi::table& calls, abi::result code, const char* what) {
  if (code != abi::success)
    throw error(errc::device_failed, fmt::format("{}: {}", what, calls.explain(code, nullptr)));
}

// What a registration keeps. The submit thread carries out its end.
using held = std::shared_ptr<void>;

// Returns the connection of `c`, and makes it if there is none.
task<std::shared_ptr<connection>> connection_of(communicator c) {
  if (!c) throw error(errc::invalid_argument, "memory for NCCL on an empty communicator");
  auto& side = communicator_devices::of(c);
  if (!side.nccl()) {
    const gpu::stream s{gpu::device(world_devices::of(c).on)};
    co_await exchange(c, batch(), s);
  }
  co_return std::static_pointer_cast<connection>(side.nccl());
}

}  // namespace

std::string why_not() { return abi::load().why; }
int version() noexcept { return abi::load().version(); }

std::string_view why_not_by_nccl(const device_arguments& c) noexcept {
  const reduce_kind kind = c.op.kind;
  const bool reduces = kind == reduce_kind::premul_sum || abi::operation_of(kind) >= 0;
  if (kind == reduce_kind::user) return "NCCL has no reduction by a callable";
  if (kind != reduce_kind::none && (!reduces || abi::type_of(c.in.type) < 0))
    return "NCCL has no such reduction of this type";
  if (c.kind != operation_kind::batch && !has_chunks(c))
    return "NCCL has no uneven blocks, lists, scans and barriers";
  return {};
}

task<std::shared_ptr<vendor>> connect(communicator control, gpu::device on) {
  const abi::table& calls = abi::load().required("NCCL");
  const std::shared_ptr<submit_thread> thread = submit_thread::of(on.shared_state());
  const int rank = control.rank();
  const std::vector<int> ranks = tutti::extend::world_ranks_of(control);
  std::shared_ptr<idle_communicators>& kept = world_devices::of(control).idle;
  if (kept == nullptr) kept = std::make_shared<idle_communicators>(thread);
  const std::shared_ptr<idle_communicators> idle = kept;
  // One that all of these ranks keep, or a new one.
  std::shared_ptr<owned_communicator> owned = rank == 0 ? idle->take(ranks, 0) : nullptr;
  int all_have = 0;
  const scope_exit put_back([&] {
    if (owned != nullptr && all_have == 0) idle->add(owned);
  });
  std::uint64_t number = owned == nullptr ? 0 : owned->number;
  co_await control.broadcast(number, 0);
  if (number != 0) {
    if (rank != 0) owned = idle->take(ranks, number);
    int have = owned == nullptr ? 0 : 1;
    co_await control.all_reduce(have, tutti::min);
    all_have = have;
  }
  std::shared_ptr<owned_communicator> chosen = owned;
  if (all_have == 0) {
    number = tutti::extend::identity_of(control).communicator;
    const std::function<abi::result()> nothing = [] { return abi::success; };
    const gpu::vendor_abi::library_texts texts{
        .name = "NCCL",
        .make_id = "ncclGetUniqueId",
        .init = "ncclCommInitRank",
        .connect_failed =
            "one of them has not called it, or they cannot reach each other (NCCL_DEBUG=INFO says more; "
            "NCCL_SOCKET_IFNAME chooses interfaces)"};
    const auto owned_by_us = [&calls, rank, ranks, number](abi::communicator* made) {
      return std::make_shared<owned_communicator>(calls, made, rank, ranks, number);
    };
    // Its thread is kept by `idle`, which must not keep itself.
    const std::function<void(abi::communicator*)> unclaimed = [to = std::weak_ptr(idle),
                                                               owned_by_us](abi::communicator* made) {
      if (const auto ends = to.lock()) ends->end(owned_by_us(made));
    };
    abi::communicator* const made = co_await abi::connect_ranks<abi::unique_id, abi::communicator>(
        control, idle->thread_beside(), on.state().timeout(), &calls, texts, nothing, unclaimed);
    chosen = owned_by_us(made);
  }
  co_return std::make_shared<connection>(on.shared_state(), std::move(control), thread, std::move(chosen),
                                         idle);
}

task<> load_kernels(gpu::device on) {
  static std::mutex mutex;
  static std::set<std::weak_ptr<driver>, std::owner_less<>> loaded;
  const std::shared_ptr<driver>& of = on.shared_state()->shared_driver();
  {
    const std::lock_guard lock(mutex);
    if (!loaded.insert(of).second) co_return;
  }
  const std::function<void()> f = [&calls = abi::load().required("NCCL")] {
    abi::unique_id id;
    abi::communicator* made = nullptr;
    check(calls, calls.get_unique_id(&id), "ncclGetUniqueId");
    check(calls, calls.init(&made, 1, id, 0), "ncclCommInitRank of one rank");
    calls.destroy(made);
  };
  try {
    co_await with_timeout(call_on(submit_thread::of(on.shared_state()), f), on.state().timeout());
  } catch (const error& e) {
    const std::lock_guard lock(mutex);
    loaded.erase(of);
    throw error(code_of(e), fmt::format("NCCL does not start on {}: {} (NCCL_DEBUG=INFO says more; "
                                        "TUTTI_GPU_BACKEND=staged does without NCCL)",
                                        on.name(), e.what()));
  }
}

operation<> exchange(const communicator& on, batch messages, const gpu::stream& after, call_site where) {
  tutti::extend::call what(operation_kind::batch, tutti::extend::reference_to(on), where);
  for (const batch::part& p : messages.parts())
    if (p.peer < 0 || p.peer >= on.size())
      throw error(errc::invalid_argument, fmt::format("nccl::exchange on {}: {} is not a rank (0 to {})",
                                                      on.name(), p.peer, on.size() - 1));
  what.part = tutti::extend::part_ref(
      new device_call(after.state(), nullptr, nullptr, std::make_shared<const batch>(std::move(messages))));
  return operation<>(std::move(what));
}

task<registration> impl::register_view(communicator on, view memory) {
  const std::shared_ptr<connection> self = co_await connection_of(std::move(on));
  const std::shared_ptr<owned_communicator> of = self->handle();
  if (of->calls.register_memory == nullptr)
    throw error(errc::not_supported, fmt::format("NCCL {} cannot register memory: 2.19 and later can",
                                                 abi::version_text(of->calls.version)));
  const auto made = std::make_shared<held>();
  const std::function<void()> f = [made, of, memory, thread = self->thread()] {
    owned_communicator::use use(*of);
    if (use.get() == nullptr)
      throw error(errc::communicator_failed, "ncclCommRegister: NCCL's communicator has ended");
    void* handle = nullptr;
    check(of->calls, of->calls.register_memory(use.get(), memory.data, memory.bytes(), &handle),
          "ncclCommRegister");
    *made = held(handle, [of, memory, thread](void* registered) {
      thread->submit([of, memory, registered] {
        // An abort also ends the registration.
        owned_communicator::use ending(*of);
        if (ending.get() != nullptr) of->calls.deregister_memory(ending.get(), registered);
      });
    });
  };
  co_await call_on(self->thread(), f);
  co_return registration(made);
}

task<std::pair<registration, void*>> impl::allocate_bytes(communicator on, std::size_t bytes) {
  const std::shared_ptr<connection> self = co_await connection_of(std::move(on));
  const abi::table* const calls = &self->handle()->calls;
  if (calls->memory_allocate == nullptr)
    throw error(errc::not_supported, fmt::format("NCCL {} cannot allocate: 2.19 and later can",
                                                 abi::version_text(calls->version)));
  const auto made = std::make_shared<held>();
  const std::function<void()> f = [made, bytes, calls, by = self->thread()->on().shared_driver()] {
    void* memory = nullptr;
    check(*calls, calls->memory_allocate(&memory, bytes), "ncclMemAlloc");
    *made = held(memory,
                 [calls, bytes, by](void* p) { by->free_by(bytes, [calls, p] { calls->memory_free(p); }); });
  };
  co_await call_on(self->thread(), f);
  co_return std::pair<registration, void*>(registration(made), made->get());
}

}  // namespace tutti::nccl
