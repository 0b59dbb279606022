// SPDX-License-Identifier: Apache-2.0
// The errors that all stores throw with the same texts.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace tutti::bootstrap {

// "get('a key') on memory_store": how texts name an operation of a store.
std::string title_of(std::string_view operation, const std::string& key, const std::string& store);

[[noreturn]] void throw_missing_key(std::string_view operation, const std::string& key,
                                    const std::string& store, std::chrono::milliseconds timeout);
[[noreturn]] void throw_bad_add(const std::string& key, const std::string& store);
[[noreturn]] void throw_too_long(const std::string& key, const std::string& store);

}  // namespace tutti::bootstrap
