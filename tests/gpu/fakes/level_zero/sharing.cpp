// SPDX-License-Identifier: Apache-2.0
// IPC. Processes map each other's device memory by its descriptor, with which a handle begins. As in drivers
// for Linux, the descriptor must belong to the process that opens the handle. Memory is closed before its
// owner frees it, and only the owner frees it.
//
// TUTTI_FAKE_LEVEL_ZERO_IPC=opaque: the driver takes the descriptor from the process that the handle names,
// as newer drivers do. =refused: opening fails. =elsewhere: it opens other memory, as a faulty machine may.
#include "level_zero/objects.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tutti::fakes {
namespace {

struct name {
  std::int32_t descriptor = -1;
  std::int32_t process = 0;  // 0: the descriptor belongs to the opening process
  std::uint64_t file = 0;
  std::uint64_t offset = 0, bytes = 0;
};
static_assert(sizeof(name) <= sizeof(ze_ipc_mem_handle_t));

bool told(const char* what) {
  const char* const how = std::getenv("TUTTI_FAKE_LEVEL_ZERO_IPC");
  return how != nullptr && std::string(how) == what;
}

std::uint64_t file_of(int descriptor) {
  struct stat s{};
  return ::fstat(descriptor, &s) == 0 ? s.st_ino : 0;
}

// Opens the file anew, so that it has its own lock.
int reopen(int descriptor) {
  return ::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDWR | O_CLOEXEC);
}

int descriptor_for(const name& n) {
  if (told("elsewhere")) {
    const int other = ::memfd_create("elsewhere", MFD_CLOEXEC);
    return ::ftruncate(other, static_cast<off_t>(n.offset + n.bytes)) == 0 ? other : -1;
  }
  int given = n.descriptor;
  if (n.process != 0) {
    const auto process = static_cast<int>(::syscall(SYS_pidfd_open, n.process, 0));
    given = static_cast<int>(::syscall(SYS_pidfd_getfd, process, n.descriptor, 0));
    ::close(process);
  }
  const int ours = given >= 0 && file_of(given) == n.file ? reopen(given) : -1;
  if (n.process != 0 && given >= 0) ::close(given);
  return ours;
}

std::size_t offset_in(const emulated::arena& memory, const emulated::arena::block& block) {
  return block.base == nullptr
             ? 0
             : static_cast<std::size_t>(block.base - static_cast<const std::byte*>(memory.base()));
}

struct flock range(const name& n, short kind) {
  struct flock l{};
  l.l_type = kind;
  l.l_whence = SEEK_SET;
  l.l_start = static_cast<off_t>(n.offset);
  l.l_len = static_cast<off_t>(n.bytes);
  return l;
}

}  // namespace

bool open_elsewhere(const emulated::arena& memory, const emulated::arena::block& block) {
  name n;
  n.offset = offset_in(memory, block);
  n.bytes = block.bytes;
  struct flock l = range(n, F_WRLCK);
  return ::fcntl(memory.descriptor(), F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

ze_result_t ipc_name(ze_context_handle_t, const void* memory, ze_ipc_mem_handle_t* handle) {
  for (const auto& gpu : global().gpus) {
    const emulated::arena& of = gpu.queues->memory();
    const auto block = of.find(memory);
    if (block.is != emulated::arena::kind::own || block.base != memory) continue;
    name n;
    n.descriptor = of.descriptor();
    n.process = told("opaque") ? ::getpid() : 0;
    n.file = file_of(n.descriptor);
    n.offset = offset_in(of, block);
    n.bytes = block.bytes;
    *handle = {};
    std::memcpy(handle->data, &n, sizeof n);
    return ZE_RESULT_SUCCESS;
  }
  return global().misused("zeMemGetIpcHandle of what is not the start of an allocation");
}

ze_result_t ipc_open(ze_context_handle_t, ze_device_handle_t d, ze_ipc_mem_handle_t handle,
                     ze_ipc_memory_flags_t flags, void** opened) {
  name n;
  std::memcpy(&n, handle.data, sizeof n);
  for (const auto& gpu : global().gpus)
    if (n.file == file_of(gpu.queues->memory().descriptor()))
      return global().misused("zeMemOpenIpcHandle in the process that made it");
  if (flags != 0) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  if (told("refused")) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  if (d->queues->failed()) return ZE_RESULT_ERROR_DEVICE_LOST;
  const int lock = descriptor_for(n);
  if (lock < 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  struct flock l = range(n, F_RDLCK);
  *opened =
      ::fcntl(lock, F_OFD_SETLK, &l) == 0 ? d->queues->memory().adopt(lock, n.offset, n.bytes) : nullptr;
  if (*opened == nullptr) {
    ::close(lock);
    return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  const std::lock_guard guard(global().mutex);
  global().opened[*opened] = {d, lock};
  return ZE_RESULT_SUCCESS;
}

ze_result_t ipc_close(ze_context_handle_t, const void* memory) {
  state& s = global();
  std::unique_lock guard(s.mutex);
  const auto found = s.opened.find(const_cast<void*>(memory));
  if (found == s.opened.end()) {
    guard.unlock();
    return s.misused("zeMemCloseIpcHandle of what is not open");
  }
  const auto [device, lock] = found->second;
  s.opened.erase(found);
  device->queues->memory().release(memory, emulated::arena::kind::adopted);
  ::close(lock);
  return ZE_RESULT_SUCCESS;
}

}  // namespace tutti::fakes
