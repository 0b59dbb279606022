// SPDX-License-Identifier: Apache-2.0
// TLS between the launchers of two nodes: the traffic, and their errors.
#include "support/contains.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#ifdef TUTTI_HAVE_TLS

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "launched.hpp"
#include "support/certificates.hpp"
#include "support/scratch_directory.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;

namespace {

using tutti::test::contains;

// Forwards connections to another address of this host, one after the other, and records every byte.
class relay {
 public:
  explicit relay(const std::string& to) {
    const std::size_t colon = to.find(':');
    to_.sin_family = AF_INET;
    REQUIRE(::inet_pton(AF_INET, to.substr(0, colon).c_str(), &to_.sin_addr) == 1);
    to_.sin_port = htons(static_cast<std::uint16_t>(std::stoi(to.substr(colon + 1))));
    sockaddr_in own = to_;
    own.sin_port = 0;
    socklen_t length = sizeof own;
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&own), length) == 0);
    REQUIRE(::listen(listener_.get(), 8) == 0);
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0);
    address_ = to.substr(0, colon + 1) + std::to_string(ntohs(own.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  relay(const relay&) = delete;
  relay& operator=(const relay&) = delete;
  ~relay() { stop(); }

  const std::string& address() const { return address_; }
  // Waits until both sides of the last connection have closed it. Returns the recorded bytes.
  const std::string& seen() {
    stop();
    return seen_;
  }

 private:
  void stop() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // ends accept()
    if (thread_.joinable()) thread_.join();
  }
  void serve() {
    for (;;) {
      const tutti::base::unique_fd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!caller) return;
      const tutti::base::unique_fd target(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      // Without a listener the caller tries again.
      if (::connect(target.get(), reinterpret_cast<const sockaddr*>(&to_), sizeof to_) != 0) continue;
      std::thread back([&] { pass_on(target.get(), caller.get()); });
      pass_on(caller.get(), target.get());
      back.join();
    }
  }
  void pass_on(int from, int to) {
    std::array<char, 4096> some;
    for (ssize_t got; (got = ::recv(from, some.data(), some.size(), 0)) > 0;) {
      {
        const std::lock_guard lock(mutex_);
        seen_.append(some.data(), static_cast<std::size_t>(got));
      }
      if (::send(to, some.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) != got) break;
    }
    ::shutdown(to, SHUT_WR);
  }

  sockaddr_in to_{};
  tutti::base::unique_fd listener_;
  std::string address_;
  std::mutex mutex_;
  std::string seen_;
  std::thread thread_;
};

std::unique_ptr<launched> start(int node, const std::string& master, words variables, const words& program) {
  words all = {"-n",       "1",    "--nnodes",       "2",  "--node-rank",  std::to_string(node),
               "--master", master, "--join-timeout", "20", "--tag-output", "never"};
  all.insert(all.end(), program.begin(), program.end());
  variables.insert(variables.end(), {"TUTTI_SECRET=s", "TUTTI_HOST_ID=host" + std::to_string(node)});
  return std::make_unique<launched>(all, variables);
}

words files_of(const tutti::test::authority::issued& files, const std::string& authority) {
  return {"TUTTI_TLS=1", "TUTTI_TLS_CERTIFICATE=" + files.certificate, "TUTTI_TLS_KEY=" + files.key,
          "TUTTI_TLS_AUTHORITY=" + authority};
}

// Node 1 cannot join node 0, and both report it; empty: node 0 prints nothing. Node 0 goes on waiting, and is
// ended by a signal.
void check_turned_away(const words& first, const words& second, const std::string& said_by_first,
                       const std::string& said_by_second) {
  const std::string master = testing::free_address();
  const auto zero = start(0, master, first, {"true"});
  const ending turned_away = start(1, master, second, {"true"})->finish();
  CAPTURE(turned_away.error);
  CHECK(turned_away.exit_code == 1);
  CHECK(contains(turned_away.error, "cannot join node 0 at " + master));
  CHECK_FALSE(contains(turned_away.error, "nobody was there within"));  // at once
  CHECK(contains(turned_away.error, said_by_second));
  if (!said_by_first.empty()) zero->wait_for_error(said_by_first);
  zero->wait_until_it_takes_signals();
  zero->signal(SIGTERM);
  CHECK(contains(zero->finish().error, "somebody who called at --master was not let in") ==
        !said_by_first.empty());
}

const words with_tls = {"TUTTI_TLS=1"};

}  // namespace

