// SPDX-License-Identifier: Apache-2.0
// Host names that do not resolve, or not yet.
#include "bootstrap/address.hpp"

#include "base/unique_fd.hpp"
#include "core/wakeup.hpp"
#include "support/child.hpp"
#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <fstream>
#include <string>

using namespace tutti;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using bootstrap::endpoints;
using bootstrap::name_answer;
using bootstrap::name_lookup;
using test::failure;
using test::failure_of;
namespace asio = boost::asio;

namespace {

const tcp::endpoint somewhere(asio::ip::make_address("192.0.2.7"), 80);

// A name service that does not know the host for the first `unknown_until` queries.
int asked = 0;
int unknown_until = 0;
boost::system::error_code answer_for_unknown;

task<name_answer> ask_test_service(asio::any_io_executor, std::string, std::uint16_t,
                                   core::time_point deadline) {
  name_answer answer;
  if (core::clock::now() >= deadline)
    answer.code = asio::error::timed_out;  // like any name service
  else if (++asked <= unknown_until)
    answer.code = answer_for_unknown;
  else
    answer.found = {somewhere};
  co_return answer;
}

endpoints resolve(const std::string& host, std::chrono::milliseconds timeout,
                  name_lookup ask = ask_test_service) {
  asio::io_context context;
  return test::run_task(
      context, bootstrap::resolve_host(context.get_executor(), host, 80, core::deadline_after(timeout), ask));
}

}  // namespace

TEST_CASE("an IPv6 address may have the brackets that it has in front of a port") {
  const endpoints loopback{{asio::ip::address_v6::loopback(), 80}};
  CHECK(resolve("[::1]", 0ms) == loopback);
  CHECK(bootstrap::listening_addresses("[::1]", loopback) == loopback);
  CHECK(bootstrap::host_and_port("[::1]", 80) == "[::1]:80");
  CHECK(bootstrap::host_and_port("::1", 80) == "[::1]:80");
  answer_for_unknown = asio::error::host_not_found;
  asked = 0;
  unknown_until = 1;
  CHECK(failure_of([] { resolve("[127.0.0.1]", 50s); }).says("there is no host '[127.0.0.1]'"));
}

namespace {

// The output of `f` on standard error.
template <class F>
std::string said_by(F f) {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "said";
  const base::unique_fd before(::dup(STDERR_FILENO));
  const base::unique_fd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  ::dup2(file.get(), STDERR_FILENO);
  f();
  ::dup2(before.get(), STDERR_FILENO);
  return scratch.read(path);
}

}  // namespace

TEST_CASE("a name that is unknown at first is queried again") {
  for (const auto& code : {boost::system::error_code(asio::error::host_not_found),
                           boost::system::error_code(asio::error::host_not_found_try_again),
                           boost::system::error_code(asio::error::no_data)}) {
    CAPTURE(code.message());
    asked = 0;
    unknown_until = 2;
    answer_for_unknown = code;
    CHECK(resolve("node-7.cluster", 50s) == endpoints{somewhere});
    CHECK(asked == 3);
  }
}

TEST_CASE("an error that waiting cannot cure is reported at once") {
  unknown_until = 1000;
  const auto refused = [](const std::string& host, boost::system::error_code code) {
    CAPTURE(host);
    asked = 0;
    answer_for_unknown = code;
    const failure f = failure_of([&] { resolve(host, 50s); });
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says("no host '" + host + "'"), f.text);
    CHECK(asked == 1);
  };
  const std::string long_label(64, 'a');
  for (const std::string& malformed :
       {std::string(), std::string("no host"), std::string("host:80"), std::string("tcp://host"),
        std::string("a..b"), std::string(".a"), std::string("host.."), std::string("10.0.0.256"),
        std::string("1.2.3"), long_label, long_label.substr(1) + "." + std::string(250, 'b')})
    refused(malformed, asio::error::host_not_found);
  refused("node-7.cluster", asio::error::no_recovery);
}

TEST_CASE("names with unusual characters are waited for") {
  answer_for_unknown = asio::error::host_not_found;
  for (const char* host : {"n", "node_7", "NODE-7.Cluster.", "7node", "10.0.0.1.example",
                           "n\xc3\xb6"
                           "de"}) {
    CAPTURE(host);
    asked = 0;
    unknown_until = 1;
    CHECK(resolve(host, 50s) == endpoints{somewhere});
  }
}

TEST_CASE("the wait is announced once, and ends at the deadline") {
  asked = 0;
  unknown_until = 1000;
  answer_for_unknown = asio::error::host_not_found_try_again;
  failure f;
  const std::string said = said_by([&] { f = failure_of([] { resolve("node-7.cluster", 800ms); }); });
  CHECK(f.code == errc::invalid_argument);
  CHECK_MESSAGE(f.says("no host 'node-7.cluster'"), f.text);
  CHECK(asked >= 3);
  const std::size_t first = said.find("waiting for the host name 'node-7.cluster'");
  CHECK_MESSAGE(first != said.npos, said);
  CHECK_MESSAGE(said.find("waiting", first + 1) == said.npos, said);
}

TEST_CASE("numeric addresses need no name service") {
  asked = 0;
  CHECK(resolve("192.0.2.7", 0ms) == endpoints{somewhere});
  CHECK(asked == 0);
  CHECK(bootstrap::resolve_host_blocking("192.0.2.7", 80, core::deadline_after(0ms)) == endpoints{somewhere});
}

namespace {

std::string hosts_file;

// The system's name service, in which the host appears after the first query.
task<name_answer> ask_system_and_add_host(asio::any_io_executor executor, std::string host,
                                          std::uint16_t port, core::time_point deadline) {
  name_answer answer = co_await bootstrap::ask_system(executor, host, port, deadline);
  if (++asked == 1) {
    unknown_until = answer.code ? 1 : 0;
    std::ofstream(hosts_file, std::ios::app) << "192.0.2.7 " << host << "\n";
  }
  co_return answer;
}

}  // namespace

TEST_CASE("a host that appears in the system's name service is found") {
  const test::scratch_directory scratch;
  hosts_file = scratch.write("hosts", "127.0.0.1 localhost\n");
  const std::string order = scratch.write("order", "hosts: files\n");
  test::child own_mounts([&](const auto&) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(hosts_file.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(order.c_str(), "/etc/nsswitch.conf", nullptr, MS_BIND, nullptr) != 0)
      return 77;
    asked = 0;
    const endpoints found = resolve("node-7.cluster", 50s, ask_system_and_add_host);
    return found == endpoints{somewhere} && unknown_until == 1 && asked >= 2 ? 0 : 1;
  });
  const int code = own_mounts.end();
  if (code == 77) TUTTI_SKIP("only root can mount an /etc/hosts of the test's own");
  CHECK(code == 0);
}
