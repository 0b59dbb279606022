// SPDX-License-Identifier: Apache-2.0
// What tests tell the stand-in for libnccl, beside NCCL's own calls.
#pragma once

extern "C" {
void tutti_fake_nccl_reset(void);
// Calls that enqueue do not return before the communicator is aborted, as when a peer cannot be connected.
void tutti_fake_nccl_block_calls(int on);
// The next call that enqueues fails with this result.
void tutti_fake_nccl_fail_next(int result);
int tutti_fake_nccl_communicators(void);  // made and not gone
}
