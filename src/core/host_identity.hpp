// SPDX-License-Identifier: Apache-2.0
// How ranks know whether they share a host.
#pragma once

#include <string>
#include <string_view>

namespace tutti::core {

// "<kernel>:<network namespace>", with ":<name>" appended for a simulated host. Ranks with equal identities
// share memory.
inline std::string host_identity(const std::string& kernel, const std::string& network,
                                 const std::string& pretended) {
  return kernel + ":" + network + (pretended.empty() ? "" : ":" + pretended);
}

// Whether ranks of these identities reach each other over loopback, as simulated hosts of one machine do.
inline bool share_loopback(std::string_view a, std::string_view b) noexcept {
  const auto real = [](std::string_view id) {
    const std::size_t network = id.find(':');
    return network == id.npos ? id : id.substr(0, id.find(':', network + 1));
  };
  return real(a) == real(b);
}

}  // namespace tutti::core
