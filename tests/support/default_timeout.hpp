// SPDX-License-Identifier: Apache-2.0
// The timeout of one communicator on one rank. A short init_options::timeout would bound joining as well, which
// takes longer on a busy machine.
#pragma once

#include "comm/identity.hpp"

#include <chrono>

namespace tutti::test {

// Applies to the operations that this rank starts on `c` from now on; none may be waiting. Does not apply to
// communicators made from `c`.
inline void set_default_timeout(const communicator& c, std::chrono::milliseconds timeout) {
  detail::communicator_access::state_of(c)->set_timeout(timeout);
}

}  // namespace tutti::test
