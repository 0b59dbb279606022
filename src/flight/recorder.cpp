// SPDX-License-Identifier: Apache-2.0
#include "flight/recorder.hpp"

#include "base/process_state.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace tutti::flight {
namespace {

constexpr std::uint32_t most_passed_over = 32;
constexpr std::size_t most_probes = 16;
const char by_content[] = "";  // the key of texts that do not live as long as the program

std::uint32_t this_thread() noexcept {
  static thread_local const auto id = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return id;
}

template <std::size_t Room>
void copy_end(char (&to)[Room], std::string_view text) noexcept {
  if (text.size() >= Room) text.remove_prefix(text.size() - Room + 1);
  std::memcpy(to, text.data(), text.size());
  to[text.size()] = '\0';
}

}  // namespace

recorder::recorder(recording_view memory, std::uint64_t (*clock)(const void*) noexcept,
                   const void* clock_owner) noexcept
    : memory_(memory),
      head_(memory.head()),
      operations_(memory.operations()),
      operations_mask_(static_cast<std::uint32_t>(memory.sizes().operations - 1)),
      clock_(clock),
      clock_owner_(clock_owner) {
  constexpr auto relaxed = std::memory_order_relaxed;
  memory.clear();
  head_.owner.store(both(static_cast<std::uint64_t>(::getpid()), this_thread()), relaxed);
  head_.pid_space.store(base::namespace_of("pid"), relaxed);
  // A clock of its own counts nanoseconds.
  head_.base_cycles.store(now(), relaxed);
  head_.base_ns.store(clock_ == nullptr ? static_cast<std::uint64_t>(base::steady_ns()) : now(), relaxed);
  turned(now());
  head_.ready.store(magic, std::memory_order_release);
}

// Skips long-pending operations: they matter to readers, newer ones that are over do not.
std::uint32_t recorder::pass_over_pending(std::uint32_t place) const noexcept {
  for (std::uint32_t i = 1; i <= most_passed_over; ++i) {
    const std::uint32_t next = (place + i) & operations_mask_;
    if (!is_pending(operations_[next])) return next;
  }
  return place;
}

void recorder::waits_for(handle h, int world_rank) noexcept {
  entry& e = operations_[h.place];
  if (e.mark.load(std::memory_order_relaxed) >> 8 != h.number) return;
  const std::uint64_t moved = e.detail.load(std::memory_order_relaxed) & 0xffff'ffff'ffff;
  e.detail.store(static_cast<std::uint64_t>(world_rank + 1) << 48 | moved, std::memory_order_relaxed);
}

