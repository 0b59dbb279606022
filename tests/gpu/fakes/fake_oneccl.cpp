// SPDX-License-Identifier: Apache-2.0
// A stand-in for oneCCL's libccl.so.2, on host memory. Ranks are threads of one process. As in oneCCL without
// a GPU, calls block until all ranks have come, and a communicator belongs to the thread that made it.
// Averages and scaled sums need a stream, which may be any pointer.
#include "fake_oneccl.hpp"
#include "host_reduction.hpp"
#include "kernels/host_kernels.hpp"
#include "live_handles.hpp"
#include "oneccl/oneccl_api.hpp"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#define TUTTI_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace tutti::oneccl::abi;
using tutti::element_type;
using tutti::reduce_kind;

enum class what {
  all_reduce,
  reduce,
  broadcast,
  reduce_scatter,
  scatter,
  all_gather,
  all_to_all,
  all_to_all_v
};

struct part {
  what kind{};
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = sum;
  double factor = 1;
  bool scaled = false;
  int root = 0;
  const std::size_t* to = nullptr;
  const std::size_t* from = nullptr;
};
struct collective {
  std::vector<part> parts;
  int arrived = 0;
  bool done = false;
};
struct world {
  int size = 0;
  int joined = 0;
  std::map<std::uint64_t, collective> collectives;
};

// State of the stand-in. Its live handles are communicators.
struct library : tutti::fakes::live_handles {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<world>> worlds;
  std::uint64_t next_id = 1;
  int communicators = 0;
  std::uint64_t misuses = 0;
  int fail_next = success;
  bool blocked = false;
};
library& lib() {
  // Never destroyed: a thread that was left behind may be in a call at exit.
  static auto* const instance = new library;
  return *instance;
}

element_type element_of(int type) {
  constexpr element_type types[] = {element_type::int8,    element_type::uint8,   element_type::int32,
                                    element_type::uint32,  element_type::int64,   element_type::uint64,
                                    element_type::float16, element_type::float32, element_type::float64,
                                    element_type::bfloat16};
  return types[type];
}
reduce_kind kind_of(int op) {
  constexpr reduce_kind kinds[] = {reduce_kind::sum, reduce_kind::product, reduce_kind::max, reduce_kind::min,
                                   reduce_kind::avg};
  return op <= average ? kinds[op] : reduce_kind::premul_sum;
}
std::size_t bytes_of(const part& p) { return p.count * tutti::gpu::kernels::bytes_of(element_of(p.type)); }

using bytes = std::vector<std::byte>;
const std::byte* at(const void* base, std::size_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}

// The results of all ranks, computed before any is written, because `out` may be `in`.
std::vector<bytes> results_of(const std::vector<part>& p) {
  const std::size_t n = p.size(), size = bytes_of(p[0]);
  std::vector<bytes> out(n);
  const auto reduced = [&](std::size_t offset) {
    bytes made(size);
    std::vector<const void*> in;
    std::vector<double> factors;
    for (const part& x : p) {
      in.push_back(at(x.in, offset));
      if (x.scaled) factors.push_back(x.factor);
    }
    void* const to = made.data();
    tutti::fakes::reduce_on_host(kind_of(p[0].op), element_of(p[0].type), in, std::span(&to, 1), factors,
                                 p[0].count, static_cast<int>(n));
    return made;
  };
  const auto root = static_cast<std::size_t>(p[0].root);
  for (std::size_t r = 0; r < n; ++r) {
    const auto add = [&](const void* from, std::size_t count) {
      out[r].insert(out[r].end(), at(from, 0), at(from, count));
    };
    switch (p[0].kind) {
      case what::all_reduce:
        out[r] = reduced(0);
        break;
      case what::reduce:
        if (r == root) out[r] = reduced(0);
        break;
      case what::reduce_scatter:
        out[r] = reduced(r * size);
        break;
      case what::broadcast:
        add(p[root].in, size);
        break;
      case what::scatter:
        add(at(p[root].in, r * size), size);
        break;
      case what::all_gather:
        for (const part& x : p) add(x.in, size);
        break;
      case what::all_to_all:
        for (const part& x : p) add(at(x.in, r * size), size);
        break;
      case what::all_to_all_v:
        for (const part& x : p) {
          std::size_t before = 0;
          for (std::size_t k = 0; k < r; ++k) before += x.to[k];
          add(at(x.in, before), x.to[r]);
        }
        break;
    }
  }
  return out;
}

}  // namespace

