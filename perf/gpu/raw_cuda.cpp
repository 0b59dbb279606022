// SPDX-License-Identifier: Apache-2.0
#include "gpu/raw_cuda.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

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
  int (*copy)(unsigned long long, unsigned long long, std::size_t, void*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set)(void*) = nullptr;
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
  find(from, c.copy, "cuMemcpyAsync");
  find(from, c.get, "cuDeviceGet");
  find(from, c.retain, "cuDevicePrimaryCtxRetain");
  find(from, c.set, "cuCtxSetCurrent");
  int device = 0;
  void* context = nullptr;
  check(c.get(&device, 0), "cuDeviceGet");
  check(c.retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(c.set(context), "cuCtxSetCurrent");
  check(c.create(&c.event, 2), "cuEventCreate");
}
raw_cuda::~raw_cuda() { calls_->destroy(calls_->event); }

void raw_cuda::spin_on_event(void* stream) const {
  check(calls_->record(calls_->event, stream), "cuEventRecord");
  int code = 600;
  while (code == 600) code = calls_->query(calls_->event);
  check(code, "cuEventQuery");
}
void raw_cuda::synchronize(void* stream) const { check(calls_->synchronize(stream), "cuStreamSynchronize"); }
void raw_cuda::copy(void* to, const void* from, std::size_t bytes, void* stream) const {
  check(calls_->copy(reinterpret_cast<unsigned long long>(to), reinterpret_cast<unsigned long long>(from),
                     bytes, stream),
        "cuMemcpyAsync");
}

struct raw_nccl::calls {
  int (*unique)(id*) = nullptr;
  int (*init)(void**, int, id, int) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
  int (*destroy)(void*) = nullptr;
};

raw_nccl::raw_nccl() : calls_(std::make_unique<calls>()) {
  void* const from = library("TUTTI_NCCL_LIBRARY", "libnccl.so.2");
  find(from, calls_->unique, "ncclGetUniqueId");
  find(from, calls_->init, "ncclCommInitRank");
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
void raw_nccl::init(int ranks, id of, int rank) {
  check(calls_->init(&communicator_, ranks, of, rank), "ncclCommInitRank");
}
void raw_nccl::all_reduce(const float* in, float* out, std::size_t count, void* stream) const {
  constexpr int float32 = 7, sum = 0;
  check(calls_->all_reduce(in, out, count, float32, sum, communicator_, stream), "ncclAllReduce");
}

}  // namespace tutti::perf::gpu
