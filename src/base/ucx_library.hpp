// SPDX-License-Identifier: Apache-2.0
// ucx_library: UCX's libucp.so.0 in this process. It is opened when a rank chooses UCX, and stays open.
//
// Opening it alone changes the process: it starts no thread, but installs signal handlers and patches libc's memory
// calls. Settings that keep it quiet are made first, as environment variables that the user has not set.
#pragma once

#include "base/ucx_abi.hpp"

#include <string>

namespace tutti::base {

class ucx_library {
 public:
  // Opens the library on the first call, or takes one that the process has. Throws errc::not_supported, with the
  // cure, if there is none or it is too old.
  static const ucx_library& of_this_process();
  // Null before the first call that succeeded.
  static const ucx_library* if_open() noexcept;

  // Returns the context of this process; all workers share it. `only_rdma`: without UCX's transports that need no
  // RDMA device, unless UCX_TLS says which; otherwise with all. `ranks`: the expected number of peers. Throws
  // errc::not_supported if UCX finds nothing to use.
  ucx_abi::ucp_context* context(bool only_rdma, std::size_t ranks) const;

  // UCX's text for a status.
  const char* text_of(ucx_abi::ucs_status_t status) const { return status_text_(status); }
  const std::string& version() const noexcept { return version_; }
  // Whether ucp_ep_query() names the transports of an endpoint.
  bool names_transports() const noexcept { return minor_ >= 14; }

  ucx_abi::functions call;

 private:
  ucx_library();

  unsigned minor_ = 0;
  std::string version_;
  const char* (*status_text_)(ucx_abi::ucs_status_t) = nullptr;
};

}  // namespace tutti::base
