// SPDX-License-Identifier: Apache-2.0
#include "core/tls.hpp"

#include "base/env.hpp"
#include "base/module_folders.hpp"
#include "base/throw_error.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <tutti/error.hpp>

namespace tutti {
namespace {

constexpr const char* module_name = "libtutti_tls.so";

core::tls_module_function* open_file(const std::filesystem::path& file) {
  void* const module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    base::throw_error(
        errc::not_supported,
        "TLS: its module cannot be opened: {}; install OpenSSL 3 (apt-get install libssl3), or set "
        "TUTTI_TLS_MODULE to the {} that was built with this tutti",
        ::dlerror(), module_name);
  auto* const function =
      reinterpret_cast<core::tls_module_function*>(::dlsym(module, core::tls_module_symbol));
  if (function == nullptr)
    base::throw_error(
        errc::not_supported,
        "TLS: {} was built with another version of tutti: set TUTTI_TLS_MODULE to the {} that was "
        "built with this one",
        file.string(), module_name);
  return function;
}

core::tls_module_function* find_module() {
  if (const auto named = base::env_string("TUTTI_TLS_MODULE")) return open_file(*named);
  const auto folders = base::module_folders();
  for (const auto& folder : folders) {
    std::error_code failed;
    if (std::filesystem::exists(folder / module_name, failed)) return open_file(folder / module_name);
  }
  base::throw_error(
      errc::not_supported,
      "TLS needs the module {}, which is built with tutti where OpenSSL is installed: apt-get install "
      "libssl-dev, configure and build tutti again, and put the module beside the program or set "
      "TUTTI_TLS_MODULE to its path; looked in {}",
      module_name, base::list_of(folders));
}

}  // namespace

tls_identity make_tls_identity(const std::string& certificate, const std::string& key,
                               const std::string& authority) {
  const int given = int{!certificate.empty()} + int{!key.empty()} + int{!authority.empty()};
  if (given != 0 && given != 3)
    throw error(errc::invalid_argument,
                "of TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY and TUTTI_TLS_AUTHORITY "
                "(init_options::tls_certificate, tls_key, tls_authority) some are set and some are not: set "
                "all three, or none, and then tutti makes certificates itself");
  static core::tls_module_function* const make_context = find_module();
  std::string why;
  bool wrong_file = false;
  tls_identity made(make_context(certificate, key, authority, why, wrong_file));
  if (!made) throw error(wrong_file ? errc::invalid_argument : errc::system, "TLS: " + why);
  return made;
}

}  // namespace tutti
