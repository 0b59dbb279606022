// SPDX-License-Identifier: Apache-2.0
// Readiness of hot sockets by multishot polls of an io_uring. Unlike epoll, it needs no system call to find
// that there is no event: that is one load of shared memory for any number of sockets. The kernel is never
// given a user's buffer, so operations can be cancelled and destroyed synchronously.
//
// All else is watched by epoll. A poll of a ring holds its file: the kernel closes the socket of a killed process
// only after it has wound up the ring, two ticks of its timer later (8 ms at 250 Hz), when the peer notices.
#include "core/backend.hpp"

#ifdef TUTTI_HAVE_IO_URING

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

namespace tutti::core {
namespace {

constexpr unsigned ring_entries = 256;
constexpr std::uint64_t ignored = ~std::uint64_t{0};  // completions of removals
// The kernel gives the memory of a closed ring to the next one, on any thread. This makes that order visible
// to ThreadSanitizer, which cannot see it in liburing's own system calls.
std::atomic<unsigned> rings_closed{0};
constexpr short interest = POLLIN | POLLOUT | POLLRDHUP;

// Thrown by the constructor where io_uring cannot be used.
struct refusal {
  int code;  // the kernel's, or 0
  std::string why;
};

class uring_backend final : public backend {
 public:
  // The best flags first. Kernels: DEFER_TASKRUN 6.1, SINGLE_ISSUER 6.0, COOP_TASKRUN and TASKRUN_FLAG 5.19.
  uring_backend() {
    static constexpr unsigned ladder[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0U};
    int code = -EINVAL;
    for (const unsigned flags : ladder) {
      io_uring_params parameters{};
      parameters.flags = flags;
      code = io_uring_queue_init_params(ring_entries, &ring_, &parameters);
      if (code != -EINVAL) break;
    }
    (void)rings_closed.load(std::memory_order_acquire);
    if (code != 0) refuse("io_uring_setup failed", code);
    try {
      // The kernel does not say whether it has multishot polls: they came with this feature.
      if ((ring_.features & IORING_FEAT_RSRC_TAGS) == 0)
        throw refusal{0, "this kernel has no multishot poll (Linux 5.13)"};
      make_event();
      watch_doorbell(event_.get());
    } catch (...) {
      close_ring();
      throw;
    }
    // Saves a descriptor look-up per call; older kernels refuse, harmlessly.
    io_uring_register_ring_fd(&ring_);
    set_notify(false);
  }
  ~uring_backend() override { close_ring(); }

  const char* name() const noexcept override { return "io_uring"; }

  handle watch_hot(int fd, watcher& w) override {
    const handle h = insert(fd, w, true);
    if (!submit_poll(fd, h)) {
      remove(h);
      throw error(errc::resources, fmt::format("io_uring cannot watch descriptor {}", fd));
    }
    return h;
  }

  void unwatch(handle h) noexcept override {
    const watcher* const w = watched_.find(h);
    if (w == nullptr) return;
    if (!w->hot) return backend::unwatch(h);
    remove(h);
    if (io_uring_sqe* entry = next_entry()) {
      io_uring_prep_poll_remove(entry, h);
      entry->user_data = ignored;
      // At once: the request holds the file open, and its owner is about to close it.
      io_uring_submit_and_get_events(&ring_);
    }
  }

  bool poll() noexcept override {
    if (is_round_of_all() && collect()) return true;
    if (!is_hot_round()) return false;
    if ((*ring_.sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) io_uring_get_events(&ring_);
    return collect_hot();
  }

  bool arm() noexcept override {
    set_notify(true);
    // Asio checks the level when it starts to wait, so this also removes earlier edges.
    bool any = collect();
    if (hot_ > 0) {
      io_uring_get_events(&ring_);
      any |= collect_hot();
    }
    return any;
  }
  void disarm() noexcept override { set_notify(false); }

 private:
  // The kernel signals it, and epoll watches it: watching a DEFER_TASKRUN ring itself loses completions.
  void make_event() {
    event_ = base::unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!event_) refuse("cannot open an eventfd", -errno);
    const int code = io_uring_register_eventfd(&ring_, event_.get());
    if (code != 0) refuse("cannot register an eventfd", code);
  }
  void close_ring() noexcept {
    rings_closed.fetch_add(1, std::memory_order_release);
    io_uring_queue_exit(&ring_);
  }

  [[noreturn]] static void refuse(const char* what, int code) {
    throw refusal{-code, fmt::format("{}: {}{}", what, std::strerror(-code), hint(code))};
  }
  static const char* hint(int code) noexcept {
    if (code == -EPERM)
      return " (forbidden by a container's seccomp filter or by sysctl kernel.io_uring_disabled)";
    if (code == -ENOSYS) return " (this kernel has none)";
    if (code == -ENOMEM)
      return " (raise the limit of locked memory, `ulimit -l`, or the container's of memory)";
    return "";
  }

  void set_notify(bool on) noexcept { io_uring_cq_eventfd_toggle(&ring_, on); }

  io_uring_sqe* next_entry() noexcept {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry != nullptr) return entry;
    io_uring_submit(&ring_);
    return io_uring_get_sqe(&ring_);
  }

  bool submit_poll(int fd, handle h) noexcept {
    io_uring_sqe* entry = next_entry();
    if (entry == nullptr) return false;
    io_uring_prep_poll_multishot(entry, fd, static_cast<unsigned short>(interest));
    entry->user_data = h;
    return io_uring_submit(&ring_) >= 0;
  }

  bool collect_hot() noexcept {
    bool any = false;
    for (int batch = 0; batch < 64; ++batch) {
      io_uring_cqe* completion = nullptr;
      if (io_uring_peek_cqe(&ring_, &completion) != 0 || completion == nullptr) break;
      const std::uint64_t h = completion->user_data;
      const int events = completion->res;
      const bool more = (completion->flags & IORING_CQE_F_MORE) != 0;
      io_uring_cqe_seen(&ring_, completion);
      any = true;
      if (h == ignored) continue;
      watcher* w = watched_.find(h);
      if (w == nullptr || events == -ECANCELED) continue;
      // The kernel ends a multishot poll when the completion queue overflows. Start it again before the
      // callback, which may read until it would block and must not miss later events.
      if (!more) submit_poll(w->watched_fd, h);
      const bool broken = events < 0 || (events & (POLLERR | POLLHUP)) != 0;
      w->on_ready(broken || (events & (POLLIN | POLLRDHUP)) != 0, broken || (events & POLLOUT) != 0);
    }
    return any;
  }

  io_uring ring_{};
  base::unique_fd event_;
};

}  // namespace

std::unique_ptr<backend> make_uring_backend(std::string& why, int* code) {
  try {
    return std::make_unique<uring_backend>();
  } catch (const refusal& r) {
    why = r.why;
    if (code != nullptr) *code = r.code;
    return nullptr;
  }
}

}  // namespace tutti::core

#else

#include <cerrno>

namespace tutti::core {

std::unique_ptr<backend> make_uring_backend(std::string& why, int* code) {
  if (code != nullptr) *code = ENOSYS;
  why = "this build of tutti has no io_uring (install liburing-dev and configure again)";
  return nullptr;
}

}  // namespace tutti::core

#endif