struct tutti::oneccl::abi::communicator {
  std::shared_ptr<world> of;
  int rank = 0;
  std::uint64_t sequence = 0;
  std::thread::id owner = std::this_thread::get_id();
  std::map<int, double> operations;
};

namespace {

result join(const std::string& name, int size, int rank, communicator** made) {
  std::unique_lock lock(lib().mutex);
  std::shared_ptr<world>& w = lib().worlds[name];
  if (!w) w = std::make_shared<world>();
  w->size = size;
  ++w->joined;
  lib().changed.notify_all();
  const std::shared_ptr<world> mine = w;
  if (!lib().changed.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(60),
                                [&] { return mine->joined >= size; }))
    return 2;
  auto* const c = new communicator;
  c->of = mine;
  c->rank = rank;
  lib().add(c);
  ++lib().communicators;
  *made = c;
  return success;
}

// Requires the mutex.
bool misused(communicator* c) {
  if (lib().knows(c) && c->owner == std::this_thread::get_id()) return false;
  // A thread that an earlier test left behind may start its call only now.
  if (!lib().forgot(c)) ++lib().misuses;
  return true;
}
result refused() {
  const int code = lib().fail_next;
  lib().fail_next = success;
  return code;
}

result meet(communicator* c, part mine, std::vector<part>* all = nullptr) {
  std::unique_lock lock(lib().mutex);
  if (misused(c)) return 5;
  if (const result code = refused(); code != success) return code;
  const std::shared_ptr<world> w = c->of;
  const std::uint64_t number = c->sequence++;
  collective& here = w->collectives[number];
  here.parts.resize(static_cast<std::size_t>(w->size));
  here.parts[static_cast<std::size_t>(c->rank)] = mine;
  const bool last = ++here.arrived == w->size;
  if (last) {
    const std::vector<bytes> made = results_of(here.parts);
    for (std::size_t r = 0; r < made.size(); ++r)
      if (!made[r].empty()) std::memcpy(here.parts[r].out, made[r].data(), made[r].size());
    here.done = true;
    lib().changed.notify_all();
  }
  // No time limit, as in oneCCL: the call does not return if other ranks never come.
  lib().changed.wait(lock, [&] { return here.done && !lib().blocked; });
  if (all != nullptr) *all = here.parts;
  return success;
}

result reducing(communicator* c, part p, void* stream) {
  if (p.op >= average && stream == nullptr) return p.op == average ? plugin_exception : not_implemented;
  if (p.op > average) {
    p.scaled = true;
    p.factor = c->operations[p.op];
  }
  return meet(c, p);
}

}  // namespace

// ---- controls for tests ----

TUTTI_EXPORT void tutti_fake_oneccl_reset(void) {
  const std::lock_guard lock(lib().mutex);
  lib().worlds.clear();
  lib().clear();
  lib().communicators = 0;
  lib().misuses = 0;
  lib().fail_next = success;
  lib().blocked = false;
}
TUTTI_EXPORT void tutti_fake_oneccl_block_calls(int on) {
  const std::lock_guard lock(lib().mutex);
  lib().blocked = on != 0;
  lib().changed.notify_all();
}
TUTTI_EXPORT void tutti_fake_oneccl_fail_next(int code) {
  const std::lock_guard lock(lib().mutex);
  lib().fail_next = code;
}
TUTTI_EXPORT int tutti_fake_oneccl_communicators(void) {
  const std::lock_guard lock(lib().mutex);
  return lib().communicators;
}
TUTTI_EXPORT std::uint64_t tutti_fake_oneccl_misuses(void) {
  const std::lock_guard lock(lib().mutex);
  return lib().misuses;
}

// ---- oneCCL's calls ----

