// SPDX-License-Identifier: Apache-2.0
// A vendor's library that is opened when it is first asked for: its calls in a table, or the reason why there
// are none.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tutti::gpu::detail {

template <class Table>
struct opened_library {
  std::unique_ptr<Table> calls;  // null: why not
  std::string why;
};

// dlerror(), which may have nothing to say.
inline std::string reason_of_loader() {
  const char* const said = ::dlerror();
  return said == nullptr ? "no reason given" : said;
}

template <class F>
bool find_call(void* library, const char* symbol, F*& to) {
  to = reinterpret_cast<F*>(::dlsym(library, symbol));
  return to != nullptr;
}

// Appends the symbol to `missing`, a list of names, when the library lacks it.
template <class F>
void find_required_call(void* library, const char* symbol, F*& to, std::string& missing) {
  if (!find_call(library, symbol, to)) missing += std::string(missing.empty() ? "" : ", ") + symbol;
}

// Of the file that `variable` names in the environment, or of `usual`. Each file is opened once, by `open`,
// and stays open; null: `why`. From any thread.
template <class Table>
const Table* load_library(const char* variable, const char* usual, std::string& why,
                          opened_library<Table> (*open)(const std::string& path)) {
  static std::mutex mutex;
  // For ever: a thread of a device that is kept may call at the very end of the process.
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
