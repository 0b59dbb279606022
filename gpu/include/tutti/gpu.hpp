// SPDX-License-Identifier: Apache-2.0
// Devices: their memory and streams, and the operations of tutti::communicator on that memory. Link with
// tutti::gpu. A program with SYCL queues also includes tutti/sycl.hpp.
#pragma once

#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <tutti/gpu/data_parallel.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/gpu/memory.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/gpu/window.hpp>
#include <tutti/level_zero.hpp>
#include <tutti/nccl.hpp>
#include <tutti/oneccl.hpp>