TEST_SUITE("launch/node_tls") {
  TEST_CASE("no message between launchers can be read on the way") {
    TUTTI_NEEDS_TLS();
    for (const bool secured : {false, true}) {
      CAPTURE(secured);
      const words variables = secured ? with_tls : words{};
      const std::string master = testing::free_address();
      relay between(master);
      const auto first = start(0, master, variables, {"sleep", "1000"});
      const auto second =
          start(1, between.address(), variables, {"sh", "-c", "echo $TUTTI_JOB_ID; echo alas >&2; exit 7"});
      const ending on_second = second->finish(), on_first = first->finish();
      CHECK(on_first.exit_code == 7);
      CHECK(on_second.exit_code == 7);
      CHECK(contains(on_first.error, "| alas"));  // the output has arrived
      const std::string id = on_second.output.substr(0, on_second.output.find('\n'));
      REQUIRE(id.size() > 8);
      const std::string& seen = between.seen();
      CHECK(contains(seen, "tutti\r\n"));
      CHECK(contains(seen, "alas") == !secured);
      CHECK(contains(seen, id) == !secured);
    }
  }

  TEST_CASE("ranks and launchers over TLS, without files and with certificates of each") {
    TUTTI_NEEDS_TLS();
    const tutti::test::scratch_directory folder;
    const std::string directory = folder.path().string();
    const tutti::test::authority ours(directory, "ours");
    ours.issue("of-launcher");
    ours.issue("of-0", "URI:tutti:rank:0");
    ours.issue("of-1", "URI:tutti:rank:1");
    const words files = files_of({directory + "/of-%r.pem", directory + "/of-%r.key"}, ours.file());
    for (const words& variables : {with_tls, files}) {
      const std::string master = testing::free_address();
      const auto second = start(1, master, variables, {TUTTI_SUMS_PATH});
      const auto first = start(0, master, variables, {TUTTI_SUMS_PATH});
      for (const auto& each : {&first, &second}) {
        const ending end = (*each)->finish();
        CHECK_MESSAGE(end.exit_code == 0, end.error);
        CHECK(contains(end.output, "of 2: right\n"));
      }
    }
  }

  TEST_CASE("a launcher with TLS and one without, in either role") {
    TUTTI_NEEDS_TLS();
    check_turned_away(with_tls, {}, "does not use TLS, and this process uses it: set TUTTI_TLS to the same",
                      "uses TLS, and this process does not use it: set TUTTI_TLS to the same");
    check_turned_away({}, with_tls, "uses TLS, and this process does not use it: set TUTTI_TLS to the same",
                      "does not use TLS, and this process uses it: set TUTTI_TLS to the same");
  }

  TEST_CASE("certificates of another authority, expired ones, and those of ranks") {
    TUTTI_NEEDS_TLS();
    const tutti::test::scratch_directory folder;
    const std::string directory = folder.path().string();
    const tutti::test::authority ours(directory, "ours"), others(directory, "others");
    const words good = files_of(ours.issue("good"), ours.file());
    const words foreign = files_of(others.issue("foreign"), ours.file());
    const words expired = files_of(ours.issue("expired", "", -20, -10), ours.file());
    const words of_rank = files_of(ours.issue("of-rank", "URI:tutti:rank:0,URI:tutti:rank:1"), ours.file());
    check_turned_away(good, foreign, "its certificate is not accepted here", "TUTTI_TLS_AUTHORITY");
    check_turned_away(foreign, good, "TUTTI_TLS_AUTHORITY", "its certificate is not accepted here");
    check_turned_away(good, with_tls, "its certificate is not accepted here", "TUTTI_TLS_AUTHORITY");
    check_turned_away(good, expired, "certificate has expired; look at the certificates", "expired");
    check_turned_away(expired, good, "expired", "certificate has expired; look at the certificates");
    check_turned_away(good, of_rank, "give tutti-run one that names none", "this process is not tutti-run");
    check_turned_away(of_rank, good, "", "give tutti-run one that names none");
  }

  TEST_CASE("a file that cannot be read is named before anything is sent, and by --check") {
    TUTTI_NEEDS_TLS();
    words missing = with_tls;
    for (const char* name : {"CERTIFICATE", "KEY", "AUTHORITY"})
      missing.push_back(std::string("TUTTI_TLS_") + name + "=/no/such/file.pem");
    const ending end = start(1, testing::free_address(), missing, {"true"})->finish();
    CHECK(end.exit_code == 1);
    CHECK(contains(end.error, "TUTTI_TLS_CERTIFICATE (init_options::tls_certificate) '/no/such/file.pem'"));
    const ending checked = testing::launch({"--check"}, missing);
    CHECK(checked.exit_code == 1);
    CHECK(contains(checked.output, "'/no/such/file.pem'"));
    CHECK(
        contains(testing::launch({"--check"}, with_tls).output, "TLS: between launchers and between ranks"));
    CHECK(contains(testing::launch({"--check"}).output, "TLS: off"));
  }
}

#else

TEST_CASE("TLS between launchers") {
  TUTTI_SKIP("built without OpenSSL; for it: apt-get install libssl-dev");
}

#endif
