// SPDX-License-Identifier: Apache-2.0
// Turns the limit of file sizes (ulimit -f) into errors of the calls that exceed it.
#pragma once

#include <csignal>

namespace tutti::base {

// While it lives, a write, ftruncate or fallocate of this thread past the limit of file sizes only fails with
// EFBIG. The SIGXFSZ that the kernel sends to the thread would end the process; it is blocked and taken.
// Other threads and the signal's disposition are unchanged. Preserves errno.
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
