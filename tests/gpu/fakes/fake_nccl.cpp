// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnccl. Ranks are threads of one process, each with a device of the stand-in for libcuda.
// As with the kernels of NCCL, a stream stops in a collective until the streams of all ranks come, or until
// the communicator is aborted. As on one host, destroying and aborting wait until all ranks do so, and for the device.
#include "fake_nccl.hpp"
#include "fake_cuda.hpp"
#include "host_reduction.hpp"
#include "kernels/host_kernels.hpp"
#include "nccl/nccl_api.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#define TUTTI_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace tutti::nccl::abi;
using tutti::element_type;
using tutti::reduce_kind;

// Functions of the stand-in for libcuda, which the program has opened.
struct cuda_stand_in {
  decltype(&tutti_fake_cuda_run) run = nullptr;
  decltype(&tutti_fake_cuda_wait) wait = nullptr;
  decltype(&tutti_fake_cuda_device) device_of = nullptr;
  decltype(&tutti_fake_cuda_changed) changed = nullptr;
  decltype(&tutti_fake_cuda_reach) reach = nullptr;
  decltype(&tutti_fake_cuda_current_device) current_device = nullptr;
  decltype(&tutti_fake_cuda_note_free) note_free = nullptr;

  cuda_stand_in() {
    void* const library = ::dlopen(std::getenv("TUTTI_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) std::abort();
    const auto find = [library]<class F>(F*& to, const char* name) {
      to = reinterpret_cast<F*>(::dlsym(library, name));
      if (to == nullptr) std::abort();
    };
    find(run, "tutti_fake_cuda_run");
    find(wait, "tutti_fake_cuda_wait");
    find(device_of, "tutti_fake_cuda_device");
    find(changed, "tutti_fake_cuda_changed");
    find(reach, "tutti_fake_cuda_reach");
    find(current_device, "tutti_fake_cuda_current_device");
    find(note_free, "tutti_fake_cuda_note_free");
  }
};
const cuda_stand_in& cuda() {
  static const cuda_stand_in instance;
  return instance;
}

enum class what : int { all_reduce, reduce, broadcast, all_gather, reduce_scatter };

struct operation {  // one rank's part of a collective
  what kind{};
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = 0;
  double factor = 1;
  int root = 0;
  // Not the stream, which may be gone when other ranks finish with this part.
  int device = 0;
  std::atomic<std::uint64_t>* released = nullptr;
};
struct collective {
  std::vector<operation> parts;
  std::vector<bool> here;
  int arrived = 0;
};
struct message_batch {
  std::atomic<std::uint64_t>* released = nullptr;
  int left = 0;
  int device = 0;
};
struct message {
  const void* data;
  std::size_t bytes;
  std::shared_ptr<message_batch> of;
};

struct world {
  int size = 0;
  int joined = 0;
  int left = 0;  // ranks that have aborted or destroyed it
  std::set<int> devices;
  bool duplicate = false;
  std::map<std::uint64_t, collective> collectives;
  std::map<std::pair<int, int>, std::deque<message>> sends, receives;  // by source and destination
};

struct scaled_sum {
  double factor;
};

}  // namespace

struct tutti::nccl::abi::communicator {
  std::shared_ptr<world> of;
  int rank = 0;
  std::uint64_t sequence = 0;
  bool aborted = false;
  bool freed = false;
  // Words that its streams wait for, with their devices.
  std::vector<std::pair<std::atomic<std::uint64_t>*, int>> waiting;
  std::map<int, scaled_sum> operations;
};

namespace {

struct library {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<world>> worlds;
  std::uint64_t next_id = 1;
  bool blocked = false;
  bool ignores_revocations = false;
  int refused_device = -1;
  int given_up = 0;  // how often ncclCommInitRank was
  int hold = nccl_hold_none;
  int held = 0;           // calls that are held now
  int interruptions = 0;  // aborts and revocations
  int aborts = 0;
  int misuses = 0;
  std::chrono::milliseconds slow_ends{0};
  int ending = 0;  // threads in ncclCommAbort or ncclCommRevoke
  result fail_next = success;
  int communicators = 0;
  std::atomic<const char*> last_error{""};
  std::vector<std::unique_ptr<communicator>> kept;
  std::deque<std::atomic<std::uint64_t>> words;  // never freed: streams refer to them
};
library& lib() {
  static auto* const instance = new library;  // never destroyed: threads left behind may return at exit
  return *instance;
}

element_type type_named(int type) {
  switch (type) {
    case int8:
      return element_type::int8;
    case uint8:
      return element_type::uint8;
    case int32:
      return element_type::int32;
    case uint32:
      return element_type::uint32;
    case int64:
      return element_type::int64;
    case uint64:
      return element_type::uint64;
    case float16:
      return element_type::float16;
    case float32:
      return element_type::float32;
    case float64:
      return element_type::float64;
    default:
      return element_type::bfloat16;
  }
}
reduce_kind reduction_named(int op) {
  constexpr reduce_kind kinds[] = {reduce_kind::sum, reduce_kind::product, reduce_kind::max, reduce_kind::min,
                                   reduce_kind::avg};
  return op <= average ? kinds[op] : reduce_kind::premul_sum;
}

void release(std::atomic<std::uint64_t>* word, int device) {
  word->store(1, std::memory_order_release);
  cuda().changed(device);
}

// Moves the data once all parts are there, on the thread of the last. Requires the lock.
void carry_out(collective& c) {
  const std::size_t n = c.parts.size();
  const operation& first = c.parts[0];
  const std::size_t e = tutti::gpu::kernels::bytes_of(type_named(first.type));
  const auto at = [](const operation& o, const void* memory, std::size_t bytes) {
    return static_cast<std::byte*>(cuda().reach(o.device, memory, bytes));
  };
  const auto reduce = [&](std::size_t offset, std::size_t count, std::vector<void*> out) {
    std::vector<const void*> in;
    std::vector<double> factors;
    for (const operation& o : c.parts) {
      in.push_back(at(o, static_cast<const std::byte*>(o.in) + offset * e, count * e));
      if (reduction_named(o.op) == reduce_kind::premul_sum) factors.push_back(o.factor);
    }
    for (void* p : out)
      if (p == nullptr) return;
    for (const void* p : in)
      if (p == nullptr) return;
    tutti::fakes::reduce_on_host(reduction_named(first.op), type_named(first.type), in, out, factors, count,
                                 static_cast<int>(n));
  };
  const auto copy = [](void* to, const void* from, std::size_t bytes) {
    if (to != nullptr && from != nullptr) std::memmove(to, from, bytes);
  };
  if (first.count > 0) switch (first.kind) {
      case what::all_reduce: {
        std::vector<void*> out;
        for (const operation& o : c.parts) out.push_back(at(o, o.out, o.count * e));
        reduce(0, first.count, out);
        break;
      }
      case what::reduce: {
        const operation& root = c.parts[static_cast<std::size_t>(first.root)];
        reduce(0, first.count, {at(root, root.out, root.count * e)});
        break;
      }
      case what::reduce_scatter:
        for (std::size_t r = 0; r < n; ++r)
          reduce(r * first.count, first.count, {at(c.parts[r], c.parts[r].out, first.count * e)});
        break;
      case what::broadcast: {
        const operation& root = c.parts[static_cast<std::size_t>(first.root)];
        for (const operation& o : c.parts)
          copy(at(o, o.out, o.count * e), at(root, root.in, root.count * e), o.count * e);
        break;
      }
      case what::all_gather:
        for (const operation& to : c.parts)
          for (std::size_t r = 0; r < n; ++r)
            copy(at(to, static_cast<std::byte*>(to.out) + r * first.count * e, first.count * e),
                 at(c.parts[r], c.parts[r].in, first.count * e), first.count * e);
        break;
    }
  for (const operation& o : c.parts) release(o.released, o.device);
}

struct arrival {
  communicator* comm;
  std::shared_ptr<world> of;
  int rank;
  std::uint64_t sequence;
  operation part;
};

void arrive(void* data) {
  const std::unique_ptr<arrival> a(static_cast<arrival*>(data));
  const std::lock_guard lock(lib().mutex);
  collective& c = a->of->collectives[a->sequence];
  c.parts.resize(static_cast<std::size_t>(a->of->size));
  c.parts[static_cast<std::size_t>(a->rank)] = a->part;
  if (++c.arrived < a->of->size) return;
  carry_out(c);
  a->of->collectives.erase(a->sequence);
}

// Counts uses of freed communicators. Every call begins with this, under the lock.
void use(const communicator* c) {
  if (c != nullptr && c->freed) ++lib().misuses;
}

// Holds the caller if the test asks for that, until a communicator is aborted or revoked, or the test stops
// it.
void hold(int where) {
  std::unique_lock lock(lib().mutex);
  if (lib().hold != where) return;
  ++lib().held;
  const int before = lib().interruptions;
  lib().changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(60),
                           [&] { return lib().hold != where || lib().interruptions != before; });
  --lib().held;
}

// The beginning of every call that enqueues. Returns success if the call may go on.
result enter(communicator* c, std::unique_lock<std::mutex>& lock) {
  use(c);
  if (const result r = std::exchange(lib().fail_next, success); r != success) {
    lib().last_error = "as the test wanted";
    return r;
  }
  lib().changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(60),
                           [c] { return !lib().blocked || c->aborted; });
  return c->aborted ? invalid_usage : success;
}

