// SPDX-License-Identifier: Apache-2.0
// A cluster of etcd for a test, of one member or more, on free ports and in a directory of its own.
#pragma once

#include "support/child.hpp"
#include "support/listening_socket.hpp"
#include "support/scratch_directory.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// At the beginning of a test case that needs it.
#define TUTTI_NEEDS_ETCD()                                                                                \
  do {                                                                                                    \
    if (!::tutti::test::has_etcd())                                                                       \
      TUTTI_SKIP("etcd is not installed: apt-get install etcd-server, which also starts one of its own"); \
  } while (false)

namespace tutti::test {

inline bool has_etcd() {
  static const bool found = std::system("command -v etcd >/dev/null 2>&1") == 0;
  return found;
}

class etcd_cluster {
 public:
  // `scheme` is that of the client addresses.
  explicit etcd_cluster(std::size_t members, std::vector<std::string> more_options = {},
                        std::string scheme = "http")
      : options_(std::move(more_options)), scheme_(std::move(scheme)), members_(members) {
    std::vector<base::unique_fd> held;  // until all are known, so that they differ
    for (member& each : members_) {
      held.push_back(listening_socket(each.client_port));
      held.push_back(listening_socket(each.peer_port));
    }
    held.clear();
    for (std::size_t i = 0; i < members; ++i) start(i);
  }
  std::size_t size() const noexcept { return members_.size(); }
  // "etcd://127.0.0.1:4711,127.0.0.1:4712/JOB"
  std::string url(const std::string& job) const {
    std::string list;
    for (std::size_t i = 0; i < members_.size(); ++i) list += (i == 0 ? "" : ",") + address(i);
    return "etcd://" + list + "/" + job;
  }
  std::string address(std::size_t i) const { return "127.0.0.1:" + std::to_string(port(i)); }
  std::uint16_t port(std::size_t i) const { return members_[i].client_port; }
  child& process(std::size_t i) { return *members_[i].process; }
  void kill(std::size_t i) { members_[i].process.reset(); }
  // Starts a member, with what it has stored before.
  void start(std::size_t i) {
    std::string peers;
    for (std::size_t k = 0; k < members_.size(); ++k)
      peers += (k == 0 ? "m" : ",m") + std::to_string(k) + "=" + at(members_[k].peer_port);
    const member& mine = members_[i];
    const std::string name = "m" + std::to_string(i);
    std::vector<std::string> words{"etcd",
                                   "--name",
                                   name,
                                   "--data-dir",
                                   scratch_.path() / name,
                                   "--listen-client-urls",
                                   client_url(mine),
                                   "--advertise-client-urls",
                                   client_url(mine),
                                   "--listen-peer-urls",
                                   at(mine.peer_port),
                                   "--initial-advertise-peer-urls",
                                   at(mine.peer_port),
                                   "--initial-cluster",
                                   peers,
                                   "--heartbeat-interval",
                                   "50",
                                   "--election-timeout",
                                   "500"};
    words.insert(words.end(), options_.begin(), options_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string log = scratch_.path() / (name + ".log");
    members_[i].process = std::make_unique<child>([&](const auto&) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(out, 1);
      ::dup2(out, 2);
      ::execvp("etcd", arguments.data());
      return 98;
    });
  }

 private:
  struct member {
    std::uint16_t client_port = 0;
    std::uint16_t peer_port = 0;
    std::unique_ptr<child> process;
  };
  std::string client_url(const member& of) const {
    return scheme_ + "://127.0.0.1:" + std::to_string(of.client_port);
  }
  static std::string at(std::uint16_t port) { return "http://127.0.0.1:" + std::to_string(port); }

  const scratch_directory scratch_;
  const std::vector<std::string> options_;
  const std::string scheme_;
  std::vector<member> members_;
};

}  // namespace tutti::test
