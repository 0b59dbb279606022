// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#ifdef TUTTI_CUDA_KERNELS_FILE
// The bytes of the file, behind a label.
asm(".section .rodata\n"
    ".balign 64\n"
    ".globl tutti_cuda_kernels_begin\n"
    ".hidden tutti_cuda_kernels_begin\n"
    "tutti_cuda_kernels_begin:\n"
    ".incbin \"" TUTTI_CUDA_KERNELS_FILE
    "\"\n"
    ".byte 0\n"
    ".text\n");
extern "C" const unsigned char tutti_cuda_kernels_begin[];
#endif

namespace tutti::cuda {

const void* find_kernel_image() {
  if (const char* const told = std::getenv("TUTTI_CUDA_KERNELS"); told != nullptr && *told != '\0') {
    static std::mutex mutex;
    static std::map<std::string, std::vector<char>> files;
    const std::lock_guard lock(mutex);
    std::vector<char>& bytes = files[told];
    if (bytes.empty()) {
      std::ifstream in(told, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
      bytes.push_back('\0');  // PTX is a string
    }
    return bytes.data();
  }
#ifdef TUTTI_CUDA_KERNELS_FILE
  return tutti_cuda_kernels_begin;
#else
  return nullptr;
#endif
}

}  // namespace tutti::cuda
