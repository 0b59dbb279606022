// SPDX-License-Identifier: Apache-2.0
// The directory of one user on this host where ranks of a job without an address meet.
#pragma once

#include <string>

namespace tutti::bootstrap {

// "tutti" in XDG_RUNTIME_DIR if there is one, else /tmp/tutti-<uid>: the same for all processes of a user.
std::string private_directory();
// Makes it if missing. Throws invalid_argument unless it belongs to this user alone: others could pose as
// ranks.
void make_private_directory(const std::string& path);
// Removes it unless it has contents.
void leave_private_directory(const std::string& path) noexcept;

}  // namespace tutti::bootstrap