result enqueue(communicator* c, operation part, void* stream) {
  hold(nccl_hold_entry);
  std::unique_lock lock(lib().mutex);
  if (const result r = enter(c, lock); r != success) return r;
  if (const auto made = c->operations.find(part.op); made != c->operations.end())
    part.factor = made->second.factor;
  part.released = &lib().words.emplace_back(0);
  part.device = cuda().device_of(stream);
  c->waiting.emplace_back(part.released, part.device);
  const auto* const word = part.released;
  auto* const a = new arrival{c, c->of, c->rank, c->sequence++, part};
  lock.unlock();
  cuda().run(stream, arrive, a);
  cuda().wait(stream, reinterpret_cast<const std::uint64_t*>(word));
  return success;
}

// ---- messages ----

struct call_part {
  bool sends;
  const void* data;
  std::size_t bytes;
  int peer;
  communicator* comm;
  void* stream;
};
thread_local int group_depth = 0;
thread_local std::vector<call_part> group_parts;

struct batch_arrival {
  std::shared_ptr<world> of;
  int rank;
  std::vector<call_part> parts;
  std::shared_ptr<message_batch> batch;
};

void part_done(const message& m) {
  if (--m.of->left == 0) release(m.of->released, m.of->device);
}

void arrive_batch(void* data) {
  const std::unique_ptr<batch_arrival> a(static_cast<batch_arrival*>(data));
  const std::lock_guard lock(lib().mutex);
  for (const call_part& p : a->parts) {
    const std::pair<int, int> way = p.sends ? std::pair(a->rank, p.peer) : std::pair(p.peer, a->rank);
    (p.sends ? a->of->sends : a->of->receives)[way].push_back({p.data, p.bytes, a->batch});
    auto &sends = a->of->sends[way], &receives = a->of->receives[way];
    while (!sends.empty() && !receives.empty()) {
      const message from = sends.front(), to = receives.front();
      sends.pop_front();
      receives.pop_front();
      const std::size_t bytes = std::min(from.bytes, to.bytes);
      void* const target = cuda().reach(to.of->device, to.data, bytes);
      const void* const source = cuda().reach(from.of->device, from.data, bytes);
      if (target != nullptr && source != nullptr) std::memmove(target, source, bytes);
      part_done(from);
      part_done(to);
    }
  }
}

