// SPDX-License-Identifier: Apache-2.0
// Files that may not grow (ulimit -f) as errors of the calls that grow them.
#pragma once

#include <csignal>

namespace tutti::base {

// While one lives, a write, ftruncate or fallocate of this thread past the limit of file sizes fails with
// EFBIG and nothing else happens: the SIGXFSZ that the kernel sends to the thread, which would end the process,
// is blocked and taken. Other threads and the signal's disposition stay as they are. Preserves errno.
class sigxfsz_block {
 public:
  sigxfsz_block() noexcept;
  sigxfsz_block(const sigxfsz_block&) = delete;
  sigxfsz_block& operator=(const sigxfsz_block&) = delete;
  ~sigxfsz_block();

 private:
  sigset_t mask_before_;
  bool pending_before_;
};

}  // namespace tutti::base