TUTTI_EXPORT result onecclGetVersion(int* version) {
  *version = 20220200;
  return success;
}
TUTTI_EXPORT const char* onecclGetErrorString(result code) {
  return code == success            ? "no error"
         : code == plugin_exception ? "plugin exception"
         : code == not_implemented  ? "not implemented"
                                    : "an error";
}
TUTTI_EXPORT const char* onecclGetLastError(communicator*) { return "as the stand-in says"; }
TUTTI_EXPORT result onecclGetUniqueId(unique_id* id) {
  const std::lock_guard lock(lib().mutex);
  std::memset(id, 0, sizeof *id);
  // At the end, to detect an id that is not passed whole.
  std::memcpy(id->bytes + sizeof id->bytes - sizeof lib().next_id, &lib().next_id, sizeof lib().next_id);
  ++lib().next_id;
  return success;
}
TUTTI_EXPORT result onecclSetDevice(std::uint32_t) { return success; }
TUTTI_EXPORT result onecclCommInitRank(communicator** c, std::size_t size, unique_id id, int rank) {
  return join(std::string(id.bytes, sizeof id.bytes), static_cast<int>(size), rank, c);
}
TUTTI_EXPORT result onecclCommDestroy(communicator* c) {
  const std::lock_guard lock(lib().mutex);
  if (misused(c)) return 5;
  lib().remove(c);
  --lib().communicators;
  delete c;
  return success;
}
TUTTI_EXPORT result onecclAllReduce(void* in, void* out, std::size_t n, int type, int op, communicator* c,
                                    void* stream) {
  return reducing(c, {.kind = what::all_reduce, .in = in, .out = out, .count = n, .type = type, .op = op},
                  stream);
}
TUTTI_EXPORT result onecclReduce(const void* in, void* out, std::size_t n, int type, int op, int root,
                                 communicator* c, void* stream) {
  return reducing(
      c, {.kind = what::reduce, .in = in, .out = out, .count = n, .type = type, .op = op, .root = root},
      stream);
}
TUTTI_EXPORT result onecclReduceScatter(const void* in, void* out, std::size_t n, int type, int op,
                                        communicator* c, void* stream) {
  return reducing(c, {.kind = what::reduce_scatter, .in = in, .out = out, .count = n, .type = type, .op = op},
                  stream);
}
TUTTI_EXPORT result onecclBroadcast(const void* in, void* out, std::size_t n, int type, int root,
                                    communicator* c, void*) {
  return meet(c, {.kind = what::broadcast, .in = in, .out = out, .count = n, .type = type, .root = root});
}
TUTTI_EXPORT result onecclScatter(const void* in, void* out, std::size_t n, int type, int root,
                                  communicator* c, void*) {
  return meet(c, {.kind = what::scatter, .in = in, .out = out, .count = n, .type = type, .root = root});
}
TUTTI_EXPORT result onecclAllGather(const void* in, void* out, std::size_t n, int type, communicator* c,
                                    void*) {
  return meet(c, {.kind = what::all_gather, .in = in, .out = out, .count = n, .type = type});
}
TUTTI_EXPORT result onecclAllToAll(const void* in, void* out, std::size_t n, int type, communicator* c,
                                   void*) {
  return meet(c, {.kind = what::all_to_all, .in = in, .out = out, .count = n, .type = type});
}
TUTTI_EXPORT result onecclAllToAllV(const void* in, const std::size_t* to, void* out, const std::size_t* from,
                                    int type, communicator* c, void*) {
  return meet(c, {.kind = what::all_to_all_v, .in = in, .out = out, .type = type, .to = to, .from = from});
}
TUTTI_EXPORT result onecclRedOpCreatePreMulSum(int* op, void* scalar, int type, int, communicator* c) {
  double factor = 0;
  if (type == float32) {
    float f = 0;
    std::memcpy(&f, scalar, sizeof f);
    factor = f;
  } else if (type == float64) {
    std::memcpy(&factor, scalar, sizeof factor);
  } else {
    return not_implemented;
  }
  const std::lock_guard lock(lib().mutex);
  *op = 100 + static_cast<int>(c->operations.size());
  c->operations[*op] = factor;
  return success;
}
TUTTI_EXPORT result onecclRedOpDestroy(int, communicator*) { return success; }
