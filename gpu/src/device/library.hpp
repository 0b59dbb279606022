// SPDX-License-Identifier: Apache-2.0
// A vendor's library, opened on first use: a table of its calls, or the reason why there is none.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tutti::gpu::detail {

template <class Table>
struct opened_library {
  std::unique_ptr<Table> calls;  // null: see `why`
  std::string why;
};

// The text of dlerror(), which may be null.
inline std::string reason_of_loader() {
  const char* const said = ::dlerror();
  return said == nullptr ? "no reason given" : said;
}

// Opens the file `told`, or else the first of `names` that can be opened. A copy of names[0] that is already
// loaded is preferred: two copies in one process know nothing of each other. Returns null if there is none.
inline void* open_library(const std::string& told, std::initializer_list<const char*> names) {
  if (!told.empty()) return ::dlopen(told.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* library = ::dlopen(*names.begin(), RTLD_NOW | RTLD_NOLOAD);
  for (const char* name : names)
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  return library;
}

template <class F>
bool find_call(void* library, const char* symbol, F*& to) {
  to = reinterpret_cast<F*>(::dlsym(library, symbol));
  return to != nullptr;
}

// Appends the symbol to `missing`, a list of names, if the library lacks it.
template <class F>
void find_required_call(void* library, const char* symbol, F*& to, std::string& missing) {
  if (!find_call(library, symbol, to)) missing += std::string(missing.empty() ? "" : ", ") + symbol;
}

// Returns the calls of the file that the environment variable `variable` names, or of `usual`. `open` opens
// each file once, and it stays open. Returns null with the reason in `why`. Thread-safe.
template <class Table>
const Table* load_library(const char* variable, const char* usual, std::string& why,
                          opened_library<Table> (*open)(const std::string& path)) {
  static std::mutex mutex;
  // Never destroyed: a thread that was left behind may call the library at the end of the process.
  static auto& all = *new std::map<std::string, opened_library<Table>>;
  const char* const told = std::getenv(variable);
  const std::string path = told != nullptr && *told != '\0' ? told : usual;
  const std::lock_guard lock(mutex);
  auto found = all.find(path);
  if (found == all.end()) found = all.emplace(path, open(path)).first;
  why = found->second.why;
  return found->second.calls.get();
}

}  // namespace tutti::gpu::detail