result end_group() {
  const std::vector<call_part> parts = std::exchange(group_parts, {});
  if (parts.empty()) return success;
  communicator* const c = parts[0].comm;
  hold(nccl_hold_entry);
  std::unique_lock lock(lib().mutex);
  if (const result r = enter(c, lock); r != success) return r;
  auto batch = std::make_shared<message_batch>();
  batch->released = &lib().words.emplace_back(0);
  batch->left = static_cast<int>(parts.size());
  void* const stream = parts[0].stream;
  batch->device = cuda().device_of(stream);
  c->waiting.emplace_back(batch->released, batch->device);
  auto* const a = new batch_arrival{c->of, c->rank, parts, batch};
  lock.unlock();
  cuda().run(stream, arrive_batch, a);
  cuda().wait(stream, reinterpret_cast<const std::uint64_t*>(batch->released));
  return success;
}

result message_part(call_part p) {
  {
    const std::lock_guard lock(lib().mutex);
    use(p.comm);
  }
  group_parts.push_back(p);
  return group_depth == 0 ? end_group() : success;
}

// Waits for all ranks of a new communicator, as NCCL does.
result join(const std::string& name, int size, int rank, communicator** made) {
  if (size > 1) hold(nccl_hold_init);
  std::unique_lock lock(lib().mutex);
  if (cuda().current_device() == lib().refused_device) {
    lib().last_error = "no room for the stack";
    return unhandled_cuda_error;
  }
  std::shared_ptr<world>& place = lib().worlds[name];
  if (!place) place = std::make_shared<world>();
  const std::shared_ptr<world> w = place;
  w->size = size;
  if (!w->devices.insert(cuda().current_device()).second) w->duplicate = true;
  ++w->joined;
  lib().changed.notify_all();
  const int before = lib().given_up;
  lib().changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(60),
                           [&] { return w->joined >= size || w->duplicate || lib().given_up != before; });
  if (w->duplicate) {
    lib().last_error = "Duplicate GPU detected";
    return invalid_usage;
  }
  if (w->joined < size) return system_error;
  // Never freed: another thread may be in a call when a communicator ends.
  *made = lib().kept.emplace_back(std::make_unique<communicator>()).get();
  (*made)->of = w;
  (*made)->rank = rank;
  ++lib().communicators;
  return success;
}

