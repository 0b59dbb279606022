// SPDX-License-Identifier: Apache-2.0
// etcd_client: requests to the members of an etcd cluster, by the JSON gateway of its version 3 (HTTP/1.1).
#pragma once

#include "core/platform.hpp"
#include "core/socket_io.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <tutti/task.hpp>
#include <tutti/tls.hpp>
#include <vector>

namespace tutti::bootstrap {

struct etcd_member {
  std::string host;
  std::uint16_t port = 0;
};

// What "etcd://host:port[,host:port...]/JOB" names. With "etcds://" the members speak TLS.
struct etcd_place {
  std::vector<etcd_member> members;
  std::string job;
  bool tls = false;
};
bool is_etcd_url(std::string_view text) noexcept;
// Throws errc::invalid_argument, with the text and the cure. The port is 2379 if there is none.
etcd_place parse_etcd_url(const std::string& url);

// The lease of a key has expired, and the key with it.
struct lease_expired final : error {
  using error::error;
};

class etcd_client {
 public:
  etcd_client(boost::asio::any_io_executor executor, std::vector<etcd_member> members, tls_identity tls);

  // Sends a request to one member after another until one answers, and returns its answer. So a member may get a
  // request that another one has carried out: the request is one that may be repeated. `title` begins the texts of
  // errors.
  // Errors: timed_out (no member answered by the deadline), protocol (no etcd), invalid_argument (members of
  // different clusters), resources (a limit of etcd), unauthorized, lease_expired; and those of a stopped scope.
  task<nlohmann::json> call(std::string path, nlohmann::json request, core::time_point deadline,
                            std::string title);
  // Completes when the key is set at this revision of the cluster or a later one, and returns its value. Returns nullopt
  // at `until`, or when the member has gone: then read the key again.
  // Errors: as of call(), but not timed_out.
  task<std::optional<std::string>> watch(std::string key, std::int64_t revision, core::time_point until,
                                         std::string title);

 private:
  struct connection {
    core::stream_socket socket;
    std::string read;  // and not parsed
  };
  struct answer_parser;

  task<connection> connect(std::size_t member, core::time_point deadline);
  task<nlohmann::json> ask(std::size_t member, std::string path, std::string body, core::time_point deadline);
  task<std::optional<std::string>> follow(std::size_t member, std::string body, core::time_point until);
  task<> send(connection& to, std::string path, const std::string& body, core::time_point deadline);
  static task<> receive(connection& from, answer_parser& parser, core::time_point deadline);
  std::string address_of(std::size_t member) const;
  // The end of one attempt: a member that hangs must leave time for the others.
  core::time_point limit_of_attempt(core::time_point deadline) const;
  void leave(std::size_t member);
  void check_cluster(const nlohmann::json& answer, std::size_t member);

  boost::asio::any_io_executor executor_;
  const std::vector<etcd_member> members_;
  const tls_identity tls_;
  std::size_t current_ = 0;       // the member that has answered last
  std::vector<connection> idle_;  // to it
  std::string cluster_;           // the id of the cluster; empty: not known yet
};

}  // namespace tutti::bootstrap
