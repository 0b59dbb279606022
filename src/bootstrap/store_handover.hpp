// SPDX-License-Identifier: Apache-2.0
// store_handover: passes the store's socket from the launcher to rank 0. Rank 0 inherits it, unless a program
// between the two closes descriptors, as Python's subprocess does. Then rank 0 asks for it.
#pragma once

#include "base/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <string>

namespace tutti::bootstrap {

// The launcher's side: while `store` is open, processes of this user (or root) get a copy of it on request.
class store_handover {
 public:
  // `store` outlives this.
  store_handover(boost::asio::io_context& loop, const base::unique_fd& store);

  // The name of the abstract AF_UNIX socket to ask at. Empty: the system has none.
  const std::string& name() const noexcept { return name_; }

 private:
  void serve_next();

  const base::unique_fd& store_;
  boost::asio::posix::stream_descriptor listener_;
  std::string name_;
};

// Rank 0's side. Blocks, at most for some seconds. Empty: errno says why.
base::unique_fd take_over_store(const std::string& name) noexcept;

}  // namespace tutti::bootstrap
