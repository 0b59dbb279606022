// SPDX-License-Identifier: Apache-2.0
// Long copies into and out of memory that two cores share, one of them the writer, the other the reader.
//
// How fast they are depends on where the two cores are, and a hypervisor moves them. Each side therefore has
// one way that is fast in all places, and measures nothing:
//
//   writer  `rep movsb`, where the processor has it fast: takes whole lines and reads none of them first.
//           Ordinary stores first fetch each line from the reader's cache, which takes three to four times as
//           long without a cache in common. Stores past the caches take 2.5 times as long with one.
//   reader  loads and stores. `rep movsb` takes twice as long there for seconds on end (AMD family 26).
//
// Both copy like memcpy. A release store that follows publishes what copy_in has written. Blocks below 16 KiB
// go by memcpy, which knows what starting each way costs on this processor.
#pragma once

#include <cstddef>

namespace tutti::base {

// From a process's own memory into shared memory.
void copy_in(void* to, const void* from, std::size_t bytes) noexcept;
// Out of shared memory into a process's own.
void copy_out(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace tutti::base
