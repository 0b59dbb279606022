// SPDX-License-Identifier: Apache-2.0
// Kernels of the stand-in for libcuda. The library's kernels are found by name, whatever the module's image
// is. Kernels of the program are native functions of the same names in the shared object of
// TUTTI_FAKE_CUDA_KERNELS.
#include "fake_cuda_library.hpp"
#include "native_kernel.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using namespace tutti::cuda::fake;

namespace {

bool find_native(const char* name, function& f) {
  const char* const path = std::getenv("TUTTI_FAKE_CUDA_KERNELS");
  if (path == nullptr || *path == '\0') return false;
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);  // never closed: kernels may run at exit
  if (library == nullptr) return false;
  f.native = reinterpret_cast<tutti::fakes::native_kernel*>(::dlsym(library, name));
  const void* const sizes = ::dlsym(library, (std::string(name) + "_parameters").c_str());
  if (f.native == nullptr || sizes == nullptr) return false;
  for (auto size = static_cast<const std::size_t*>(sizes); *size != 0; ++size) f.parameters.push_back(*size);
  return true;
}

// Copies the parameters at the launch, as CUDA does. Their sizes come with the native kernel.
result launch_native(const function& f, std::uint64_t items, stream* s, void** parameters) {
  std::vector<std::vector<std::byte>> values;
  for (std::size_t k = 0; k < f.parameters.size(); ++k) {
    if (parameters[k] == nullptr)
      return lib().misused("cuLaunchKernel with fewer parameters than the kernel has", error_invalid_value);
    const auto* const at = static_cast<const std::byte*>(parameters[k]);
    values.emplace_back(at, at + f.parameters[k]);
  }
  s->of->queues->run(s->queue, [e = s->of->queues.get(), native = f.native, items, values] {
    std::vector<const void*> addresses;
    for (const auto& v : values) addresses.push_back(v.data());
    tutti::fakes::kernel_launch how;
    how.items = items;
    how.arguments = addresses.data();
    how.argument_count = addresses.size();
    how.reach = [](const void* device, const void* memory, std::size_t bytes) -> void* {
      return static_cast<const device_queues*>(device)->reach(memory, bytes);
    };
    how.device = e;
    native(how);
  });
  return success;
}

}  // namespace

TUTTI_EXPORT result cuModuleLoadData(module** m, const void*) {
  TUTTI_CHECK(wrong("cuModuleLoadData"));
  if (a_stream_waits()) lib().misused("cuModuleLoadData while a stream waits for a word", success);
  *m = lib().add(new module{current.back()});
  return success;
}
TUTTI_EXPORT result cuModuleUnload(module* m) {
  if (!lib().remove(m))
    return lib().misused("cuModuleUnload of a module that has gone", error_invalid_handle);
  delete m;
  return success;
}
TUTTI_EXPORT result cuModuleGetFunction(function** f, module* m, const char* name) {
  TUTTI_CHECK(wrong_handle("cuModuleGetFunction", m));
  if (a_stream_waits()) lib().misused("cuModuleGetFunction while a stream waits for a word", success);
  auto made = std::make_unique<function>();
  made->of_tutti = tutti::gpu::kernels::find_kernel(name);
  if (made->of_tutti == nullptr && !find_native(name, *made)) return error_not_found;
  *f = made.get();
  const std::lock_guard lock(lib().mutex);
  lib().functions.push_back(std::move(made));
  return success;
}
TUTTI_EXPORT result cuLaunchKernel(function* f, unsigned blocks, unsigned blocks_y, unsigned blocks_z,
                                   unsigned threads, unsigned threads_y, unsigned threads_z, unsigned,
                                   stream* s, void** parameters, void**) {
  using namespace tutti::gpu::kernels;
  TUTTI_CHECK(wrong_handle("cuLaunchKernel", s));
  const std::uint64_t in_block = std::uint64_t{threads} * threads_y * threads_z;
  const std::uint64_t items = std::uint64_t{blocks} * blocks_y * blocks_z * in_block;
  if (items == 0 || in_block > 1024)
    return lib().misused("cuLaunchKernel of no threads, or of more than a block has", error_invalid_value);
  if (parameters == nullptr || parameters[0] == nullptr)
    return lib().misused("cuLaunchKernel without parameters", error_invalid_value);
  if (f->native != nullptr) return launch_native(*f, items, s, parameters);
  const auto& a = *static_cast<const arguments*>(parameters[0]);
  s->of->queues->run(s->queue, [e = s->of->queues.get(), kernel = f->of_tutti, a] {
    run_on_host(*kernel, a, [e](const void* at, std::size_t bytes) { return e->reach(at, bytes); });
  });
  return success;
}
