// SPDX-License-Identifier: Apache-2.0
#include "flight/recordings.hpp"

#include "base/env.hpp"
#include "base/files.hpp"
#include "base/forks.hpp"
#include "base/process_state.hpp"
#include "base/shared_memory.hpp"
#include "base/text.hpp"
#include "flight/trace_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <tutti/detail/operation_state.hpp>

namespace tutti::flight {
namespace {

constexpr const char* variable = "TUTTI_FLIGHT";
constexpr int most_ranks = 65536;

constexpr bool is_in_world(phase p) noexcept {
  return p == phase::joining || p == phase::member || p == phase::leaving;
}

// Never 0, which means nobody.
std::uint64_t name_of(int rank, std::int64_t pid) noexcept {
  return both(static_cast<std::uint64_t>(pid), static_cast<std::uint32_t>(rank) + 1);
}

std::shared_ptr<std::byte> map_memory(std::size_t bytes, int flags, int fd) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  return {static_cast<std::byte*>(at), [bytes](std::byte* memory) { ::munmap(memory, bytes); }};
}

// ---- the recorder slots of this process ----

constexpr std::size_t most_slots = 256;

// A signal handler reads them without a lock.
std::array<std::atomic<recorder_slot*>, most_slots> slots{};
// Handlers of SIGUSR1 that read recorders: one that is taken out of `slots` stays until they are done. Either its thread
// sees the handler here, or the handler sees it gone: hence sequentially consistent.
std::atomic<int> readers_at_signal{0};
std::atomic<int> launcher_pid{0};
constinit base::of_each_process<std::recursive_mutex> slots_mutex;
std::weak_ptr<recordings> node_memory;
thread_local recorder_slot* current_slot = nullptr;

// Ranks of this process that have failed and whose recordings are gone; the latest. Under slots_mutex.
struct failed_rank {
  std::uint64_t world = 0;
  int rank = -1;
};
std::array<failed_rank, most_slots> failed_ranks{};
std::size_t failures = 0;

}  // namespace

// ---- the memory of a node ----

recordings::recordings(int ranks, shape s) : ranks_(ranks), shape_(s) {
  const std::size_t bytes = page_bytes + static_cast<std::size_t>(ranks) * s.bytes();
  fd_ = base::make_memory_file(memory_name, bytes);
  if (!fd_) throw std::system_error(errno, std::generic_category(), "the flight recorder's memory");
  memory_ = map_memory(bytes, MAP_SHARED, fd_.get());
  title& t = front();
  t.ranks.store(static_cast<std::uint64_t>(ranks), std::memory_order_relaxed);
  t.operations.store(s.operations, std::memory_order_relaxed);
  t.launcher.store(static_cast<std::uint64_t>(::getpid()), std::memory_order_relaxed);
  t.pid_space.store(base::namespace_of("pid"), std::memory_order_relaxed);
  t.ready.store(magic, std::memory_order_release);
}

recordings::recordings(int fd) : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 0)) {
  struct stat status{};
  if (!fd_ || ::fstat(fd_.get(), &status) != 0 || status.st_size < static_cast<off_t>(page_bytes))
    throw std::runtime_error("no memory for a flight recorder");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  memory_ = map_memory(bytes, MAP_SHARED, fd_.get());
  const title& t = front();
  const std::uint64_t ranks = t.ranks.load(std::memory_order_relaxed);
  shape_.operations = t.operations.load(std::memory_order_relaxed);
  const bool right = t.ready.load(std::memory_order_acquire) == magic && ranks > 0 && ranks <= most_ranks &&
                     std::has_single_bit(shape_.operations) && shape_.operations >= least_operations &&
                     shape_.operations <= most_operations && bytes == page_bytes + ranks * shape_.bytes();
  if (!right) throw std::runtime_error("memory of another version's flight recorder");
  ranks_ = static_cast<int>(ranks);
}

recording_view recordings::of(int local_rank) const noexcept {
  return {memory_.get() + page_bytes + static_cast<std::size_t>(local_rank) * shape_.bytes(), shape_};
}

void recordings::clear() noexcept {
  for (word& w : front().stopped) w.store(0, std::memory_order_relaxed);
  for (int i = 0; i < ranks_; ++i) of(i).head().ready.store(0, std::memory_order_relaxed);
}

void recordings::set_stopped(int rank, std::int64_t pid, bool on) noexcept {
  if (is_stopped(rank, pid) == on) return;
  const std::uint64_t name = name_of(rank, pid);
  for (word& w : front().stopped)
    if (w.load(std::memory_order_relaxed) == (on ? 0 : name))
      return w.store(on ? name : 0, std::memory_order_relaxed);
}

