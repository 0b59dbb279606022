// SPDX-License-Identifier: Apache-2.0
#include "gpu/raw_cuda.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

namespace tutti::perf::gpu {
namespace {

void* library(const char* variable, const char* name) {
  const char* const told = std::getenv(variable);
  void* const opened = ::dlopen(told != nullptr && *told != '\0' ? told : name, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw std::runtime_error(std::string(name) + " cannot be opened");
  return opened;
}
template <class F>
void find(void* from, F*& to, const char* name) {
  to = reinterpret_cast<F*>(::dlsym(from, name));
  if (to == nullptr) throw std::runtime_error(std::string(name) + " is missing");
}
void check(int code, const char* what) {
  if (code != 0) throw std::runtime_error(std::string(what) + " failed with " + std::to_string(code));
}

}  // namespace

struct raw_cuda::calls {
  int (*create)(void**, unsigned) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*record)(void*, void*) = nullptr;
  int (*query)(void*) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*wait)(void*, void*, unsigned) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set)(void*) = nullptr;
  void* context = nullptr;
  void* event = nullptr;
};

raw_cuda::raw_cuda() : calls_(std::make_unique<calls>()) {
  void* const from = library("TUTTI_CUDA_LIBRARY", "libcuda.so.1");
  calls& c = *calls_;
  find(from, c.create, "cuEventCreate");
  find(from, c.destroy, "cuEventDestroy_v2");
  find(from, c.record, "cuEventRecord");
  find(from, c.query, "cuEventQuery");
  find(from, c.synchronize, "cuStreamSynchronize");
  find(from, c.wait, "cuStreamWaitEvent");
  find(from, c.get, "cuDeviceGet");
  find(from, c.retain, "cuDevicePrimaryCtxRetain");
  find(from, c.set, "cuCtxSetCurrent");
  int device = 0;
  check(c.get(&device, 0), "cuDeviceGet");
  check(c.retain(&c.context, device), "cuDevicePrimaryCtxRetain");
  check(c.set(c.context), "cuCtxSetCurrent");
  check(c.create(&c.event, 2), "cuEventCreate");
}
raw_cuda::~raw_cuda() { calls_->destroy(calls_->event); }

void raw_cuda::spin_on_event(void* stream) const {
  check(calls_->record(calls_->event, stream), "cuEventRecord");
  int code = 600;
  while (code == 600) code = calls_->query(calls_->event);
  check(code, "cuEventQuery");
}
void raw_cuda::synchronize(void* stream) const {
  check(calls_->set(calls_->context), "cuCtxSetCurrent");
  check(calls_->synchronize(stream), "cuStreamSynchronize");
}
void raw_cuda::wait(void* stream) const {
  check(calls_->wait(stream, calls_->event, 0), "cuStreamWaitEvent");
}
double raw_cuda::time_of_record(void* stream, int times) const {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) check(calls_->record(calls_->event, stream), "cuEventRecord");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
}
double raw_cuda::time_of_query(int times) const {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i)
    if (const int code = calls_->query(calls_->event); code != 600) check(code, "cuEventQuery");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
}

namespace {

constexpr int in_progress = 7;  // ncclInProgress

}  // namespace

struct raw_nccl::calls {
  // ncclConfig_t of 2.18, which later versions accept.
  struct config {
    std::size_t size = sizeof(config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21800;
    int blocking = 1;
    int cga_cluster_size = std::numeric_limits<int>::min();
    int min_ctas = std::numeric_limits<int>::min();
    int max_ctas = std::numeric_limits<int>::min();
    const char* net_name = nullptr;
    int split_share = std::numeric_limits<int>::min();
  };

  int (*version)(int*) = nullptr;
  int (*unique)(id*) = nullptr;
  int (*init)(void**, int, id, int, config*) = nullptr;
  int (*state)(void*, int*) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
  int (*destroy)(void*) = nullptr;
};

raw_nccl::raw_nccl() : calls_(std::make_unique<calls>()) {
  void* const from = library("TUTTI_NCCL_LIBRARY", "libnccl.so.2");
  find(from, calls_->version, "ncclGetVersion");
  find(from, calls_->unique, "ncclGetUniqueId");
  find(from, calls_->init, "ncclCommInitRankConfig");
  find(from, calls_->state, "ncclCommGetAsyncError");
  find(from, calls_->all_reduce, "ncclAllReduce");
  find(from, calls_->destroy, "ncclCommDestroy");
}
raw_nccl::~raw_nccl() {
  if (communicator_ != nullptr) calls_->destroy(communicator_);
}
raw_nccl::id raw_nccl::make_id() const {
  id made{};
  check(calls_->unique(&made), "ncclGetUniqueId");
  return made;
}
int raw_nccl::version() const {
  int number = 0;
  check(calls_->version(&number), "ncclGetVersion");
  return number;
}
// Polls the non-blocking operation until it completes, for at most 30 s.
void raw_nccl::settle(int code, const char* what) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (code == in_progress) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error(std::string(what) + " does not end");
    check(calls_->state(communicator_, &code), "ncclCommGetAsyncError");
  }
  check(code, what);
}
void raw_nccl::init(int ranks, id of, int rank, bool blocking) {
  calls::config how;
  how.blocking = blocking ? 1 : 0;
  settle(calls_->init(&communicator_, ranks, of, rank, &how), "ncclCommInitRankConfig");
}
void raw_nccl::all_reduce(const float* in, float* out, std::size_t count, void* stream) const {
  constexpr int float32 = 7, sum = 0;
  settle(calls_->all_reduce(in, out, count, float32, sum, communicator_, stream), "ncclAllReduce");
}

}  // namespace tutti::perf::gpu
