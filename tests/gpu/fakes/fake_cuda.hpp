// SPDX-License-Identifier: Apache-2.0
// Controls of the stand-in for libcuda, for tests: C functions, found by name in the opened library.
#pragma once

#include <cstdint>

extern "C" {
// Starts anew: all earlier handles are stale. `adversary` and `delay_us` are those of emulated devices.
// Without `words` the device cannot write to host memory from streams.
void tutti_fake_cuda_reset(int devices, std::uint64_t adversary, std::uint64_t delay_us, int words);
void tutti_fake_cuda_fail_after(int device, std::uint64_t n, const char* why);
// No event can be created after n more; a negative n ends that.
void tutti_fake_cuda_refuse_events_after(int n);
void tutti_fake_cuda_pause(int device, int on);
// cuDevicePrimaryCtxRetain calls f(data), which may take as long as CUDA does; null ends that.
void tutti_fake_cuda_at_retain(void (*f)(void*), void* data);
void tutti_fake_cuda_set_capturing(void* stream, int on);
std::uint64_t tutti_fake_cuda_allocations(int device);
// How often CUDA's rules were broken, such as by a call inside a host function, without a context, or with a
// stale handle.
std::uint64_t tutti_fake_cuda_misuses(void);
const char* tutti_fake_cuda_last_misuse(void);
}

// For stand-ins of libraries that use CUDA.
extern "C" {
// Runs f(data) on a thread of the device when the stream gets to it.
void tutti_fake_cuda_run(void* stream, void (*f)(void*), void* data);
// Makes the stream wait until the word is not zero. The word must outlive the wait.
void tutti_fake_cuda_wait(void* stream, const std::uint64_t* word);
int tutti_fake_cuda_device(void* stream);
void tutti_fake_cuda_changed(int device);  // call it after writing a word
// The device memory as f may access it; null for an illegal address.
void* tutti_fake_cuda_reach(int device, const void* memory, std::uint64_t bytes);
int tutti_fake_cuda_current_device(void);  // -1: no context
// The call frees memory of the current device, so it waits for that.
void tutti_fake_cuda_note_free(const char* call);
}
