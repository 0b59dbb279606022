// SPDX-License-Identifier: Apache-2.0
// The compute pool of the process: Asio's thread pool, made on first use, sized to the cores that its ranks
// leave.
#include "core/compute_pool.hpp"

#include "core/kept_memory.hpp"
#include "core/loop.hpp"
#include "core/spin_policy.hpp"
#include "flight/recordings.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <tutti/compute.hpp>

namespace tutti::core {
namespace {

std::atomic<int> local_ranks{1};

boost::asio::thread_pool& pool() {
  static boost::asio::thread_pool instance(
      static_cast<std::size_t>(std::max(1, usable_cores() / local_ranks.load(std::memory_order_relaxed))));
  return instance;
}

}  // namespace

void set_compute_ranks(int ranks) noexcept {
  local_ranks.store(std::max(1, ranks), std::memory_order_relaxed);
}

}  // namespace tutti::core

namespace tutti::detail {
namespace {

// Shared by the submitter, the pool's thread and the handler on the loop, whichever ends last.
struct compute_ticket {
  void pool_left() {
    const std::lock_guard lock(mutex);
    left = true;
    changed.notify_all();
  }
  void await_pool() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left; });
  }
  std::shared_ptr<flight::recorder_slot> recorder_slot;
  flight::handle record;
  core::reserved_block
      way_back;  // the handler that brings the result, which the pool's thread cannot fail to post
  std::mutex mutex;
  std::condition_variable changed;
  bool left = false;       // the pool's thread touches neither the job nor the io_context any more
  bool abandoned = false;  // on the loop's thread only
};
using ticket_ptr = std::shared_ptr<compute_ticket>;

template <class F>
void post_back(const boost::asio::io_context::executor_type& executor, const ticket_ptr& ticket, F f) {
  boost::asio::post(
      executor, core::reserved_handler<F>(std::shared_ptr<core::reserved_block>(ticket, &ticket->way_back),
                                          std::move(f)));
}

}  // namespace

void submit_compute(compute_job& job) {
  core::loop* loop = &core::loop::here("tutti::compute was awaited", "await it from a task that runs there");
  auto ticket = std::make_shared<compute_ticket>();
  auto owned = std::make_unique<ticket_ptr>(ticket);
  ticket->recorder_slot = loop->recorder_slot().shared_from_this();
  flight::recorder& recorder = ticket->recorder_slot->recorder();
  ticket->record = recorder.begin_span(flight::kind_compute, recorder.text_of(job.where.file_name()),
                                       job.where.line(), recorder.now());
  // The result comes by a handler: the io_context must not run out of work meanwhile.
  auto work = boost::asio::make_work_guard(loop->executor());
  boost::asio::thread_pool* const pool = loop->stepped() ? nullptr : &core::pool();
  job.ticket = owned.get();
  recorder.compute_begun();
  if (loop->stepped()) {
    // Where time is not the machine's, no thread of its own may have a say in what comes first.
    job.run(job);
    ticket->pool_left();
    auto done = [ticket, &job] {
      if (ticket->abandoned) return;
      delete static_cast<ticket_ptr*>(std::exchange(job.ticket, nullptr));
      job.finished(job);
    };
    owned.release();
    post_back(loop->executor(), ticket, std::move(done));
    recorder.compute_ended();
    return;
  }
  auto run = [ticket, &job, work = std::move(work)]() mutable {
    flight::recorder_slot::set_current(ticket->recorder_slot.get());
    const std::uint64_t start = ticket->recorder_slot->recorder().now();
    job.run(job);
    flight::recorder_slot::set_current(nullptr);
    ticket->recorder_slot->recorder().end_span(ticket->record, flight::state::done, start,
                                               ticket->recorder_slot->recorder().now());
    ticket->recorder_slot->recorder().compute_ended();
    const auto executor = work.get_executor();
    post_back(executor, ticket, [ticket, &job, work = std::move(work)] {
      // The loop may come here before the pool's thread has left post(), and what follows may end the
      // io_context.
      ticket->await_pool();
      if (ticket->abandoned) return;
      delete static_cast<ticket_ptr*>(std::exchange(job.ticket, nullptr));
      job.finished(job);
    });
    ticket->pool_left();
  };
  try {
    boost::asio::post(*pool, std::move(run));
  } catch (...) {
    // Nothing will run: nobody is to wait for it.
    job.ticket = nullptr;
    recorder.end_span(ticket->record, flight::state::failed, recorder.now(), recorder.now());
    recorder.compute_ended();
    throw;
  }
  owned.release();
}

void wait_compute(compute_job& job) noexcept {
  const std::unique_ptr<ticket_ptr> ticket(static_cast<ticket_ptr*>(std::exchange(job.ticket, nullptr)));
  (*ticket)->await_pool();
  (*ticket)->abandoned = true;
}

}  // namespace tutti::detail
