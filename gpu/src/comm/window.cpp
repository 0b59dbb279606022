// SPDX-License-Identifier: Apache-2.0
#include "comm/window.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::gpu::impl {
namespace {

using namespace std::chrono_literals;
constexpr auto longest_trial = 5s;
// In chunks of the staged backend. Each slot costs a message, as there, but no copy over the bus.
constexpr std::size_t chunks_per_slot = 4;
constexpr std::size_t smallest_slot = 8192, largest_slot = 2 << 20;

// Carries out a step on each rank. Returns the reason of the first rank where it failed; empty if none did.
task<std::string> first_trouble(communicator among, task<> step) {
  reason mine;
  try {
    co_await std::move(step);
  } catch (const error& e) {
    mine.set(e);
  }
  std::vector<reason> all(static_cast<std::size_t>(among.size()));
  co_await among.all_gather(mine, all);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].why != 0) co_return fmt::format("rank {}: {}", r, all[r].text);
  co_return std::string();
}

// An object, because a deleter would live as long as weak pointers, and keep the driver.
std::shared_ptr<void> own_event(const std::shared_ptr<driver>& by, void* event) {
  const auto destroy = [by, event] { by->destroy_event(event); };
  return std::make_shared<scope_exit<decltype(destroy)>>(destroy);
}

// Shared by all windows of this process until it ends. Never destroyed: device memory is not freed at the end of a
// process.
struct process_windows {
  std::mutex mutex;
  // Memory of closed windows that other processes have opened, by device and size.
  std::multimap<std::pair<std::string, std::size_t>, std::shared_ptr<allocation>> kept;
  std::map<void*, std::weak_ptr<void>> events;  // that ranks of this process share
  std::map<std::string, std::string> trouble;   // why a device cannot have windows
};
process_windows& of_process() {
  static auto* const all = new process_windows;
  return *all;
}

std::uint64_t random_number() {
  std::random_device random;
  return static_cast<std::uint64_t>(random()) << 32 | random();
}

}  // namespace

std::uint64_t this_process() {
  static const std::uint64_t number = random_number() ^ static_cast<std::uint64_t>(::getpid());
  return number;
}

// How other ranks open this rank's part. Ranks of the same process use the pointers.
struct window::handle {
  std::uint64_t process = 0;
  std::uint64_t value = 0;  // that rank 0 writes to test the window
  void* memory = nullptr;
  shared_name memory_name;
  void* events[slots] = {};  // done() of rank 0, ready() of others
  shared_name event_names[slots];
};

window::window(std::shared_ptr<driver> d, int rank, int size, std::size_t slot_bytes)
    : driver_(std::move(d)),
      rank_(rank),
      size_(size),
      slot_bytes_(slot_bytes),
      ready_(static_cast<std::size_t>(size_)) {}

window::~window() {
  driver& d = *driver_;
  if (rank_ != 0 && base_ != nullptr) leave_mark();
  if (opened_ && base_ != nullptr) d.sharing()->close_memory(base_);
  if (!memory_ || !known_) return;
  process_windows& all = of_process();
  const std::lock_guard lock(all.mutex);
  all.kept.emplace(std::pair(d.identity(), bytes()), std::move(memory_));
}

void window::leave_mark() noexcept {
  driver& d = *driver_;
  try {
    void* const stream = d.make_stream(true);
    void* const marked = d.make_event();
    d.fill(static_cast<std::byte*>(marks()) + static_cast<std::size_t>(rank_) * mark_bytes, std::byte{1},
           mark_bytes, stream);
    d.record(marked, stream);
    d.wait_until([&] { return d.query(marked); }, stream, longest_trial);
    d.destroy_event(marked);
    d.destroy_stream(stream);
  } catch (const error&) {
    // The device has failed, so this memory is not reused.
  }
}
void* window::marks() const noexcept {
  return static_cast<std::byte*>(base_) + static_cast<std::size_t>(size_) * slots * slot_bytes_;
}

void* window::slot(int rank, std::uint64_t chunk) const noexcept {
  return static_cast<std::byte*>(base_) +
         (static_cast<std::size_t>(rank) * slots + chunk % slots) * slot_bytes_;
}

bool window::is_free(std::uint64_t chunk) const {
  if (given_up_)
    throw error(errc::communicator_failed,
                "an operation before this one has failed, which the ranks' chunks were to follow");
  return chunk < slots || emptied_[chunk % slots] == chunk - slots + 1;
}

task<> window::find_memory(stream s) {
  process_windows& others = of_process();
  const std::pair of(driver_->identity(), bytes());
  std::vector<std::shared_ptr<allocation>> spare;
  {
    const std::lock_guard lock(others.mutex);
    if (const auto why = others.trouble.find(of.first); why != others.trouble.end())
      throw error(errc::not_supported, why->second);
    const auto [from, to] = others.kept.equal_range(of);
    for (auto m = from; m != to; ++m) spare.push_back(std::move(m->second));
    others.kept.erase(from, to);
  }
  const std::size_t all = static_cast<std::size_t>(size_) * mark_bytes;
  std::vector<std::byte> seen(all);
  for (auto& old : spare) {
    if (!memory_) {
      base_ = old->data;
      co_await s.download(seen, device_span<std::byte>(static_cast<std::byte*>(marks()), all));
      bool left = true;
      for (std::size_t r = 1; r < static_cast<std::size_t>(size_); ++r)
        left = left && seen[r * mark_bytes] != std::byte{0};
      if (left) {
        memory_ = std::move(old);
        continue;
      }
    }
    const std::lock_guard lock(others.mutex);
    others.kept.emplace(of, std::move(old));
  }
  if (!memory_) memory_ = allocate(s.on(), bytes(), memory_kind::device);
  base_ = memory_->data;
  co_await s.fill(device_span<std::byte>(static_cast<std::byte*>(marks()), all), std::byte{0});
}