// Releases the streams and callers that wait in `c`. Requires the lock.
void stop(communicator* c) {
  c->aborted = true;
  ++lib().interruptions;
  for (const auto& [word, device] : c->waiting)
    if (word->load() == 0) release(word, device);
  lib().changed.notify_all();
}

void free_now(communicator* c) {
  use(c);
  c->freed = true;
  stop(c);
  --lib().communicators;
  ++c->of->left;
}
// The other part of an abort, or of destroying.
void wait_for_others(const communicator* c, std::unique_lock<std::mutex>& lock) {
  const bool all = lib().changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(8),
                                            [of = c->of] { return of->left >= of->size; });
  if (!all) ++lib().misuses;
}

// Delays the return of an abort or a revocation, which has already released the others.
void finish_ending(std::unique_lock<std::mutex>& lock) {
  ++lib().ending;
  const auto began = std::chrono::system_clock::now();
  while (std::chrono::system_clock::now() < began + lib().slow_ends)
    lib().changed.wait_until(lock, began + lib().slow_ends);
  --lib().ending;
}

}  // namespace

// ---- controls for tests ----

TUTTI_EXPORT void tutti_fake_nccl_reset(void) {
  const std::lock_guard lock(lib().mutex);
  lib().worlds.clear();
  lib().blocked = false;
  lib().fail_next = success;
  lib().communicators = 0;
  lib().ignores_revocations = false;
  lib().refused_device = -1;
  lib().hold = nccl_hold_none;
  lib().aborts = lib().misuses = 0;
  lib().slow_ends = {};
}
TUTTI_EXPORT void tutti_fake_nccl_block_calls(int on) {
  const std::lock_guard lock(lib().mutex);
  lib().blocked = on != 0;
  lib().changed.notify_all();
}
TUTTI_EXPORT void tutti_fake_nccl_fail_next(int code) {
  const std::lock_guard lock(lib().mutex);
  lib().fail_next = code;
}
TUTTI_EXPORT void tutti_fake_nccl_refuse_device(int device) {
  const std::lock_guard lock(lib().mutex);
  lib().refused_device = device;
}
TUTTI_EXPORT void tutti_fake_nccl_give_up_joins(void) {
  const std::lock_guard lock(lib().mutex);
  ++lib().given_up;
  lib().changed.notify_all();
}
TUTTI_EXPORT void tutti_fake_nccl_hold(int where) {
  const std::lock_guard lock(lib().mutex);
  lib().hold = where;
  lib().changed.notify_all();
}
TUTTI_EXPORT int tutti_fake_nccl_held(void) {
  const std::lock_guard lock(lib().mutex);
  return lib().held;
}
TUTTI_EXPORT void tutti_fake_nccl_ignore_revocations(int on) {
  const std::lock_guard lock(lib().mutex);
  lib().ignores_revocations = on != 0;
}
TUTTI_EXPORT void tutti_fake_nccl_slow_ends(int ms) {
  const std::lock_guard lock(lib().mutex);
  lib().slow_ends = std::chrono::milliseconds(ms);
  lib().changed.notify_all();
}
TUTTI_EXPORT int tutti_fake_nccl_ending(void) {
  const std::lock_guard lock(lib().mutex);
  return lib().ending;
}
TUTTI_EXPORT int tutti_fake_nccl_aborts(void) {
  const std::lock_guard lock(lib().mutex);
  return lib().aborts;
}
TUTTI_EXPORT int tutti_fake_nccl_misuses(void) {
  const std::lock_guard lock(lib().mutex);
  return lib().misuses;
}
TUTTI_EXPORT int tutti_fake_nccl_communicators(void) {
  const std::lock_guard lock(lib().mutex);
  return lib().communicators;
}

