// SPDX-License-Identifier: Apache-2.0
// Level Zero IPC: exports memory of this process, and opens memory of others. On Linux a handle begins with a
// descriptor of the exporting process, which the opening process needs as its own. Newer drivers see to that,
// and put the process id into the handle.
#include "level_zero/level_zero_api.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>

namespace tutti::level_zero {
using namespace gpu::detail;
namespace {

struct address {
  ze_ipc_mem_handle_t handle{};
  std::int32_t process = 0;
  std::uint64_t numbers = 0;  // PID namespace of `process`
};

std::uint64_t file_of(int descriptor) noexcept {
  struct stat s{};
  return ::fstat(descriptor, &s) == 0 ? s.st_ino : 0;
}
std::uint64_t process_numbers() noexcept {
  struct stat s{};
  return ::stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 0;
}

// Duplicates the other process's descriptor into this process.
int take_descriptor(const address& of) {
  if (of.numbers != process_numbers())
    throw error(errc::not_supported, "the ranks are in containers that do not see each other's processes");
  int theirs = -1;
  std::memcpy(&theirs, of.handle.data, sizeof theirs);
  const auto process = static_cast<int>(::syscall(SYS_pidfd_open, of.process, 0));
  const int taken = process < 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_getfd, process, theirs, 0));
  const int code = errno;
  if (process >= 0) ::close(process);
  if (taken < 0)
    throw error(
        errc::not_supported,
        fmt::format("the descriptor of process {}'s memory cannot be taken: {} (it needs Linux 5.6, one "
                    "user, and, where kernel.yama.ptrace_scope is not 0, CAP_SYS_PTRACE)",
                    of.process, std::system_category().message(code)));
  return taken;
}

bool names_its_process(const address& n) noexcept {
  for (std::size_t at = sizeof(int); at + sizeof n.process <= sizeof n.handle.data; ++at)
    if (std::memcmp(n.handle.data + at, &n.process, sizeof n.process) == 0) return true;
  return false;
}

class memory_sharing final : public process_sharing {
 public:
  explicit memory_sharing(const device_calls& of) : of_(of) {}

 private:
  // The descriptor of opened memory, kept while that is open.
  struct descriptor {
    int number = -1;
    std::uint64_t file = 0;
  };

  // A Level Zero event may be reset only when no process waits for it.
  bool has_events() const noexcept override { return false; }
  shared_name name_memory(void* start) override {
    address n;
    of_.check(of_.calls.zeMemGetIpcHandle(of_.native.context, start, &n.handle), "zeMemGetIpcHandle");
    n.process = ::getpid();
    n.numbers = process_numbers();
    return shared_name(n);
  }
  void* open_memory(const shared_name& of) override {
    const auto n = of.as<address>();
    const auto open = [this](const ze_ipc_mem_handle_t& handle, void** opened) {
      return of_.calls.zeMemOpenIpcHandle(of_.native.context, of_.native.device, handle, 0, opened);
    };
    void* opened = nullptr;
    if (names_its_process(n) && open(n.handle, &opened) == ZE_RESULT_SUCCESS) return opened;

    descriptor ours;
    ours.number = take_descriptor(n);
    ours.file = file_of(ours.number);
    ze_ipc_mem_handle_t here = n.handle;
    std::memcpy(here.data, &ours.number, sizeof ours.number);
    if (const ze_result_t code = open(here, &opened); code != ZE_RESULT_SUCCESS) {
      ::close(ours.number);
      of_.check(code, "zeMemOpenIpcHandle");
    }
    const std::lock_guard lock(mutex_);
    opened_.emplace(opened, ours);
    return opened;
  }
  void close_memory(void* opened) noexcept override {
    // Until its entry is gone: another loop may open memory at the same address.
    const std::lock_guard lock(mutex_);
    of_.calls.zeMemCloseIpcHandle(of_.native.context, opened);
    const auto found = opened_.find(opened);
    if (found == opened_.end()) return;
    // Some drivers close the descriptor with the memory, and its number may belong to another file by now.
    if (file_of(found->second.number) == found->second.file) ::close(found->second.number);
    opened_.erase(found);
  }

  const device_calls of_;
  std::mutex mutex_;
  std::multimap<void*, descriptor> opened_;  // two loops may open the same memory
};

}  // namespace

std::shared_ptr<process_sharing> make_sharing(const device_calls& of) {
  return std::make_shared<memory_sharing>(of);
}

}  // namespace tutti::level_zero