bool recordings::is_stopped(int rank, std::int64_t pid) const noexcept {
  const std::uint64_t name = name_of(rank, pid);
  return std::any_of(std::begin(front().stopped), std::end(front().stopped),
                     [name](const word& w) { return w.load(std::memory_order_relaxed) == name; });
}

std::string variable_for(const recordings& all, int local_rank) {
  return fmt::format("{}={}:{}", variable, all.descriptor(), local_rank);
}

std::size_t wanted_operations(bool traced) {
  const auto given = base::env_integer("TUTTI_FLIGHT_OPERATIONS", least_operations, most_operations);
  const std::size_t wanted = given ? std::bit_ceil(static_cast<std::size_t>(*given)) : usual_operations;
  return traced ? std::max(wanted, traced_operations) : wanted;
}

// ---- recorder slots ----

namespace {

// What TUTTI_FLIGHT says: a descriptor, and this rank's place in that memory.
struct given_place {
  int fd = -1;
  int local_rank = -1;
};

std::optional<given_place> place_of_environment() {
  const std::string text = base::env_string(variable).value_or("");
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return std::nullopt;
  const auto fd = base::to_number<int>(text.substr(0, colon));
  const auto local_rank = base::to_number<int>(text.substr(colon + 1));
  if (!fd || *fd < 0 || !local_rank || *local_rank < 0) return std::nullopt;
  return given_place{*fd, *local_rank};
}

// The launcher's memory; null if there is none.
std::shared_ptr<recordings> memory_at(const given_place& at) {
  try {
    auto all = std::make_shared<recordings>(at.fd);
    if (at.local_rank >= all->ranks()) return nullptr;
    // Processes started by this one are not this rank.
    ::fcntl(at.fd, F_SETFD, FD_CLOEXEC);
    return all;
  } catch (const std::exception&) {
    // the descriptor was closed on the way here, for example by a shell in between: continue without
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<recorder_slot> recorder_slot::take(std::uint64_t (*clock)(const void*) noexcept,
                                                   const void* clock_owner) {
  const bool real_clock = clock == nullptr;
  const bool alone_traced = real_clock && base::env_string(variable) == std::nullopt && trace_this_process();
  std::shared_ptr<recorder_slot> made(new recorder_slot);  // before the lock, which its destructor needs, too
  const std::lock_guard lock(slots_mutex.get());
  recording_view memory;
  if (real_clock && node_memory.expired()) {
    const std::optional<given_place> at = place_of_environment();
    if (at) made->node_ = memory_at(*at);
    if (made->node_ != nullptr) {
      node_memory = made->node_;
      memory = made->node_->of(at->local_rank);
      const recordings::title& t = made->node_->front();
      // In another namespace its number is that of another process.
      if (t.pid_space == base::namespace_of("pid"))
        launcher_pid.store(static_cast<int>(t.launcher), std::memory_order_relaxed);
    }
  }
  if (!memory) {
    const shape s{real_clock ? wanted_operations(alone_traced) : least_operations};
    made->own_ = map_memory(s.bytes(), MAP_PRIVATE | MAP_ANONYMOUS | (real_clock ? MAP_POPULATE : 0), -1);
    memory = recording_view(made->own_.get(), s);
  }
  made->recorder_ = std::make_unique<flight::recorder>(memory, clock, clock_owner);
  made->recorder_->trace(made->node_ != nullptr ? made->node_->front().traced != 0 : alone_traced);
  for (auto& s : slots) {
    recorder_slot* free = nullptr;
    if (s.compare_exchange_strong(free, made.get(), std::memory_order_release)) break;
  }
  return made;
}

recorder_slot* recorder_slot::current() noexcept { return current_slot; }
void recorder_slot::set_current(recorder_slot* s) noexcept { current_slot = s; }

recorder_slot::~recorder_slot() {
  if (current_slot == this) current_slot = nullptr;
  const std::lock_guard lock(slots_mutex.get());
  if (recorder_ != nullptr) {
    for (auto& s : slots) {
      recorder_slot* mine = this;
      if (s.compare_exchange_strong(mine, nullptr)) break;
    }
    while (readers_at_signal.load() > 0) ::sched_yield();
    write_last(recorder_->memory());
    if (const head& h = recorder_->memory().head(); h.at() == phase::failed)
      failed_ranks[failures++ % most_slots] = {h.world.load(std::memory_order_relaxed), h.world_rank()};
    recorder_.reset();
  }
  node_.reset();  // under the lock: the next one may take the place
}

std::int64_t rank_around_this_process() {
  const std::optional<given_place> at = place_of_environment();
  if (!at) return 0;
  const std::uint64_t pid_space = base::namespace_of("pid");
  const std::string file = fmt::format("/memfd:{}", memory_name);
  for (std::int64_t pid = ::getppid(); pid > 0; pid = base::parent_of_process(pid)) {
    // A process that the launcher started, and this one, has the same memory there; others have any file.
    const std::string path = fmt::format("/proc/{}/fd/{}", pid, at->fd);
    std::error_code unread;
    if (!std::filesystem::read_symlink(path, unread).native().starts_with(file)) continue;
    const base::unique_fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    try {
      const recordings all(fd.get());
      if (at->local_rank >= all.ranks()) continue;
      const head& h = all.of(at->local_rank).head();
      if (h.is_written() && h.pid_space == pid_space && h.pid() == pid && is_in_world(h.at())) return pid;
    } catch (const std::exception&) {  // no such memory
    }
  }
  return 0;
}

std::optional<bool> has_left(int rank, std::uint64_t world, std::int64_t pid) noexcept {
  std::optional<bool> left;
  const std::lock_guard lock(slots_mutex.get());
  for_each_recording([&](recording_view memory) {
    const head& h = memory.head();
    if (h.is_written() && h.world.load(std::memory_order_relaxed) == world && h.world_rank() == rank &&
        h.pid() == pid)
      left = h.at() == phase::leaving || h.at() == phase::left;
  });
  if (!left && pid == ::getpid() && std::ranges::any_of(failed_ranks, [=](const failed_rank& f) {
        return f.world == world && f.rank == rank;
      }))
    return false;
  return left;
}

void for_each_recording(const std::function<void(recording_view)>& f) {
  const std::lock_guard lock(slots_mutex.get());
  const std::shared_ptr<recordings> node = node_memory.lock();
  for (int i = 0; node != nullptr && i < node->ranks(); ++i) f(node->of(i));
  for (const auto& s : slots) {
    recorder_slot* const one = s.load(std::memory_order_acquire);
    if (one != nullptr && one->node() == nullptr) f(one->recorder().memory());
  }
}

// ---- the signal ----

namespace {

// For a signal handler: allocates nothing.
template <class... Arguments>
void write_line(fmt::format_string<Arguments...> format, Arguments&&... arguments) noexcept {
  char line[512];
  const auto whole = fmt::format_to_n(line, sizeof line - 1, format, std::forward<Arguments>(arguments)...);
  *whole.out = '\n';
  base::write_all(STDERR_FILENO, {line, whole.out + 1});
}

void write_pending(const recorder& of) noexcept {
  const recording_view memory = of.memory();
  constexpr auto relaxed = std::memory_order_relaxed;
  const time_map times(memory.head());
  const int rank = memory.head().world_rank();
  bool any = false;
  for (std::size_t i = 0; i < memory.sizes().operations; ++i) {
    const entry& e = memory.operations()[i];
    if (static_cast<state>(e.mark.load(std::memory_order_acquire) & 0xff) != state::pending) continue;
    const std::uint64_t what = e.what.load(relaxed), whom = e.whom.load(relaxed);
    const std::uint64_t text = what >> 40 & 0xffff;
    const std::int64_t ms = (times.now_ns() - times.ns(e.start.load(relaxed))) / 1'000'000;
    char which[48] = "", where[160] = "";
    if (const auto sequence = low_of(e.place.load(relaxed)); sequence != 0)
      fmt::format_to_n(which, sizeof which - 1, " #{}", sequence);
    else
      fmt::format_to_n(which, sizeof which - 1, ", peer {}, tag {}", static_cast<std::int32_t>(high_of(whom)),
                       static_cast<std::int32_t>(low_of(whom)));
    if (text < texts)
      fmt::format_to_n(where, sizeof where - 1, " at {}:{}", memory.text_entries()[text].text, low_of(what));
    write_line("tutti[{}] waits for {} ms in {}{}{}", rank, ms,
               detail::name_of(static_cast<detail::operation_kind>(what >> 56)), which, where);
    any = true;
  }
  if (!any) write_line("tutti[{}] waits for no operation", rank);
}

void on_signal(int) noexcept {
  const int error = errno;
  if (const int launcher = launcher_pid.load(std::memory_order_relaxed); launcher > 0) {
    ::kill(launcher, SIGQUIT);
  } else {
    readers_at_signal.fetch_add(1);
    for (const auto& s : slots)
      if (recorder_slot* const one = s.load()) write_pending(one->recorder());
    readers_at_signal.fetch_sub(1);
  }
  errno = error;
}

}  // namespace

void explain_at_signal() noexcept {
  struct sigaction now{};
  if (::sigaction(SIGUSR1, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 ||
      now.sa_handler != SIG_DFL)
    return;
  struct sigaction ours{};
  ours.sa_handler = &on_signal;
  ours.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &ours, nullptr);
}

}  // namespace tutti::flight
