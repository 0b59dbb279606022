// SPDX-License-Identifier: Apache-2.0
// What tests tell the stand-in for libcuda, beside CUDA's own calls: C functions, found by name in the opened
// library.
#pragma once

#include <cstdint>

extern "C" {
// Everything as new: every handle of before is gone. `adversary` and `delay_us` as of emulated devices;
// without `words` the device cannot write to host memory from streams.
void tutti_fake_cuda_reset(int devices, std::uint64_t adversary, std::uint64_t delay_us, int words);
void tutti_fake_cuda_fail_after(int device, std::uint64_t n, const char* why);
// After n more events none can be made; a negative n ends that.
void tutti_fake_cuda_refuse_events_after(int n);
void tutti_fake_cuda_pause(int device, int on);
void tutti_fake_cuda_set_capturing(void* stream, int on);
std::uint64_t tutti_fake_cuda_allocations(int device);
// How often CUDA's rules were broken: a call from inside a host function, without a context, with a handle
// that has gone.
std::uint64_t tutti_fake_cuda_misuses(void);
const char* tutti_fake_cuda_last_misuse(void);
}

// For stand-ins of libraries that run on CUDA.
extern "C" {
// f(data) when the stream gets there, on a thread of the device's.
void tutti_fake_cuda_run(void* stream, void (*f)(void*), void* data);
// The stream waits until the word is not zero; the word outlives that.
void tutti_fake_cuda_wait(void* stream, const std::uint64_t* word);
int tutti_fake_cuda_device(void* stream);
void tutti_fake_cuda_changed(int device);  // somebody has written a word
// Memory of the device, as f may touch it; null: an illegal address.
void* tutti_fake_cuda_reach(int device, const void* memory, std::uint64_t bytes);
int tutti_fake_cuda_current_device(void);  // -1: no context
}
