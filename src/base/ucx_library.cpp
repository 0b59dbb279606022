// SPDX-License-Identifier: Apache-2.0
#include "base/ucx_library.hpp"

#include "base/throw_error.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <tutti/error.hpp>

namespace tutti::base {
namespace {

using namespace ucx_abi;

constexpr const char* library_name = "libucp.so.0";
constexpr unsigned least_minor = 13;  // of major 1
constexpr const char* cure =
    "install it (apt-get install libucx0, dnf install ucx, or pip install libucx-cu12 and LD_LIBRARY_PATH), "
    "or "
    "leave ucx out of TUTTI_TRANSPORTS: TCP is then used";

// Serves the first opening, and the contexts: ranks of run_local join at the same time.
std::mutex opening;
std::atomic<const ucx_library*> opened{nullptr};

// What keeps UCX out of the program's way. It reads these when it is opened.
void keep_quiet() {
  constexpr struct {
    const char* name;
    const char* value;
  } settings[] = {
      {"UCX_HANDLE_ERRORS", "none"},  // no handlers of SIGSEGV and others
      {"UCX_DEBUG_SIGNO", "0"},       // nor of SIGHUP
      {"UCX_LOG_FILE", "stderr"},     // not on standard output
      {"UCX_LOG_LEVEL", "fatal"},     // errors are reported by tutti, which names the rank
      {"UCX_WARN_UNUSED_ENV_VARS", "n"},
  };
  for (const auto& each : settings) ::setenv(each.name, each.value, 0);
}

bool set_by_user(const char* name) { return std::getenv(fmt::format("UCX_{}", name).c_str()) != nullptr; }

}  // namespace

ucx_library::ucx_library() {
  // A second UCX beside that of an MPI or NVSHMEM would not work.
  void* library = ::dlopen(library_name, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    keep_quiet();
    library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr)
    throw_error(errc::not_supported, "there is no UCX here ({}): {}", ::dlerror(), cure);
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr) missing = name;
    return found;
  };
#define TUTTI_UCX_FIND(name, result, parameters) \
  call.name = reinterpret_cast<result(*) parameters>(find(#name));
  TUTTI_UCX_FUNCTIONS(TUTTI_UCX_FIND)
#undef TUTTI_UCX_FIND
  // libucp brings it along.
  status_text_ = reinterpret_cast<const char* (*)(ucs_status_t)>(find("ucs_status_string"));
  unsigned major = 0, release = 0;
  if (call.ucp_get_version != nullptr) call.ucp_get_version(&major, &minor_, &release);
  version_ = fmt::format("{}.{}.{}", major, minor_, release);
  if (major != 1 || minor_ < least_minor)
    throw_error(errc::not_supported,
                "the UCX of this process has version {}, and 1.{} or a later 1.x is needed: {}", version_,
                least_minor, cure);
  if (missing != nullptr)
    throw_error(errc::not_supported, "the UCX of this process ({}) has no function {}: {}", version_, missing,
                cure);
}

const ucx_library& ucx_library::of_this_process() {
  const std::lock_guard<std::mutex> one_at_a_time(opening);
  if (const ucx_library* const known = if_open()) return *known;
  // It stays, as its threads and its patches of libc do.
  const auto* const made = new ucx_library;
  opened.store(made, std::memory_order_release);
  return *made;
}

const ucx_library* ucx_library::if_open() noexcept { return opened.load(std::memory_order_acquire); }

ucp_context* ucx_library::context(bool only_rdma, std::size_t ranks) const {
  static ucp_context* made[2] = {};
  const std::lock_guard<std::mutex> one_at_a_time(opening);
  ucp_context*& wanted = made[only_rdma ? 1 : 0];
  if (wanted != nullptr) return wanted;
  const auto check = [&](ucs_status_t status, const char* what) {
    if (status == ucs_status_t::ok) return;
    throw_error(errc::not_supported,
                "UCX {} cannot be used here: {} ({}); `ucx_info -d` lists the devices that it finds, and "
                "UCX_TLS and UCX_NET_DEVICES select them; without ucx in TUTTI_TRANSPORTS TCP is used",
                version_, text_of(status), what);
  };
  ucp_config* config = nullptr;
  check(call.ucp_config_read(nullptr, nullptr, &config), "reading its settings");
  // The connection beside each endpoint tells of the peer's end, sooner.
  if (!set_by_user("KEEPALIVE_INTERVAL")) call.ucp_config_modify(config, "KEEPALIVE_INTERVAL", "inf");
  // UCX's own TCP and shared memory are slower than tutti's.
  if (only_rdma && !set_by_user("TLS")) call.ucp_config_modify(config, "TLS", "ib,cuda,rocm");
  ucp_params_t parameters;
  parameters.mask =
      ucp_params_t::has_features | ucp_params_t::has_mt_workers_shared | ucp_params_t::has_endpoints;
  parameters.features = ucp_params_t::active_messages | ucp_params_t::wakeup;
  parameters.mt_workers_shared = 1;
  parameters.endpoints = ranks;
  const ucs_status_t status = call.ucp_init_version(1, least_minor, &parameters, config, &wanted);
  call.ucp_config_release(config);
  if (status != ucs_status_t::ok) wanted = nullptr;
  check(status, only_rdma ? "it finds no RDMA device" : "it finds no device");
  return wanted;
}

}  // namespace tutti::base