task<> window::prepare(device on, stream* s, handle* mine) {
  *s = stream(on);
  if (rank_ == 0) co_await find_memory(*s);
  process_sharing* const sharing = driver_->sharing();
  if (sharing == nullptr)
    throw error(errc::not_supported,
                fmt::format("{} has no memory that other processes can open", driver_->name()));
  const auto keep = [this](void* event) {
    events_.push_back(own_event(driver_, event));
    return event;
  };
  for (void*& e : freed_) e = keep(driver_->make_event());
  if (sharing->has_events()) {
    process_windows& all = of_process();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.events, [](const auto& known) { return known.second.expired(); });
    for (std::size_t i = 0; i < slots; ++i) {
      mine->events[i] = keep(sharing->make_shared_event(mine->event_names[i]));
      all.events[mine->events[i]] = events_.back();
    }
    std::copy_n(mine->events, slots,
                rank_ == 0 ? done_.begin() : ready_[static_cast<std::size_t>(rank_)].begin());
  }
  if (rank_ != 0) co_return;
  for (void*& e : ready_[0]) e = keep(driver_->make_event());
  mine->memory = base_;
  mine->memory_name = sharing->name_memory(base_);
  mine->value = random_number();
  for (int r = 1; r < size_; ++r) co_await write_value(*s, r, mine->value, done(0));
}

task<> window::reach(stream s, const std::vector<handle>* ranks) {
  const std::vector<handle>& all = *ranks;
  process_sharing& sharing = *driver_->sharing();
  const handle& mine = all[static_cast<std::size_t>(rank_)];
  const auto events_of = [&](const handle& of, events& to) {
    if (!sharing.has_events()) return;
    for (std::size_t i = 0; i < slots; ++i) {
      to[i] = of.events[i];
      if (of.process == mine.process) {
        const std::lock_guard lock(of_process().mutex);
        events_.push_back(of_process().events[to[i]].lock());
      } else {
        to[i] = sharing.open_event(of.event_names[i]);
        events_.push_back(own_event(driver_, to[i]));
      }
    }
  };
  if (rank_ == 0) {
    for (std::size_t r = 1; r < all.size(); ++r) events_of(all[r], ready_[r]);
    co_return;
  }
  events_of(all[0], done_);
  opened_ = all[0].process != mine.process;
  base_ = opened_ ? sharing.open_memory(all[0].memory_name) : all[0].memory;
  co_await check_value(s, rank_, all[0].value, done(0));
  co_await write_value(s, rank_, ~all[0].value, ready(rank_, 0));
}

task<> window::check_answers(stream s, std::uint64_t value) {
  for (int r = 1; rank_ == 0 && r < size_; ++r) co_await check_value(s, r, ~value, ready(r, 0));
}

task<> window::write_value(stream s, int rank, std::uint64_t value, void* event) {
  const std::vector<std::uint64_t> values{value};
  const device_span<std::uint64_t> place(static_cast<std::uint64_t*>(slot(rank, 0)), 1);
  if (has_events()) {
    const request writing = tutti::start(s.upload(place, values));
    driver_->record(event, s.native());
  } else {
    co_await with_timeout(s.upload(place, values), longest_trial);
  }
}

task<> window::check_value(stream s, int rank, std::uint64_t value, void* event) {
  std::vector<std::uint64_t> values{0};
  const device_span<std::uint64_t> place(static_cast<std::uint64_t*>(slot(rank, 0)), 1);
  if (has_events()) driver_->wait(s.native(), event);
  co_await with_timeout(s.download(values, place), longest_trial);
  if (values[0] != value)
    throw error(errc::not_supported,
                fmt::format("what rank {} writes to memory of rank 0 is not what is read there",
                            rank_ == 0 ? rank : 0));
}

task<std::shared_ptr<window>> window::open(std::shared_ptr<attachment> on, communicator notes,
                                           std::size_t chunk_bytes, std::string* why) {
  const int rank = notes.rank();
  const std::size_t bytes =
      std::clamp((chunk_bytes * chunks_per_slot + 255) / 256 * 256, smallest_slot, largest_slot);
  auto made = std::make_shared<window>(on->shared_driver(), rank, notes.size(), bytes);
  handle mine;
  mine.process = this_process();
  stream s;
  *why = co_await first_trouble(notes, made->prepare(device(on), &s, &mine));
  if (!why->empty()) co_return nullptr;

  std::vector<handle> all(static_cast<std::size_t>(notes.size()));
  co_await notes.all_gather(mine, all);
  made->known_ = true;
  *why = co_await first_trouble(notes, made->reach(s, &all));
  if (why->empty()) *why = co_await first_trouble(notes, made->check_answers(s, all[0].value));
  if (why->empty()) co_return made;
  // The device is not tried again: each try leaves memory that other processes have opened.
  const std::lock_guard lock(of_process().mutex);
  of_process().trouble.emplace(made->driver_->identity(), *why);
  co_return nullptr;
}

}  // namespace tutti::gpu::impl
