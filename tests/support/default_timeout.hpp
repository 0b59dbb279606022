// SPDX-License-Identifier: Apache-2.0
// Sets the timeout of one communicator on one rank. A short init_options::timeout would also apply to
// joining, which takes longer on a busy machine.
#pragma once

#include "comm/identity.hpp"

#include <chrono>

namespace tutti::test {

// Applies to later operations of this rank on `c`, not to communicators made from `c`. No operation may be
// pending.
inline void set_default_timeout(const communicator& c, std::chrono::milliseconds timeout) {
  detail::communicator_access::state_of(c)->pending().set_timeout(timeout);
}

}  // namespace tutti::test
