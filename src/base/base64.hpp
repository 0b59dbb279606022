// SPDX-License-Identifier: Apache-2.0
// Bytes as text in the alphabet of RFC 4648.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::base {

std::string to_base64(std::string_view bytes);
// Returns nullopt for a text that is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tutti::base
