// SPDX-License-Identifier: Apache-2.0
// CUDA IPC of the stand-in. Other processes open a device's memory by its descriptor. They also open a page
// of words for events of several processes, and for the number of processes that have an allocation open.
// CUDA's rules hold: only starts of allocations have handles, no process opens its own, and memory is closed
// before its owner frees it.
//
// TUTTI_FAKE_CUDA_IPC=refused makes opening fail; =elsewhere opens other memory, as a faulty machine may.
#include "fake_cuda_library.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <utility>

namespace tutti::cuda::fake {
namespace {

constexpr std::size_t most = 1024;

struct page {
  std::uint64_t token;  // identifies the process: its id may be reused
  shared_moment moments[most];
  std::atomic<std::uint64_t> users[most];  // by allocation: processes that have it open
};

// Content of both kinds of handles.
struct name {
  std::uint64_t token = 0;
  std::int32_t process = 0, page = -1, memory = -1;  // descriptors of that process
  std::uint32_t index = 0;                           // in the page's moments or users
  std::uint64_t offset = 0, bytes = 0;
};
static_assert(sizeof(name) <= sizeof(ipc_memory) && sizeof(name) <= sizeof(ipc_event));

page* map_page(int descriptor) {
  void* const at = ::mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return at == MAP_FAILED ? nullptr : static_cast<page*>(at);
}

int open_of(std::int32_t process, std::int32_t descriptor) {
  return ::open(("/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor)).c_str(),
                O_RDWR | O_CLOEXEC);
}

struct opened {
  std::uint32_t index = 0;
  page* of = nullptr;
  context* in = nullptr;
  int times = 0;
};

class processes {
 public:
  static processes& instance() {
    static auto* const all = new processes;  // never destroyed: queued work may access pages at exit
    return *all;
  }

  std::mutex mutex;
  int descriptor = -1;
  page* own = nullptr;
  std::uint32_t moments = 0, allocations = 0;
  std::map<const shared_moment*, name> moment_names;  // of this process
  // The places of own allocations in the page, by their id.
  std::map<std::pair<const context*, std::uint64_t>, std::uint32_t> places;
  std::map<std::pair<std::int32_t, std::uint64_t>, page*> others;  // never unmapped, like `own`
  std::map<std::tuple<std::uint64_t, std::int32_t, std::uint64_t>, void*> addresses;  // token, memory, offset
  std::map<void*, opened> open;

  page* of(const name& n) {
    const std::pair key(n.process, n.token);
    if (const auto known = others.find(key); known != others.end()) return known->second;
    const int fd = open_of(n.process, n.page);
    page* const found = fd < 0 ? nullptr : map_page(fd);
    if (fd >= 0) ::close(fd);
    if (found == nullptr || found->token != n.token) return nullptr;
    return others[key] = found;
  }
  name new_name() const {
    name n;
    n.token = own->token;
    n.process = static_cast<std::int32_t>(::getpid());
    n.page = descriptor;
    return n;
  }

 private:
  processes() {
    descriptor = ::memfd_create("tutti-fake-cuda", MFD_CLOEXEC);
    if (descriptor < 0 || ::ftruncate(descriptor, sizeof(page)) != 0 ||
        (own = map_page(descriptor)) == nullptr)
      std::abort();
    std::random_device random;
    own->token = static_cast<std::uint64_t>(random()) << 32 | random();
  }
};

template <class Handle>
name read(const Handle& h) {
  name n;
  std::memcpy(&n, h.bytes, sizeof n);
  return n;
}
template <class Handle>
void write(Handle& h, const name& n) {
  h = {};
  std::memcpy(h.bytes, &n, sizeof n);
}

bool told(const char* what) {
  const char* const how = std::getenv("TUTTI_FAKE_CUDA_IPC");
  return how != nullptr && std::string(how) == what;
}

constexpr result map_failed = 205;

}  // namespace

shared_moment* new_moment() {
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  if (all.moments == most) return nullptr;
  name n = all.new_name();
  n.index = all.moments++;
  shared_moment* const made = &all.own->moments[n.index];
  all.moment_names[made] = n;
  return made;
}

std::uint64_t users_of(const context& c, std::uint64_t allocation) {
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  const auto place = all.places.find({&c, allocation});
  return place == all.places.end() ? 0 : all.own->users[place->second].load(std::memory_order_acquire);
}

void forget_names() {
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  all.places.clear();
}

}  // namespace tutti::cuda::fake

using namespace tutti::cuda::fake;

TUTTI_EXPORT result cuIpcGetMemHandle(ipc_memory* handle, device_pointer p) {
  if (const result code = wrong("cuIpcGetMemHandle"); code != success) return code;
  const auto& memory = current.back()->queues->memory();
  const auto block = memory.find(pointer(p));
  if (block.is != tutti::emulated::arena::kind::own || block.base != pointer(p))
    return lib().misused("cuIpcGetMemHandle of what is not the start of an allocation", error_invalid_value);
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  const auto [place, is_new] = all.places.try_emplace({current.back(), block.id}, all.allocations);
  if (is_new && all.allocations++ == most) return error_out_of_memory;
  name n = all.new_name();
  n.memory = memory.descriptor();
  n.index = place->second;
  n.offset = static_cast<std::size_t>(block.base - static_cast<std::byte*>(memory.base()));
  n.bytes = block.bytes;
  write(*handle, n);
  return success;
}

TUTTI_EXPORT result cuIpcOpenMemHandle_v2(device_pointer* p, ipc_memory handle, unsigned flags) {
  if (const result code = wrong("cuIpcOpenMemHandle"); code != success) return code;
  if (flags != ipc_lazy_peer_access)
    return lib().misused("cuIpcOpenMemHandle without its flag", error_invalid_value);
  const name n = read(handle);
  if (n.process == ::getpid())
    return lib().misused("cuIpcOpenMemHandle in the process that named it", invalid_context);
  if (told("refused")) return map_failed;
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  void*& address = all.addresses[{n.token, n.memory, n.offset}];
  if (address == nullptr) {
    page* const of = all.of(n);
    const int fd =
        told("elsewhere") ? ::memfd_create("elsewhere", MFD_CLOEXEC) : open_of(n.process, n.memory);
    if (told("elsewhere") && ::ftruncate(fd, static_cast<off_t>(n.offset + n.bytes)) != 0) return map_failed;
    address =
        of == nullptr || fd < 0 ? nullptr : current.back()->queues->memory().adopt(fd, n.offset, n.bytes);
    if (fd >= 0) ::close(fd);
    if (address == nullptr) return map_failed;
    all.open[address] = opened{n.index, of, current.back(), 0};
    of->users[n.index].fetch_add(1, std::memory_order_acq_rel);
  }
  ++all.open[address].times;
  *p = reinterpret_cast<device_pointer>(address);
  return success;
}

TUTTI_EXPORT result cuIpcCloseMemHandle(device_pointer p) {
  if (current.empty()) return lib().misused("cuIpcCloseMemHandle without a context", invalid_context);
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  const auto found = all.open.find(pointer(p));
  if (found == all.open.end())
    return lib().misused("cuIpcCloseMemHandle of what is not open", error_invalid_value);
  if (--found->second.times > 0) return success;
  const opened gone = found->second;
  all.open.erase(found);
  std::erase_if(all.addresses, [p](const auto& a) { return a.second == pointer(p); });
  gone.in->queues->memory().release(pointer(p), tutti::emulated::arena::kind::adopted);
  gone.of->users[gone.index].fetch_sub(1, std::memory_order_acq_rel);
  return success;
}

TUTTI_EXPORT result cuIpcGetEventHandle(ipc_event* handle, event* e) {
  if (const result code = wrong_handle("cuIpcGetEventHandle", e); code != success) return code;
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  const auto found = all.moment_names.find(e->shared);
  if (found == all.moment_names.end())
    return lib().misused("cuIpcGetEventHandle of an event that is not for several processes",
                         error_invalid_value);
  write(*handle, found->second);
  return success;
}

TUTTI_EXPORT result cuIpcOpenEventHandle(event** e, ipc_event handle) {
  if (const result code = wrong("cuIpcOpenEventHandle"); code != success) return code;
  const name n = read(handle);
  if (n.process == ::getpid())
    return lib().misused("cuIpcOpenEventHandle in the process that named it", invalid_context);
  if (told("refused")) return map_failed;
  processes& all = processes::instance();
  const std::lock_guard lock(all.mutex);
  page* const of = all.of(n);
  if (of == nullptr || n.index >= most) return map_failed;
  *e = lib().add(new event{current.back(), {}, &of->moments[n.index]});
  return success;
}
