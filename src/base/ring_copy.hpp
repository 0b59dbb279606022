// SPDX-License-Identifier: Apache-2.0
// Long copies into and out of memory that two cores share, one writing, the other reading.
//
// Their speed depends on where the two cores are, and a hypervisor moves them. So each side has one way that
// is fast everywhere, and measures nothing:
//
//   writer  `rep movsb` if it is fast on the processor: takes whole lines without reading them first.
//           Ordinary stores first fetch each line from the reader's cache, which takes three to four times as
//           long without a common cache. Stores past the caches take 2.5 times as long with one.
//   reader  loads and stores. `rep movsb` takes twice as long there for seconds on end (AMD family 26).
//
// Both copy like memcpy. A release store after copy_in publishes its data. Blocks below 16 KiB use memcpy,
// which knows the start-up cost of each way on this processor.
#pragma once

#include <cstddef>

namespace tutti::base {

// Copies from a process's own memory into shared memory.
void copy_in(void* to, const void* from, std::size_t bytes) noexcept;
// Copies from shared memory into a process's own.
void copy_out(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace tutti::base
