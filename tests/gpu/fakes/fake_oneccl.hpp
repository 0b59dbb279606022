// SPDX-License-Identifier: Apache-2.0
// Controls of the stand-in for oneCCL, for tests.
#pragma once

#include <cstdint>

extern "C" {
void tutti_fake_oneccl_reset(void);
// Calls that move data do not return while this is 1.
void tutti_fake_oneccl_block_calls(int on);
// The next call that moves data fails with this result.
void tutti_fake_oneccl_fail_next(int result);
int tutti_fake_oneccl_communicators(void);  // live ones
// Calls from another thread than the communicator's, or with a stale handle.
std::uint64_t tutti_fake_oneccl_misuses(void);
}
