// SPDX-License-Identifier: Apache-2.0
// A vendor's library, opened on first use: a table of its calls, or the reason why there is none. An api.hpp
// lists the calls as X(member, symbol, parameters); the macros below make the table's members of that list,
// and find them.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tutti/error.hpp>
#include <vector>

#define TUTTI_CALL_MEMBER(member, symbol, parameters) result(*member) parameters = nullptr;
#define TUTTI_FIND_CALL(member, symbol, parameters) in.find(#symbol, calls->member);
#define TUTTI_REQUIRE_CALL(member, symbol, parameters) in.require(#symbol, calls->member);

namespace tutti::gpu::impl {

template <class Table>
struct opened_library {
  std::unique_ptr<const Table> calls;  // null: see `why`
  std::string why;

  // Throws errc::not_supported if there is none.
  const Table& required(const char* name, const char* cure = "") const {
    if (calls == nullptr) throw error(errc::not_supported, fmt::format("no {}: {}{}", name, why, cure));
    return *calls;
  }
  // 0 without the library.
  int devices() const noexcept { return calls == nullptr ? 0 : calls->devices(); }
  int version() const noexcept { return calls == nullptr ? 0 : calls->version; }
};

class library {
 public:
  // Opens the file `told`, or else the first of `names` that can be opened. names[0] is without a folder, so that a
  // copy of it that is already loaded is found first: two copies in one process know nothing of each other.
  // Errors: throws errc::not_supported with the cure.
  library(const std::string& told, std::vector<std::string> names, const char* cure)
      : name(told.empty() ? names.front() : told) {
    if (!told.empty()) names = {told};
    for (const std::string& n : names)
      if (handle_ == nullptr) handle_ = ::dlopen(n.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    const char* const said = ::dlerror();
    throw error(errc::not_supported, fmt::format("{} cannot be opened ({}): {}", name,
                                                 said == nullptr ? "no reason given" : said, cure));
  }

  template <class F>
  bool find(const char* symbol, F*& to) const {
    to = reinterpret_cast<F*>(::dlsym(handle_, symbol));
    return to != nullptr;
  }
  template <class F>
  void require(const char* symbol, F*& to) {
    if (!find(symbol, to)) missing += std::string(missing.empty() ? "" : ", ") + symbol;
  }

  const std::string name;
  std::string missing;  // names of required calls

 private:
  void* handle_ = nullptr;
};

// Returns the calls of the file that the environment variable names. `open` opens each file once, and it stays
// open; it gets an empty path if the variable is not set, and throws why there are no calls. Thread-safe.
template <class Table>
const opened_library<Table>& load_library(const char* variable,
                                          std::unique_ptr<const Table> (*open)(const std::string& path)) {
  static std::mutex mutex;
  // Never destroyed: a thread that was left behind may call the library at the end of the process.
  static auto& all = *new std::map<std::string, opened_library<Table>>;
  const char* const told = std::getenv(variable);
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = all.try_emplace(told == nullptr ? "" : told);
  try {
    if (is_new) found->second.calls = open(found->first);
  } catch (const std::exception& e) {
    found->second.why = e.what();
  }
  return found->second;
}

}  // namespace tutti::gpu::impl
