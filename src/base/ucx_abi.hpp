// SPDX-License-Identifier: Apache-2.0
// The part of UCX's C interface that tutti uses, by declarations of its own: libucp.so.0 is opened at run time, and
// nothing of UCX is needed to build.
//
// The names, sizes and numbers are those of UCX 1.13; up to 1.22 structures have only grown at their ends. A test
// compares them with ucp.h where that is installed. A `mask` says which members of a structure are set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::base::ucx_abi {

// One byte in UCX: a packed enumeration. A function that returns it leaves the rest of the register undefined.
enum class ucs_status_t : std::int8_t {
  ok = 0,
  in_progress = 1,
  no_device = -8,
  busy = -15,
  canceled = -16,
  unreachable = -6,
  rejected = -23,
  last = -100
};

// Null: done. Otherwise a request, or an error.
using ucs_status_ptr_t = void*;
inline bool is_error(ucs_status_ptr_t p) noexcept {
  return reinterpret_cast<std::uintptr_t>(p) >= static_cast<std::uintptr_t>(ucs_status_t::last);
}
inline ucs_status_t error_of(ucs_status_ptr_t p) noexcept {
  return static_cast<ucs_status_t>(static_cast<std::int8_t>(reinterpret_cast<std::intptr_t>(p)));
}

struct ucp_address;
struct ucp_config;
struct ucp_context;
struct ucp_ep;
struct ucp_worker;

struct ucp_params_t {
  static constexpr std::uint64_t has_features = 1, has_mt_workers_shared = 1 << 5, has_endpoints = 1 << 6;
  static constexpr std::uint64_t active_messages = 1 << 6, wakeup = 1 << 4;  // features
  std::uint64_t mask = 0;
  std::uint64_t features = 0;
  std::size_t request_size = 0;
  void (*request_init)(void*) = nullptr;
  void (*request_cleanup)(void*) = nullptr;
  std::uint64_t tag_sender_mask = 0;
  int mt_workers_shared = 0;
  std::size_t endpoints = 0;  // expected number
  std::size_t ppn = 0;
  const char* name = nullptr;
  std::uint64_t later_versions[2] = {};
};

struct ucp_worker_params_t {
  static constexpr std::uint64_t has_thread_mode = 1, has_events = 1 << 2;
  static constexpr unsigned sent = 1 << 10, received = 1 << 11;  // events
  static constexpr int serialized = 1;                           // several threads, one at a time
  std::uint64_t mask = 0;
  int thread_mode = 0;
  std::uint64_t cpu_mask[16] = {};
  unsigned events = 0;
  void* user_data = nullptr;
  int event_fd = -1;
  std::uint64_t flags = 0;
  const char* name = nullptr;
  std::size_t am_alignment = 0;
  std::uint64_t client_id = 0;
};

struct ucp_worker_attr_t {
  static constexpr std::uint64_t has_address = 1 << 1;
  std::uint64_t mask = 0;
  int thread_mode = 0;
  std::uint32_t address_flags = 0;
  ucp_address* address = nullptr;
  std::size_t address_length = 0;
  std::size_t max_am_header = 0;
  char name[32] = {};
  std::size_t max_debug_string = 0;
};

struct ucp_ep_params_t {
  static constexpr std::uint64_t has_address = 1, has_error_mode = 1 << 1, has_error_handler = 1 << 2;
  std::uint64_t mask = 0;
  const ucp_address* address = nullptr;
  int error_mode = 0;
  void (*error_handler)(void* argument, ucp_ep*, ucs_status_t) = nullptr;
  void* error_argument = nullptr;
  void* user_data = nullptr;
  unsigned flags = 0;
  const void* sockaddr = nullptr;
  std::uint32_t sockaddr_length = 0;
  void* conn_request = nullptr;
  const char* name = nullptr;
  const void* local_sockaddr = nullptr;
  std::uint32_t local_sockaddr_length = 0;
};
inline constexpr int report_peer_errors = 1;

struct ucp_request_param_t {
  static constexpr std::uint32_t has_callback = 1 << 1, has_user_data = 1 << 2, has_flags = 1 << 4;
  using send_callback = void (*)(void* request, ucs_status_t, void* user_data);
  using receive_callback = void (*)(void* request, ucs_status_t, std::size_t length, void* user_data);
  std::uint32_t mask = 0;
  std::uint32_t flags = 0;
  void* request = nullptr;
  union {
    send_callback sent;
    receive_callback received;
  } callback = {nullptr};
  std::uint64_t datatype = 0;
  void* user_data = nullptr;
  void* reply_buffer = nullptr;
  int memory_type = 0;
  std::size_t* length = nullptr;
  void* memory = nullptr;
  std::uint64_t later_versions[3] = {};
};
inline constexpr std::uint32_t send_eager = 1 << 1, send_rendezvous = 1 << 2;  // of an active message
inline constexpr std::uint32_t close_force = 1;                                // of an endpoint

