// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/level_zero.hpp>
#include <utility>

#ifdef GPU_EXAMPLE_KERNELS_FILE
asm(".section .rodata\n"
    ".balign 64\n"
    "gpu_example_kernels:\n"
    ".incbin \"" GPU_EXAMPLE_KERNELS_FILE
    "\"\n"
    ".byte 0\n"
    ".text\n");
extern "C" const unsigned char gpu_example_kernels[];
#endif

namespace gpu_examples {

float exponential(float x) noexcept { return std::exp(x); }
float logarithm(float x) noexcept { return std::log(x); }

namespace {

using element_kernel = void (*)(const arguments&, std::uint64_t);
#define GPU_EXAMPLE_ENTRY(name) {&name, "example_" #name},
constexpr std::pair<element_kernel, const char*> table[] = {GPU_EXAMPLE_KERNELS(GPU_EXAMPLE_ENTRY)};
#undef GPU_EXAMPLE_ENTRY

const void* cuda_image() {
#ifdef GPU_EXAMPLE_KERNELS_FILE
  return gpu_example_kernels;
#else
  throw std::runtime_error(
      "this program was built without nvcc, and has no kernels for CUDA: use --device emulated, or "
      "install CUDA's toolkit and build again");
#endif
}

tutti::level_zero::module level_zero_module(const tutti::gpu::device& on) {
  const char* const path = std::getenv("TUTTI_EXAMPLE_KERNELS");
  if (path == nullptr)
    throw std::runtime_error(
        "the examples have no kernels for Level Zero of their own: compile examples/gpu/elements.hpp to "
        "SPIR-V and "
        "name the file in TUTTI_EXAMPLE_KERNELS, or use --device emulated");
  std::ifstream in(path, std::ios::binary);
  const std::string image((std::istreambuf_iterator<char>(in)), {});
  using format = tutti::level_zero::module::format;
  const format is = std::string(path).ends_with(".spv") ? format::spirv : format::native;
  return tutti::level_zero::module(on, std::as_bytes(std::span(image)), is);
}

}  // namespace

struct device_kernels::impl {
  std::unique_ptr<tutti::cuda::module> cuda;
  std::unique_ptr<tutti::level_zero::module> level_zero;  // emulated if both are empty
};

device_kernels::device_kernels(const tutti::gpu::device& on) : impl_(std::make_unique<impl>()) {
  if (on.name().rfind("cuda", 0) == 0) impl_->cuda = std::make_unique<tutti::cuda::module>(on, cuda_image());
  if (on.name().rfind("level_zero", 0) == 0)
    impl_->level_zero = std::make_unique<tutti::level_zero::module>(level_zero_module(on));
}
device_kernels::~device_kernels() = default;
device_kernels::device_kernels(device_kernels&&) noexcept = default;

void device_kernels::launch(const tutti::gpu::stream& in, kernel which, const arguments& with) const {
  const auto& [run, name] = table[static_cast<std::size_t>(which)];
  if (with.count == 0) return;
  if (impl_->cuda) {
    tutti::cuda::launch_size size;
    size.blocks =
        static_cast<unsigned>(std::min<std::uint64_t>((with.count + size.threads - 1) / size.threads, 4096));
    tutti::cuda::launch(in, impl_->cuda->kernel(name), size, with);
    return;
  }
  if (impl_->level_zero) {
    tutti::level_zero::launch_size size;
    size.groups = static_cast<unsigned>(
        std::min<std::uint64_t>((with.count + size.group_size - 1) / size.group_size, 4096));
    tutti::level_zero::launch(in, impl_->level_zero->kernel(name), size, with);
    return;
  }
  const element_kernel loop = run;
  tutti::emulated::launch(in, [loop, with](tutti::emulated::access device) {
    arguments seen = with;
    for (int k = 0; k < 6; ++k)
      if (with.length[k] > 0)
        seen.memory[k] = device.at(tutti::gpu::device_span<float>(with.memory[k], with.length[k]));
    for (std::uint64_t i = 0; i < with.count; ++i) loop(seen, i);
  });
}

tutti::task<tutti::gpu::device> open_device(tutti::communicator world, std::string kind) {
  using tutti::gpu::device_kind;
  for (const device_kind k : {device_kind::emulated, device_kind::cuda, device_kind::level_zero}) {
    if (kind != tutti::gpu::name_of(k)) continue;
    tutti::gpu::open_options how;
    how.kind = k;
    co_return co_await tutti::gpu::open(world, how);
  }
  throw std::invalid_argument("--device " + kind + ": it is emulated, cuda or level_zero");
}

std::string option_of(int argc, char** argv, const std::string& option, const std::string& otherwise) {
  for (int i = 1; i + 1 < argc; ++i)
    if (option == argv[i]) return argv[i + 1];
  return otherwise;
}

}  // namespace gpu_examples
