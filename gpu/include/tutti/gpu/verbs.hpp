// SPDX-License-Identifier: Apache-2.0
// deprecated: include <tutti/gpu/any_communicator.hpp>.
#pragma once

#include <tutti/gpu/any_communicator.hpp>

namespace tutti::gpu {

using verbs [[deprecated("write any_communicator")]] = any_communicator;

}  // namespace tutti::gpu