struct ucp_am_recv_param_t {
  static constexpr std::uint64_t is_rendezvous = 1 << 17;
  std::uint64_t attributes;
  ucp_ep* reply;
};

struct ucp_am_handler_param_t {
  static constexpr std::uint64_t has_id = 1, has_callback = 1 << 2, has_argument = 1 << 3;
  using am_callback = ucs_status_t (*)(void* argument, const void* header, std::size_t header_length,
                                       void* data, std::size_t length, const ucp_am_recv_param_t*);
  std::uint64_t mask = 0;
  unsigned id = 0;
  std::uint32_t flags = 0;
  am_callback callback = nullptr;
  void* argument = nullptr;
};

struct ucp_transport_entry_t {
  const char* transport = nullptr;
  const char* device = nullptr;
};
struct ucp_ep_attr_t {  // `transports` since 1.14
  static constexpr std::uint64_t has_transports = 1 << 3;
  std::uint64_t mask = 0;
  char name[32] = {};
  char local_sockaddr[128] = {};
  char remote_sockaddr[128] = {};
  ucp_transport_entry_t* entries = nullptr;
  unsigned entries_count = 0;
  std::size_t entry_size = sizeof(ucp_transport_entry_t);
  std::uint64_t later_versions[2] = {};
};

// The functions: name, result, parameters.
#define TUTTI_UCX_FUNCTIONS(F)                                                                  \
  F(ucp_get_version, void, (unsigned* major, unsigned* minor, unsigned* release))               \
  F(ucp_config_read, ucs_status_t, (const char* prefix, const char* file, ucp_config**))        \
  F(ucp_config_modify, ucs_status_t, (ucp_config*, const char* name, const char* value))        \
  F(ucp_config_release, void, (ucp_config*))                                                    \
  F(ucp_init_version, ucs_status_t,                                                             \
    (unsigned major, unsigned minor, const ucp_params_t*, const ucp_config*, ucp_context**))    \
  F(ucp_worker_create, ucs_status_t, (ucp_context*, const ucp_worker_params_t*, ucp_worker**))  \
  F(ucp_worker_destroy, void, (ucp_worker*))                                                    \
  F(ucp_worker_query, ucs_status_t, (ucp_worker*, ucp_worker_attr_t*))                          \
  F(ucp_worker_release_address, void, (ucp_worker*, ucp_address*))                              \
  F(ucp_worker_progress, unsigned, (ucp_worker*))                                               \
  F(ucp_worker_get_efd, ucs_status_t, (ucp_worker*, int*))                                      \
  F(ucp_worker_arm, ucs_status_t, (ucp_worker*))                                                \
  F(ucp_worker_set_am_recv_handler, ucs_status_t, (ucp_worker*, const ucp_am_handler_param_t*)) \
  F(ucp_ep_create, ucs_status_t, (ucp_worker*, const ucp_ep_params_t*, ucp_ep**))               \
  F(ucp_ep_close_nbx, ucs_status_ptr_t, (ucp_ep*, const ucp_request_param_t*))                  \
  F(ucp_am_send_nbx, ucs_status_ptr_t,                                                          \
    (ucp_ep*, unsigned id, const void* header, std::size_t header_length, const void* buffer,   \
     std::size_t length, const ucp_request_param_t*))                                           \
  F(ucp_am_recv_data_nbx, ucs_status_ptr_t,                                                     \
    (ucp_worker*, void* data, void* buffer, std::size_t length, const ucp_request_param_t*))    \
  F(ucp_am_data_release, void, (ucp_worker*, void* data))                                       \
  F(ucp_request_free, void, (void* request))                                                    \
  F(ucp_ep_query, ucs_status_t, (ucp_ep*, ucp_ep_attr_t*))

struct functions {
#define TUTTI_UCX_DECLARE(name, result, parameters) result(*name) parameters = nullptr;
  TUTTI_UCX_FUNCTIONS(TUTTI_UCX_DECLARE)
#undef TUTTI_UCX_DECLARE
};

}  // namespace tutti::base::ucx_abi
