// SPDX-License-Identifier: Apache-2.0
// What tests tell the stand-in for oneCCL, beside oneCCL's own calls.
#pragma once

#include <cstdint>

extern "C" {
void tutti_fake_oneccl_reset(void);
// Calls that move data do not return while this is 1.
void tutti_fake_oneccl_block_calls(int on);
// The next call that moves data fails with this result.
void tutti_fake_oneccl_fail_next(int result);
int tutti_fake_oneccl_communicators(void);  // made and not gone
std::uint64_t tutti_fake_oneccl_misuses(
    void);  // calls from another thread than the communicator's, and of what has gone
}
