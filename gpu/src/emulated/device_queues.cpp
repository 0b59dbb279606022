// SPDX-License-Identifier: Apache-2.0
#include "emulated/device_queues.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::emulated {
namespace {

// Polling interval for what queues wait for and nobody reports: words that the host writes, events of other devices.
constexpr auto between_polls = std::chrono::microseconds(50);

}  // namespace

device_queues::device_queues(options how) : how_(how), memory_(how.memory_bytes), random_(how.adversary) {
  for (int i = 0; i < std::max(1, how_.workers); ++i) workers_.emplace_back([this] { work_loop(); });
}

device_queues::~device_queues() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  changed_.notify_all();
  lock.unlock();
  for (std::thread& t : workers_) t.join();
}

device_queues::queue* device_queues::make_queue() {
  const std::lock_guard lock(mutex_);
  if (spare_queues_.empty()) spare_queues_.emplace_back(*this);
  queues_.splice(queues_.end(), spare_queues_, spare_queues_.begin());
  queue& q = queues_.back();
  q.doomed = false;
  q.capturing.store(false, std::memory_order_relaxed);
  return &q;
}

void device_queues::destroy_queue(queue* q) noexcept {
  const std::lock_guard lock(mutex_);
  q->doomed = true;
  retire(q);
  changed_.notify_all();
}

// Removes a doomed queue once it is empty.
void device_queues::retire(queue* q) noexcept {
  if (!q->doomed || !q->items.empty() || q->busy) return;
  const auto at = std::ranges::find(queues_, q, [](const queue& x) { return &x; });
  spare_queues_.splice(spare_queues_.begin(), queues_, at);
}

void device_queues::record(queue* q, event& e) {
  enqueue(q, [&](item&) { e = {q, q->enqueued}; });
}
void device_queues::wait(queue* q, const event& e) {
  enqueue(q, [&](item& i) { i.after = e; });
}
void device_queues::wait(queue* q, const word* w, std::uint64_t at_least) {
  enqueue(q, [&](item& i) {
    i.source = w;
    i.at_least = at_least;
  });
}
bool device_queues::has_passed(const event& e) noexcept {
  return e.in == nullptr || e.in->done.load(std::memory_order_acquire) >= e.place;
}
bool device_queues::passed(const event& e) const {
  const std::lock_guard lock(mutex_);
  return has_passed(e);
}

void device_queues::changed() noexcept {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

std::string device_queues::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void device_queues::fail_after(std::uint64_t n, std::string why) {
  const std::lock_guard lock(mutex_);
  fail_at_ = executed_ + n;
  fail_why_ = std::move(why);
}

void device_queues::pause(bool on) noexcept {
  const std::lock_guard lock(mutex_);
  paused_ = on;
  changed_.notify_all();
}

bool device_queues::runnable(const queue& q) const noexcept {
  if (q.busy || q.items.empty()) return false;
  const item& head = q.items.front();
  return has_passed(head.after) &&
         (head.source == nullptr || head.source->load(std::memory_order_acquire) >= head.at_least);
}

bool device_queues::must_poll(const queue& q) const noexcept {
  if (q.busy || q.items.empty()) return false;
  const item& head = q.items.front();
  return head.source != nullptr || (head.after.in != nullptr && head.after.in->of != this);
}

device_queues::queue* device_queues::choose() noexcept {
  queue* chosen = nullptr;
  std::size_t seen = 0;
  for (queue& q : queues_) {
    if (!runnable(q)) continue;
    ++seen;
    if (how_.adversary != 0) {
      if (random_() % seen == 0) chosen = &q;
    } else if (chosen == nullptr || q.items.front().order < chosen->items.front().order) {
      chosen = &q;
    }
  }
  return chosen;
}

void device_queues::work_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (ending_) return;
    queue* const q = paused_ || failing_ ? nullptr : choose();
    if (q == nullptr) {
      if (!failing_ && std::ranges::any_of(queues_, [this](const queue& p) { return must_poll(p); })) {
        // System time, because g++'s ThreadSanitizer does not know waits on the steady clock.
        changed_.wait_until(lock, std::chrono::system_clock::now() + between_polls);
      } else {
        changed_.wait(lock);
      }
      continue;
    }
    std::list<item> current;
    current.splice(current.begin(), q->items, q->items.begin());
    item& i = current.front();
    q->busy = true;
    ++running_;
    std::chrono::microseconds pause = i.is_work ? how_.delay : std::chrono::microseconds(0);
    if (how_.adversary != 0 && random_() % 4 == 0) pause += std::chrono::microseconds(random_() % 200);
    bool faulty = i.is_work && ++executed_ == fail_at_;
    std::string why = faulty ? fail_why_ : std::string();
    lock.unlock();

    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    if (!faulty && i.run) {
      try {
        i.run();
      } catch (const std::exception& e) {
        faulty = true;
        why = e.what();
      }
    }
    i.run.clear();  // destroys what the closure holds outside the lock

    lock.lock();
    spare_items_.splice(spare_items_.begin(), current);
    q->busy = false;
    if (!faulty) q->done.fetch_add(1, std::memory_order_release);
    --running_;
    if (faulty && !failing_) {
      failing_ = true;
      failure_ = std::move(why);
    }
    if (failing_ && running_ == 0) failed_.store(true, std::memory_order_release);
    retire(q);
    changed_.notify_all();
  }
}

std::byte* device_queues::reach(const void* memory, std::size_t bytes) const {
  if (std::byte* const inside = memory_.view(memory, bytes)) return inside;
  throw fault(memory_.contains(memory)
                  ? "an illegal memory access: an address, or a length, outside of every allocation"
                  : "an illegal memory access: host memory that is not pinned");
}

}  // namespace tutti::emulated
