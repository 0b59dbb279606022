// SPDX-License-Identifier: Apache-2.0
// The runtime: everything in tutti::tutti.
#pragma once

#include <tutti/algorithm.hpp>
#include <tutti/as_result.hpp>
#include <tutti/background.hpp>
#include <tutti/buffer.hpp>
#include <tutti/channel.hpp>
#include <tutti/chunked.hpp>
#include <tutti/communicator.hpp>
#include <tutti/compute.hpp>
#include <tutti/convert.hpp>
#include <tutti/counters.hpp>
#include <tutti/error.hpp>
#include <tutti/explain.hpp>
#include <tutti/generator.hpp>
#include <tutti/half.hpp>
#include <tutti/init_options.hpp>
#include <tutti/messages.hpp>
#include <tutti/objects.hpp>
#include <tutti/operation.hpp>
#include <tutti/prepared.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/request.hpp>
#include <tutti/runtime.hpp>
#include <tutti/scope.hpp>
#include <tutti/shared_memory.hpp>
#include <tutti/sleep.hpp>
#include <tutti/spawn.hpp>
#include <tutti/status.hpp>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <tutti/tls.hpp>
#include <tutti/trace.hpp>
#include <tutti/when_all.hpp>
#include <tutti/when_any.hpp>
#include <tutti/with_timeout.hpp>
