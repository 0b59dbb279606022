// SPDX-License-Identifier: Apache-2.0
// ucx-perf: tutti-perf with UCX's tagged messages: the layer below the MPIs, without them. The loops equal
// those of rounds.cpp: change both together. UCX_TLS=shm,self or tcp,self selects the transport. PERF_BENEATH_TUTTI=1:
// endpoints that report errors, as tutti makes them; "ucx" is then the transport that is reported.
//   UCX_TLS=tcp,self ucx-perf latency
#include "common/forked_program.hpp"

#include <ucp/api/ucp.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using perf::command;

const perf::program_names names{
    "ucx-perf", "", false, {command::latency, command::bandwidth, command::message_rate, command::startup}};

void require(ucs_status_t status, const char* what) {
  if (status != UCS_OK) throw std::runtime_error(std::string(what) + ": " + ucs_status_string(status));
}

constexpr std::size_t most_address_bytes = 1024;
struct address {
  std::uint64_t bytes = 0;
  std::array<std::byte, most_address_bytes> text{};
};

class ucx_world : public perf::forked_world {
 public:
  ucx_world(const perf::forked_world& control, const perf::options&, int) : forked_world(control) {
    ucp_params_t wanted{};
    wanted.field_mask = UCP_PARAM_FIELD_FEATURES;
    wanted.features = UCP_FEATURE_TAG;
    ucp_config_t* config = nullptr;
    require(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    const ucs_status_t made = ucp_init(&wanted, config, &context_);
    ucp_config_release(config);
    require(made, "ucp_init");
    ucp_worker_params_t single{};
    single.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    single.thread_mode = UCS_THREAD_MODE_SINGLE;
    require(ucp_worker_create(context_, &single, &worker_), "ucp_worker_create");
    connect();
  }
  // Closing endpoints needs the peer. The process ends here, so the kernel frees everything.
  ~ucx_world() { perf::forked_world::barrier(); }
  ucx_world(const ucx_world&) = delete;
  ucx_world& operator=(const ucx_world&) = delete;

  // The first messages of a pair also connect it.
  void barrier() {
    if (!connected_) {
      connected_ = true;
      std::uint64_t sent = 1, received = 0;
      if (size() % 2 == 0) {
        void* const sending = start_send(std::as_bytes(std::span(&sent, 1)));
        wait(start_receive(std::as_writable_bytes(std::span(&received, 1))));
        wait(sending);
      }
    }
    perf::forked_world::barrier();
  }

  static std::string library() {
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    return "UCX " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  }
  // The transport requested in UCX_TLS. UCX maps memory in several ways, some without a name.
  static std::string transport() {
    if (beneath()) return "ucx";
    const char* const told = std::getenv("UCX_TLS");
    const std::string words = told != nullptr ? told : "";
    if (words.find("tcp") != words.npos) return words.find("shm") != words.npos ? "shm and tcp" : "tcp";
    return "shm";
  }

  void run_rounds(perf::message_pair* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (data->begins()) wait(start_send(data->out()));
      wait(start_receive(data->in()));
      data->sample();
      if (!data->begins()) wait(start_send(data->out()));
    }
  }

  void run_rounds(perf::message_window* data, std::int64_t rounds) {
    std::vector<void*> pending(static_cast<std::size_t>(data->slots()));
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (int i = 0; i < data->slots(); ++i)
        pending[static_cast<std::size_t>(i)] =
            rank() == 0 ? start_send(data->slot(i)) : start_receive(data->slot(i));
      for (void* const one : pending) wait(one);
      std::int64_t arrived = round;
      const std::span<std::byte> answer = std::as_writable_bytes(std::span(&arrived, 1));
      if (rank() == 0) {
        wait(start_receive(answer));
        data->sample_answer(arrived, round);
      } else {
        data->sample();
        wait(start_send(answer));
      }
    }
  }

 private:
  static bool beneath() { return std::getenv("PERF_BENEATH_TUTTI") != nullptr; }
  static void ignore_error(void*, ucp_ep_h, ucs_status_t) {}

  void connect() {
    ucp_address_t* own = nullptr;
    std::size_t own_bytes = 0;
    require(ucp_worker_get_address(worker_, &own, &own_bytes), "ucp_worker_get_address");
    if (own_bytes > most_address_bytes) throw std::length_error("the address of UCX is longer than expected");
    address mine;
    mine.bytes = own_bytes;
    std::memcpy(mine.text.data(), own, own_bytes);
    ucp_worker_release_address(worker_, own);
    std::vector<address> all(static_cast<std::size_t>(size()));
    gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    ucp_ep_params_t to{};
    to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    to.address =
        reinterpret_cast<const ucp_address_t*>(all[static_cast<std::size_t>(rank() ^ 1)].text.data());
    if (beneath()) {
      to.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      to.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      to.err_handler.cb = ignore_error;
    }
    require(ucp_ep_create(worker_, &to, &peer_), "ucp_ep_create");
  }

  void* start_send(std::span<const std::byte> bytes) {
    const ucp_request_param_t plain{};
    return ucp_tag_send_nbx(peer_, bytes.data(), bytes.size(), 1, &plain);
  }
  void* start_receive(std::span<std::byte> bytes) {
    const ucp_request_param_t plain{};
    return ucp_tag_recv_nbx(worker_, bytes.data(), bytes.size(), 1, ~ucp_tag_t{0}, &plain);
  }
  void wait(void* request) {
    if (request == nullptr) return;  // completed at once
    if (UCS_PTR_IS_ERR(request)) require(UCS_PTR_STATUS(request), "UCX");
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) ucp_worker_progress(worker_);
    ucp_request_free(request);
    require(status, "UCX");
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h peer_ = nullptr;
  bool connected_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  return perf::run_forked_program<ucx_world>(argc, argv, names, [](const perf::options&) { return 0; });
}
