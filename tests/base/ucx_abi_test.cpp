// SPDX-License-Identifier: Apache-2.0
// Our declarations of UCX's interface match ucp.h, if that is installed.
#include "base/ucx_abi.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#if defined(TUTTI_HAVE_UCP_H)
#include <ucp/api/ucp.h>

#include <cstddef>

namespace {

namespace ours = tutti::base::ucx_abi;

#define TUTTI_SAME(type, theirs, mine) \
  static_assert(offsetof(ours::type, mine) == offsetof(::type, theirs), #type "::" #theirs)

static_assert(sizeof(ours::ucs_status_t) == sizeof(::ucs_status_t));
static_assert(int(ours::ucs_status_t::in_progress) == UCS_INPROGRESS);
static_assert(int(ours::ucs_status_t::busy) == UCS_ERR_BUSY);
static_assert(int(ours::ucs_status_t::rejected) == UCS_ERR_REJECTED);
static_assert(int(ours::ucs_status_t::last) == UCS_ERR_LAST);

// Structures grow at their ends, as in 1.23: UCX reads and writes no member that `mask` does not name, and so ours
// may be shorter. This one is UCX's.
static_assert(sizeof(ours::ucp_am_recv_param_t) <= sizeof(::ucp_am_recv_param_t));

TUTTI_SAME(ucp_params_t, field_mask, mask);
TUTTI_SAME(ucp_params_t, features, features);
TUTTI_SAME(ucp_params_t, mt_workers_shared, mt_workers_shared);
TUTTI_SAME(ucp_params_t, estimated_num_eps, endpoints);
TUTTI_SAME(ucp_worker_params_t, thread_mode, thread_mode);
TUTTI_SAME(ucp_worker_params_t, events, events);
TUTTI_SAME(ucp_worker_attr_t, address, address);
TUTTI_SAME(ucp_worker_attr_t, address_length, address_length);
TUTTI_SAME(ucp_ep_params_t, address, address);
TUTTI_SAME(ucp_ep_params_t, err_mode, error_mode);
TUTTI_SAME(ucp_ep_params_t, err_handler.cb, error_handler);
TUTTI_SAME(ucp_ep_params_t, err_handler.arg, error_argument);
TUTTI_SAME(ucp_request_param_t, op_attr_mask, mask);
TUTTI_SAME(ucp_request_param_t, flags, flags);
TUTTI_SAME(ucp_request_param_t, cb, callback);
TUTTI_SAME(ucp_request_param_t, user_data, user_data);
TUTTI_SAME(ucp_am_recv_param_t, recv_attr, attributes);
TUTTI_SAME(ucp_am_handler_param_t, id, id);
TUTTI_SAME(ucp_am_handler_param_t, cb, callback);
TUTTI_SAME(ucp_am_handler_param_t, arg, argument);

static_assert(ours::ucp_params_t::has_features == UCP_PARAM_FIELD_FEATURES &&
              ours::ucp_params_t::has_mt_workers_shared == UCP_PARAM_FIELD_MT_WORKERS_SHARED &&
              ours::ucp_params_t::has_endpoints == UCP_PARAM_FIELD_ESTIMATED_NUM_EPS &&
              ours::ucp_params_t::active_messages == UCP_FEATURE_AM &&
              ours::ucp_params_t::wakeup == UCP_FEATURE_WAKEUP);
static_assert(ours::ucp_worker_params_t::has_thread_mode == UCP_WORKER_PARAM_FIELD_THREAD_MODE &&
              ours::ucp_worker_params_t::has_events == UCP_WORKER_PARAM_FIELD_EVENTS &&
              ours::ucp_worker_params_t::serialized == UCS_THREAD_MODE_SERIALIZED &&
              ours::ucp_worker_params_t::sent == UCP_WAKEUP_TX &&
              ours::ucp_worker_params_t::received == UCP_WAKEUP_RX);
static_assert(ours::ucp_worker_attr_t::has_address == UCP_WORKER_ATTR_FIELD_ADDRESS);
static_assert(ours::ucp_ep_params_t::has_address == UCP_EP_PARAM_FIELD_REMOTE_ADDRESS &&
              ours::ucp_ep_params_t::has_error_mode == UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE &&
              ours::ucp_ep_params_t::has_error_handler == UCP_EP_PARAM_FIELD_ERR_HANDLER &&
              ours::report_peer_errors == UCP_ERR_HANDLING_MODE_PEER);
static_assert(ours::ucp_request_param_t::has_callback == UCP_OP_ATTR_FIELD_CALLBACK &&
              ours::ucp_request_param_t::has_user_data == UCP_OP_ATTR_FIELD_USER_DATA &&
              ours::ucp_request_param_t::has_flags == UCP_OP_ATTR_FIELD_FLAGS);
static_assert(ours::send_eager == UCP_AM_SEND_FLAG_EAGER && ours::send_rendezvous == UCP_AM_SEND_FLAG_RNDV &&
              ours::close_force == UCP_EP_CLOSE_FLAG_FORCE &&
              ours::ucp_am_recv_param_t::is_rendezvous == UCP_AM_RECV_ATTR_FLAG_RNDV);
static_assert(ours::ucp_am_handler_param_t::has_id == UCP_AM_HANDLER_PARAM_FIELD_ID &&
              ours::ucp_am_handler_param_t::has_callback == UCP_AM_HANDLER_PARAM_FIELD_CB &&
              ours::ucp_am_handler_param_t::has_argument == UCP_AM_HANDLER_PARAM_FIELD_ARG);

}  // namespace
#endif

TEST_CASE("the declarations of UCX's interface match the installed ucp.h") {
#if !defined(TUTTI_HAVE_UCP_H)
  TUTTI_SKIP("ucp.h is not installed (apt-get install libucx-dev)");
#endif
}
