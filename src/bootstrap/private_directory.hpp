// SPDX-License-Identifier: Apache-2.0
// The directory of one user, on this host, in which the ranks of a job meet that has no address.
#pragma once

#include <string>

namespace tutti::bootstrap {

// "tutti" in XDG_RUNTIME_DIR where there is one, else /tmp/tutti-<uid>: the same for all processes of a user.
std::string private_directory();
// Makes it where it is missing. Throws invalid_argument when it is not this user's alone: others could pose
// as ranks.
void make_private_directory(const std::string& path);
// Removes it unless there is something in it.
void leave_private_directory(const std::string& path) noexcept;

}  // namespace tutti::bootstrap