void recorder::moved(handle h, std::uint64_t bytes) noexcept {
  entry& e = operations_[h.place];
  if (e.mark.load(std::memory_order_relaxed) >> 8 != h.number) return;
  e.detail.store(e.detail.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

// ---- spans ----

handle recorder::begin_span(std::uint8_t kind, std::uint32_t text, std::uint32_t line,
                            std::uint64_t start) noexcept {
  // Two threads have the same place only when a whole ring has been written in between.
  const std::uint64_t number = head_.spans.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto place = static_cast<std::uint32_t>((number - 1) % memory_.sizes().spans());
  write(memory_.spans()[place], number, state::pending, kind, text, line, 0, this_thread(), 0, start, 0);
  return {number, place};
}

void recorder::end_span(handle h, state how, std::uint64_t start, std::uint64_t end) noexcept {
  entry& e = memory_.spans()[h.place];
  if (e.mark.load(std::memory_order_relaxed) >> 8 != h.number) return;
  e.start.store(start, std::memory_order_relaxed);
  e.end.store(end, std::memory_order_relaxed);
  e.mark.store(h.number << 8 | static_cast<std::uint64_t>(how), std::memory_order_release);
}

// ---- texts ----

std::uint32_t recorder::find_text(std::size_t from, const char* key, std::string_view text) noexcept {
  if (key == nullptr) return no_text;
  for (std::size_t i = 0; i < most_probes; ++i) {
    const std::size_t at = (from + i) % texts;
    text_entry& kept = memory_.text_entries()[at];
    const char* there = keys_[at].load(std::memory_order_acquire);
    if (there == nullptr) {
      const std::lock_guard lock(adding_);
      there = keys_[at].load(std::memory_order_acquire);
      if (there == nullptr) {
        copy_end(kept.text, key == by_content ? text : std::string_view(key));
        kept.ready.store(1, std::memory_order_release);
        keys_[at].store(key, std::memory_order_release);
        return static_cast<std::uint32_t>(at);
      }
    }
    if (there == key && (key != by_content || text == kept.text)) return static_cast<std::uint32_t>(at);
  }
  return no_text;
}

std::uint32_t recorder::text_of(std::string_view text) noexcept {
  text = text.substr(0, sizeof(text_entry::text) - 1);
  return find_text(std::hash<std::string_view>()(text), by_content, text);
}

// ---- communicators ----

std::size_t recorder::open_communicator(std::uint32_t id, int rank, int size,
                                        std::string_view name) noexcept {
  std::size_t chosen = no_place;
  for (std::size_t i = 0; i < communicators; ++i) {
    const std::uint64_t key = memory_.communicator_entries()[i].key.load(std::memory_order_relaxed);
    if (key == 0) {
      chosen = i;
      break;
    }
    if (chosen == no_place && key >> 63 != 0) chosen = i;
  }
  if (chosen == no_place) return no_place;
  communicator_entry& c = memory_.communicator_entries()[chosen];
  c.key.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  c.place.store(both(static_cast<std::uint64_t>(rank), static_cast<std::uint32_t>(size)),
                std::memory_order_relaxed);
  c.last.store(0, std::memory_order_relaxed);
  c.failed.store(0, std::memory_order_relaxed);
  copy_end(c.name, name);
  c.key.store(std::uint64_t{1} + id, std::memory_order_release);
  return chosen;
}

void recorder::close_communicator(std::size_t place) noexcept {
  if (place == no_place) return;
  word& key = memory_.communicator_entries()[place].key;
  key.store(key.load(std::memory_order_relaxed) | communicator_entry::closed, std::memory_order_relaxed);
}

// ---- the rank and its loop ----

void recorder::joining(int rank, int size) noexcept {
  head_.owner.store(both(static_cast<std::uint64_t>(::getpid()), this_thread()), std::memory_order_relaxed);
  head_.rank.store(both(static_cast<std::uint64_t>(rank), static_cast<std::uint32_t>(size)),
                   std::memory_order_relaxed);
  head_.joined.store(now(), std::memory_order_relaxed);
  head_.phase_.store(static_cast<std::uint64_t>(phase::joining), std::memory_order_release);
}

void recorder::joined(std::uint64_t world) noexcept {
  head_.world.store(world, std::memory_order_relaxed);
  head_.joined.store(now(), std::memory_order_relaxed);
  head_.phase_.store(static_cast<std::uint64_t>(phase::member), std::memory_order_release);
}

void recorder::ended(phase how, std::string_view why) noexcept {
  copy_end(head_.failure_text, why.substr(0, sizeof head_.failure_text - 1));
  head_.phase_.store(static_cast<std::uint64_t>(how), std::memory_order_release);
}

void recorder::failed(std::string_view why, int code) noexcept {
  head_.failed_ns.store(static_cast<std::uint64_t>(base::steady_ns()), std::memory_order_relaxed);
  head_.failed_code.store(static_cast<std::uint64_t>(code), std::memory_order_relaxed);
  ended(phase::failed, why);
}

void recorder::fell_asleep() noexcept {
  slept_since_ = now();
  head_.asleep.store(slept_since_, std::memory_order_relaxed);
}

void recorder::woke_up() noexcept {
  turned(now());
  head_.asleep.store(0, std::memory_order_relaxed);
  if (!traced_) return;
  const handle h = begin_span(kind_asleep, no_text, 0, slept_since_);
  end_span(h, state::done, slept_since_, now());
}

}  // namespace tutti::flight
