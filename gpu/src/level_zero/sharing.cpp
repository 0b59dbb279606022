// SPDX-License-Identifier: Apache-2.0
// Level Zero IPC: exports memory of this process, and opens memory of others. On Linux a handle begins with a
// descriptor of the exporting process, which the opening process needs as its own. Newer drivers see to that,
// and put the process id into the handle.
#include "level_zero/driver.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <tutti/error.hpp>

namespace tutti::level_zero {
namespace {

using gpu::detail::shared_name;

struct address {
  abi::ipc_memory handle;
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

// Duplicates the other process's descriptor into this process. Returns -1 with the reason in `why`.
int take_descriptor(const address& of, std::string& why) {
  if (of.numbers != process_numbers()) {
    why = "the ranks are in containers that do not see each other's processes";
    return -1;
  }
  int theirs = -1;
  std::memcpy(&theirs, of.handle.bytes, sizeof theirs);
  const auto process = static_cast<int>(::syscall(SYS_pidfd_open, of.process, 0));
  const int taken = process < 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_getfd, process, theirs, 0));
  const int code = errno;
  if (process >= 0) ::close(process);
  if (taken < 0)
    why = fmt::format(
        "the descriptor of process {}'s memory cannot be taken: {} (it needs Linux 5.6, one user, and, where "
        "kernel.yama.ptrace_scope is not 0, CAP_SYS_PTRACE)",
        of.process, std::system_category().message(code));
  return taken;
}

bool names_its_process(const address& n) noexcept {
  for (std::size_t at = sizeof(int); at + sizeof n.process <= sizeof n.handle.bytes; ++at)
    if (std::memcmp(n.handle.bytes + at, &n.process, sizeof n.process) == 0) return true;
  return false;
}

}  // namespace

shared_name level_zero_driver::name_memory(void* start) {
  address n;
  check(calls.ipc_name(native.context, start, &n.handle), "zeMemGetIpcHandle");
  n.process = ::getpid();
  n.numbers = process_numbers();
  return shared_name(n);
}

void* level_zero_driver::open_memory(const shared_name& of) {
  const auto n = of.as<address>();
  const auto open = [this](const abi::ipc_memory& handle, void** opened) {
    return calls.ipc_open(native.context, native.device, handle, 0, opened);
  };
  void* opened = nullptr;
  if (names_its_process(n) && open(n.handle, &opened) == abi::success) return opened;

  std::string why;
  descriptor ours;
  ours.number = take_descriptor(n, why);
  if (ours.number < 0) throw error(errc::not_supported, why);
  ours.file = file_of(ours.number);
  abi::ipc_memory here = n.handle;
  std::memcpy(here.bytes, &ours.number, sizeof ours.number);
  if (const abi::result code = open(here, &opened); code != abi::success) {
    ::close(ours.number);
    check(code, "zeMemOpenIpcHandle");
  }
  const std::lock_guard lock(opened_mutex_);
  opened_.emplace(opened, ours);
  return opened;
}

void level_zero_driver::close_memory(void* opened) noexcept {
  // Until its entry is gone: another loop may open memory at the same address.
  const std::lock_guard lock(opened_mutex_);
  calls.ipc_close(native.context, opened);
  const auto found = opened_.find(opened);
  if (found == opened_.end()) return;
  // Some drivers close the descriptor with the memory, and its number may belong to another file by now.
  if (file_of(found->second.number) == found->second.file) ::close(found->second.number);
  opened_.erase(found);
}

}  // namespace tutti::level_zero
