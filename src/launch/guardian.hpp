// SPDX-License-Identifier: Apache-2.0
// guardian: a tiny process that outlives the launcher briefly. It sleeps in read() on a pipe whose only
// writer is the launcher. When the launcher is gone, however it died, it wakes and kills what the ranks had
// started. The ranks themselves die by PR_SET_PDEATHSIG. Their children do not inherit that, hence the
// guardian.
#pragma once

#include <sys/types.h>

#include "base/unique_fd.hpp"

namespace tutti::launch {

class guardian {
 public:
  // Forks: construct it before threads, descriptors or handlers that a copy should not have.
  guardian();
  guardian(const guardian&) = delete;
  guardian& operator=(const guardian&) = delete;
  // Kills the groups that were watched and not forgotten, and waits for the guardian's end.
  ~guardian();

  // Called from the child that is about to become the leader of `group`, before exec: from here on the group
  // cannot outlive the launcher. Async-signal-safe.
  void watch(pid_t group) const noexcept;
  // The group is empty, and its number may soon be reused.
  void forget(pid_t group) const noexcept;

 private:
  void tell(pid_t message) const noexcept;

  pid_t pid_ = -1;
  base::unique_fd pipe_;
};

}  // namespace tutti::launch
