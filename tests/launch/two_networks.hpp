// SPDX-License-Identifier: Apache-2.0
// Two hosts on one machine: network namespaces with a cable between them. Only processes of the test use
// them, so that nothing outlives it, however it ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "base/unique_fd.hpp"

namespace tutti::launch::testing {

class two_networks {
 public:
  // Returns nullptr if it is not permitted or `ip` is missing; `why_not` has the reason.
  static std::unique_ptr<two_networks> make(std::string& why_not);
  two_networks(const two_networks&) = delete;
  two_networks& operator=(const two_networks&) = delete;
  ~two_networks();

  int network(int host) const { return hosts_[host].network.get(); }
  static std::string address(int host) { return host == 0 ? "10.213.0.1" : "10.213.0.2"; }
  // From now on the hosts have IPv6 addresses only. Returns false if this kernel has no IPv6.
  bool leave_ipv4();
  static std::string address_v6(int host) { return host == 0 ? "fd13::1" : "fd13::2"; }
  // Gives each host ten more interfaces, whose addresses the other host does not reach.
  void add_interfaces();
  static std::string unreachable_address(int host) { return host == 0 ? "10.214.1.1" : "10.215.1.1"; }
  // From now on no packet passes.
  void cut();
  // The same, and nothing tells the sender so, as if the other host, behind a router, had lost its power.
  void swallow();
  // From now on the cable has this queueing discipline of `tc`, in both directions. Returns false if the
  // kernel lacks it.
  bool slow_down(const std::string& how);

 private:
  struct computer {
    pid_t holder = -1;
    base::unique_fd network;
  };
  two_networks() = default;
  bool add_host(computer& h);
  // Runs a command in the network of a host. Returns whether it succeeded.
  bool run(int host, const std::string& command) const;

  computer hosts_[2];
};

}  // namespace tutti::launch::testing
