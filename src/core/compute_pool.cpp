// SPDX-License-Identifier: Apache-2.0
// The compute pool of the process: Asio's thread pool, made on first use, sized to the cores per rank.
#include "base/cores.hpp"
#include "base/forks.hpp"
#include "core/loop.hpp"
#include "core/scheduling.hpp"
#include "flight/recordings.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <thread>
#include <tutti/compute.hpp>

namespace tutti::core {
namespace {

std::atomic<int> ranks_of_host{1};

// Lives for ever: a rank may compute while static objects are destroyed, and a job may end the process.
class compute_pool {
 public:
  boost::asio::thread_pool& get() {
    std::call_once(started_, [this] { start(); });
    return *pool_;
  }

 private:
  // Has fewer threads if no more can be made. (Asio's own threads would then be waited for, for ever.)
  void start() {
    const int wanted = std::max(1, base::usable_cores() / ranks_of_host.load(std::memory_order_relaxed));
    pool_.emplace(0);
    int made = 0;
    try {
      for (; made < wanted; ++made) std::thread([this] { pool_->attach(); }).detach();
    } catch (...) {
      if (made == 0) throw;
    }
  }

  std::once_flag started_;
  std::optional<boost::asio::thread_pool> pool_;
};
constinit base::of_each_process<compute_pool> pool;

}  // namespace

void set_compute_ranks(int ranks) noexcept {
  ranks_of_host.store(std::max(1, ranks), std::memory_order_relaxed);
}

}  // namespace tutti::core

namespace tutti::detail {
namespace {

// Shared by all tickets: no thread touches a ticket after its `left` has been set under this mutex.
struct departures {
  std::mutex mutex;
  std::condition_variable any;
};
constinit base::of_each_process<departures> leaving;

// Owned by the submitter and by the handler on the loop, so that the loop's thread recycles its memory.
struct compute_ticket {
  void pool_left() {
    departures& all = leaving.get();
    const std::lock_guard lock(all.mutex);
    left = true;
    all.any.notify_all();
  }
  void await_pool() {
    departures& all = leaving.get();
    std::unique_lock lock(all.mutex);
    all.any.wait(lock, [&] { return left; });
  }
  std::shared_ptr<flight::recorder_slot> recorder_slot;
  flight::handle record;
  // Memory of the handler posted to the pool, and of the one that returns the result, which so cannot fail.
  alignas(std::max_align_t) std::byte room[768];
  std::pmr::monotonic_buffer_resource way{room, sizeof room};
  bool left = false;       // the pool's thread no longer touches this, the job or the io_context
  bool abandoned = false;  // used on the loop's thread only
};
using ticket_ptr = std::shared_ptr<compute_ticket>;

template <class To, class F>
void post_by(compute_ticket& ticket, To&& to, F f) {
  const std::pmr::polymorphic_allocator<std::byte> memory(&ticket.way);
  boost::asio::post(to, boost::asio::bind_allocator(memory, std::move(f)));
}

}  // namespace

void submit_compute(compute_job& job) {
  core::loop& loop = core::loop::here("tutti::compute was awaited", "await it from a task that runs there");
  ticket_ptr ticket = make_recycled<compute_ticket>();  // not const: captures of it are moved
  ticket->recorder_slot = loop.recorder_slot().shared_from_this();
  flight::recorder& recorder = ticket->recorder_slot->recorder();
  ticket->record = recorder.begin_span(flight::kind_compute, recorder.text_of(job.where.file_name()),
                                       job.where.line(), recorder.now());
  // A handler brings the result: the io_context must not run out of work meanwhile.
  auto back = [ticket, &job, work = boost::asio::make_work_guard(loop.executor())] {
    // The pool's thread may still be in post(), and the code below may end the io_context.
    ticket->await_pool();
    if (ticket->abandoned) return;
    job.ticket.reset();
    job.finished(job);
  };
  job.ticket = ticket;
  recorder.compute_begun();
  auto run = [to = loop.executor(), at = ticket.get(), &job, back = std::move(back)]() mutable {
    flight::recorder& of = at->recorder_slot->recorder();
    flight::recorder_slot* const before = flight::recorder_slot::current();
    flight::recorder_slot::set_current(at->recorder_slot.get());
    const std::uint64_t start = of.now();
    job.run(job);
    flight::recorder_slot::set_current(before);
    of.end_span(at->record, flight::state::done, start, of.now());
    of.compute_ended();
    post_by(*at, to, std::move(back));
    at->pool_left();
  };
  // In virtual time no other thread may influence the order of events: the job runs here.
  if (loop.stepped()) return run();
  try {
    post_by(*ticket, core::pool.get().get(), std::move(run));
  } catch (...) {
    // The job will not run: nobody must wait for it.
    job.ticket = nullptr;
    recorder.end_span(ticket->record, flight::state::failed, recorder.now(), recorder.now());
    recorder.compute_ended();
    throw;
  }
}

void wait_compute(compute_job& job) noexcept {
  const auto ticket = std::static_pointer_cast<compute_ticket>(std::exchange(job.ticket, nullptr));
  ticket->await_pool();
  ticket->abandoned = true;
}

}  // namespace tutti::detail
