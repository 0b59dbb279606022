// SPDX-License-Identifier: Apache-2.0
// Controls of the stand-in for libnccl, for tests.
#pragma once

enum { nccl_hold_none, nccl_hold_entry, nccl_hold_group, nccl_hold_init };

extern "C" {
void tutti_fake_nccl_reset(void);
// Calls that enqueue do not return before the communicator is aborted, as when a peer cannot be connected.
void tutti_fake_nccl_block_calls(int on);
// The next call that enqueues fails with this result.
void tutti_fake_nccl_fail_next(int result);
int tutti_fake_nccl_communicators(void);  // live ones
// ncclCommInitRank fails on this device; -1: on none. Other ranks wait for it until the calls are given up.
void tutti_fake_nccl_refuse_device(int device);
void tutti_fake_nccl_give_up_joins(void);
// Holds calls until a communicator is aborted or revoked, or until this is called again: calls that enqueue,
// before they access the communicator (entry), ncclGroupStart (group), or ncclCommInitRank of several ranks (init).
void tutti_fake_nccl_hold(int where);
int tutti_fake_nccl_held(void);                   // calls that are held now
void tutti_fake_nccl_ignore_revocations(int on);  // a revocation ends nothing
// Aborts and revocations return this much later than what they release.
void tutti_fake_nccl_slow_ends(int ms);
int tutti_fake_nccl_ending(void);  // threads in an abort or a revocation
int tutti_fake_nccl_aborts(void);
// Uses of a freed communicator, and aborts that waited for ever for another rank's.
int tutti_fake_nccl_misuses(void);
}
