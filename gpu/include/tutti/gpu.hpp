// SPDX-License-Identifier: Apache-2.0
// Devices: their memory and streams, and the operations of tutti::communicator on that memory.
#pragma once

#include <tutti/gpu/data_parallel.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/gpu/gradient_hooks.hpp>
#include <tutti/gpu/memory.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/gpu/stream.hpp>