// ---- NCCL's calls ----

TUTTI_EXPORT result ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}
TUTTI_EXPORT const char* ncclGetErrorString(result code) {
  return code == invalid_usage  ? "invalid usage"
         : code == remote_error ? "remote process exited"
         : code == success      ? "no error"
                                : "an error";
}
TUTTI_EXPORT const char* ncclGetLastError(communicator* c) {
  const std::lock_guard lock(lib().mutex);
  use(c);
  return lib().last_error.load();
}
TUTTI_EXPORT result ncclGetUniqueId(unique_id* id) {
  const std::lock_guard lock(lib().mutex);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->bytes, "stand-in", 8);
  std::memcpy(id->bytes + 8, &lib().next_id, sizeof lib().next_id);
  ++lib().next_id;
  return success;
}
TUTTI_EXPORT result ncclCommInitRank(communicator** c, int size, unique_id id, int rank) {
  return join(std::string(id.bytes, sizeof id.bytes), size, rank, c);
}
TUTTI_EXPORT result ncclCommInitRankConfig(communicator** c, int size, unique_id id, int rank,
                                           const void* how) {
  unsigned magic = 0;  // follows the size
  if (how != nullptr) std::memcpy(&magic, static_cast<const char*>(how) + sizeof(std::size_t), sizeof magic);
  if (magic != 0xcafebeef) return invalid_argument;
  return join(std::string(id.bytes, sizeof id.bytes), size, rank, c);
}
TUTTI_EXPORT result ncclCommFinalize(communicator* c) {
  const std::lock_guard lock(lib().mutex);
  use(c);
  return success;
}
TUTTI_EXPORT result ncclCommDestroy(communicator* c) {
  cuda().note_free("ncclCommDestroy");
  std::unique_lock lock(lib().mutex);
  free_now(c);
  wait_for_others(c, lock);
  return success;
}
TUTTI_EXPORT result ncclCommAbort(communicator* c) {
  std::unique_lock lock(lib().mutex);
  ++lib().aborts;
  free_now(c);
  wait_for_others(c, lock);
  finish_ending(lock);
  lock.unlock();
  cuda().note_free("ncclCommAbort");
  return success;
}
TUTTI_EXPORT result ncclCommRevoke(communicator* c, int) {
  std::unique_lock lock(lib().mutex);
  use(c);
  if (!lib().ignores_revocations) stop(c);
  finish_ending(lock);
  return success;
}
TUTTI_EXPORT result ncclCommGetAsyncError(communicator*, result* code) {
  *code = success;
  return success;
}
TUTTI_EXPORT result ncclAllReduce(const void* in, void* out, std::size_t n, int type, int op, communicator* c,
                                  void* s) {
  return enqueue(c, {what::all_reduce, in, out, n, type, op, 1, 0}, s);
}
TUTTI_EXPORT result ncclReduce(const void* in, void* out, std::size_t n, int type, int op, int root,
                               communicator* c, void* s) {
  return enqueue(c, {what::reduce, in, out, n, type, op, 1, root}, s);
}
TUTTI_EXPORT result ncclBroadcast(const void* in, void* out, std::size_t n, int type, int root,
                                  communicator* c, void* s) {
  return enqueue(c, {what::broadcast, in, out, n, type, 0, 1, root}, s);
}
TUTTI_EXPORT result ncclAllGather(const void* in, void* out, std::size_t n, int type, communicator* c,
                                  void* s) {
  return enqueue(c, {what::all_gather, in, out, n, type, 0, 1, 0}, s);
}
TUTTI_EXPORT result ncclReduceScatter(const void* in, void* out, std::size_t n, int type, int op,
                                      communicator* c, void* s) {
  return enqueue(c, {what::reduce_scatter, in, out, n, type, op, 1, 0}, s);
}
TUTTI_EXPORT result ncclSend(const void* data, std::size_t n, int, int peer, communicator* c, void* s) {
  return message_part({true, data, n, peer, c, s});
}
TUTTI_EXPORT result ncclRecv(void* data, std::size_t n, int, int peer, communicator* c, void* s) {
  return message_part({false, data, n, peer, c, s});
}
TUTTI_EXPORT result ncclGroupStart() {
  ++group_depth;
  hold(nccl_hold_group);
  return success;
}
TUTTI_EXPORT result ncclGroupEnd() { return --group_depth == 0 ? end_group() : success; }
TUTTI_EXPORT result ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int, communicator* c) {
  std::optional<double> factor;
  const auto as = [&]<class T>(int which, T value) {
    if (type != which) return;
    std::memcpy(&value, scalar, sizeof value);
    factor = static_cast<double>(value);
  };
  as(int8, std::int8_t{});
  as(uint8, std::uint8_t{});
  as(int32, std::int32_t{});
  as(uint32, std::uint32_t{});
  as(int64, std::int64_t{});
  as(uint64, std::uint64_t{});
  as(float16, tutti::float16{});
  as(float32, float{});
  as(float64, double{});
  as(bfloat16, tutti::bfloat16{});
  if (!factor) return invalid_argument;
  const std::lock_guard lock(lib().mutex);
  use(c);
  *op = 100 + static_cast<int>(c->operations.size());
  c->operations[*op] = {*factor};
  return success;
}
TUTTI_EXPORT result ncclRedOpDestroy(int, communicator* c) {
  const std::lock_guard lock(lib().mutex);
  use(c);
  return success;
}
TUTTI_EXPORT result ncclMemAlloc(void** memory, std::size_t bytes) {
  using alloc = int (*)(unsigned long long*, std::size_t);
  void* const library = ::dlopen(std::getenv("TUTTI_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  unsigned long long p = 0;
  const int r = reinterpret_cast<alloc>(::dlsym(library, "cuMemAlloc_v2"))(&p, bytes);
  *memory = reinterpret_cast<void*>(p);
  return r == 0 ? success : unhandled_cuda_error;
}
TUTTI_EXPORT result ncclMemFree(void* memory) {
  using release_call = int (*)(unsigned long long);
  void* const library = ::dlopen(std::getenv("TUTTI_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<release_call>(::dlsym(library, "cuMemFree_v2"))(
      reinterpret_cast<unsigned long long>(memory));
}
TUTTI_EXPORT result ncclCommRegister(communicator* c, void* memory, std::size_t, void** handle) {
  const std::lock_guard lock(lib().mutex);
  use(c);
  *handle = memory;
  return success;
}
TUTTI_EXPORT result ncclCommDeregister(communicator* c, void*) {
  const std::lock_guard lock(lib().mutex);
  use(c);
  return success;
}
