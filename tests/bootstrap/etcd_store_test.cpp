// SPDX-License-Identifier: Apache-2.0
// etcd_store, on real etcd: what all stores do, members that die, and what is no etcd.
#include "base/base64.hpp"
#include "bootstrap/etcd_client.hpp"
#include "bootstrap/store_conformance.hpp"
#include "core/wakeup.hpp"
#include "support/certificates.hpp"
#include "support/etcd.hpp"
#include "support/run_task.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <tutti/store.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using nlohmann::json;
using test::failure;
using test::failure_of;
using test::run_task;

namespace {

std::unique_ptr<etcd_store> join(boost::asio::io_context& context, const std::string& url,
                                 std::chrono::milliseconds timeout = 50s) {
  return run_task(context, etcd_store::connect(context.get_executor(), url, timeout));
}

// A job that nobody has had.
std::string new_job() {
  static int number = 0;
  return "job " + std::to_string(++number);
}

// Starts with the first test that uses it, and serves all of this process.
test::etcd_cluster& shared_cluster() {
  static test::etcd_cluster one(1);
  return one;
}

// The member's answer to a request that is no store's.
json ask(const test::etcd_cluster& cluster, std::size_t member, const char* path,
         const json& request = json::object()) {
  boost::asio::io_context context;
  bootstrap::etcd_client client(context.get_executor(), {{"127.0.0.1", cluster.port(member)}}, nullptr);
  return run_task(context, client.call(path, request, core::deadline_after(50s), "a test"));
}

std::string lease_of(const std::string& job, const std::string& key) {
  json range = json::object();
  range["key"] = base::to_base64("tutti/" + job + "/key/" + key);
  return ask(shared_cluster(), 0, "/v3/kv/range", range)["kvs"][0]["lease"].get<std::string>();
}

void revoke(const std::string& lease) {
  json revoked = json::object();
  revoked["ID"] = lease;
  ask(shared_cluster(), 0, "/v3/lease/revoke", revoked);
}

std::size_t leader_of(const test::etcd_cluster& cluster) {
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    const json status = ask(cluster, i, "/v3/maintenance/status");
    if (status["header"]["member_id"] == status.value("leader", "")) return i;
  }
  throw std::runtime_error("the cluster has no leader");
}

// Passes bytes between users and a member, and loses answers to transactions that the member has carried out.
class losing_relay {
 public:
  explicit losing_relay(std::uint16_t to) : to_(to), listener_(test::listening_socket(port)) {
    accepting_ = std::thread([this] {
      for (int fd; (fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
        threads_.emplace_back([this, fd] { pass(base::unique_fd(fd)); });
    });
  }
  // All users have left.
  ~losing_relay() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& each : threads_) each.join();
  }
  void lose(int answers) { to_lose_ = answers; }
  int still_to_lose() const { return to_lose_; }
  std::uint16_t port = 0;

 private:
  void pass(base::unique_fd user) {
    base::unique_fd member(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(to_);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(member.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return;
    std::vector<char> bytes(std::size_t{64} << 10);
    for (bool loses = false;;) {
      pollfd both[] = {{user.get(), POLLIN, 0}, {member.get(), POLLIN, 0}};
      if (::poll(both, 2, -1) < 0) return;
      const bool from_user = both[0].revents != 0;
      const ssize_t got = ::recv(from_user ? user.get() : member.get(), bytes.data(), bytes.size(), 0);
      if (got <= 0) return;
      const std::string_view text(bytes.data(), static_cast<std::size_t>(got));
      if (from_user && text.starts_with("POST /v3/kv/txn")) loses = to_lose_ > 0;
      if (!from_user && loses) {
        --to_lose_;
        return;
      }
      if (::send(from_user ? member.get() : user.get(), bytes.data(), text.size(), MSG_NOSIGNAL) != got)
        return;
    }
  }

  const std::uint16_t to_;
  base::unique_fd listener_;
  std::atomic<int> to_lose_{0};
  std::vector<std::thread> threads_;  // of accepting_, until it has ended
  std::thread accepting_;
};

// Gives every connection the same answer to its first bytes.
class something_else {
 public:
  explicit something_else(std::string answer) : listener_(test::listening_socket(port)) {
    accepting_ = std::thread([this, answer = std::move(answer)] {
      for (int fd; (fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        const base::unique_fd user(fd);
        char bytes[4096];
        if (::recv(fd, bytes, sizeof bytes, 0) > 0)
          static_cast<void>(::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL));
        ::shutdown(fd, SHUT_WR);
        while (::recv(fd, bytes, sizeof bytes, 0) > 0) {
        }
      }
    });
  }
  ~something_else() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
  }
  std::string url() const { return "etcd://127.0.0.1:" + std::to_string(port) + "/job"; }
  std::uint16_t port = 0;

 private:
  base::unique_fd listener_;
  std::thread accepting_;
};

failure failure_to_join(const std::string& url, std::chrono::milliseconds timeout = 50s) {
  boost::asio::io_context context;
  return failure_of([&] { join(context, url, timeout); });
}

void check_says(const failure& f, errc code, std::initializer_list<const char*> parts) {
  CHECK_MESSAGE(f.code == code, f.text);
  for (const char* part : parts) CHECK_MESSAGE(f.says(part), f.text);
}

}  // namespace

TEST_CASE("etcd_store conforms to the interface of stores") {
  TUTTI_NEEDS_ETCD();
  boost::asio::io_context context;
  const std::string url = shared_cluster().url(new_job());
  const auto a = join(context, url);
  const auto b = join(context, url);
  test::check_store(context, *a, *b);
}

TEST_CASE("jobs do not see each other's keys") {
  TUTTI_NEEDS_ETCD();
  boost::asio::io_context context;
  const auto a = join(context, shared_cluster().url(new_job()));
  const auto b = join(context, shared_cluster().url(new_job()));
  run_task(context, a->set("k", "v"));
  CHECK(run_task(context, b->count()) == 0);
}

TEST_CASE("changes of many users at once are all counted") {
  TUTTI_NEEDS_ETCD();
  const std::string url = shared_cluster().url(new_job());
  constexpr int users = 4, changes = 15;
  const auto failures = test::run_threads(users, [&](int user) {
    boost::asio::io_context context;
    const auto mine = join(context, url);
    for (int i = 0; i < changes; ++i) {
      run_task(context, mine->add("sum", 1));
      run_task(context, mine->append("text", std::to_string(user)));
    }
  });
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  boost::asio::io_context context;
  const auto reads = join(context, url);
  CHECK(run_task(context, reads->add("sum", 0)) == users * changes);
  CHECK(run_task(context, reads->get("text")).size() == std::size_t{users * changes});
}

TEST_CASE("a change whose answer is lost is carried out once") {
  TUTTI_NEEDS_ETCD();
  losing_relay relay(shared_cluster().port(0));
  boost::asio::io_context context;
  const auto store = join(context, "etcd://127.0.0.1:" + std::to_string(relay.port) + "/" + new_job());
  const auto losing = [&](int answers, auto change) {
    relay.lose(answers);
    auto result = run_task(context, change());
    CHECK(relay.still_to_lose() == 0);
    return result;
  };
  for (int answers = 1; answers <= 3; ++answers) {
    CHECK(losing(answers, [&] { return store->add("sum", 1); }) == answers);
    CHECK(losing(answers, [&] { return store->append("text", "x"); }) == static_cast<std::size_t>(answers));
    const std::string key = "new " + std::to_string(answers);
    const store_exchange made = losing(answers, [&] { return store->compare_exchange(key, "", "v"); });
    CHECK(made.exchanged);
    CHECK(losing(answers, [&] { return store->erase(key); }));
  }
}

TEST_CASE("the leader of three members is killed between changes") {
  TUTTI_NEEDS_ETCD();
  test::etcd_cluster cluster(3);
  const std::string url = cluster.url(new_job());
  constexpr int least = 40;
  std::atomic<bool> killed{false};
  std::promise<void> both_change;
  std::atomic<int> changing{0};
  std::mutex lock;
  std::set<std::int64_t> sums;
  std::size_t changes = 0;
  std::thread killer([&] {
    both_change.get_future().wait();
    cluster.kill(leader_of(cluster));
    killed = true;
  });
  const auto failures = test::run_threads(3, [&](int user) {
    boost::asio::io_context context;
    const auto mine = join(context, url);
    if (user == 2) return run_task(context, mine->wait("end"));
    for (int i = 0; i < least || !killed; ++i) {
      const std::int64_t total = run_task(context, mine->add("sum", 1));
      const std::lock_guard held(lock);
      sums.insert(total);
      ++changes;
      if (i == 5 && ++changing == 2) both_change.set_value();
    }
    if (user == 0) run_task(context, mine->set("end", ""));
  });
  killer.join();
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  CHECK(sums.size() == changes);
  CHECK(*sums.rbegin() == static_cast<std::int64_t>(changes));
}

TEST_CASE("etcd is gone, and comes back") {
  TUTTI_NEEDS_ETCD();
  test::etcd_cluster cluster(1);
  boost::asio::io_context context;
  const auto store = join(context, cluster.url(new_job()));
  test::waited w;
  core::background_tasks tasks;
  tasks.start(test::get_into(*store, "k", 50s, &w));
  run_task(context, store->set("other", "x"));
  cluster.kill(0);
  check_says(failure_of([&] { run_task(context, store->set("other", "y", 200ms)); }), errc::timed_out,
             {"set('other') on etcd_store", "no etcd has answered", "endpoint health"});
  check_says(failure_of([&] { run_task(context, store->get("k", 200ms)); }), errc::timed_out, {"no etcd"});
  cluster.start(0);
  run_task(context, store->set("k", "v"));
  test::run_until(context, [&] { return w.done; });
  CHECK_MESSAGE(w.value == "v", w.how.text);

  cluster.process(0).stop();
  check_says(failure_of([&] { run_task(context, store->add("n", 1, 200ms)); }), errc::timed_out,
             {"add('n') on etcd_store", "did not answer in time", "endpoint health"});
  cluster.process(0).signal(SIGCONT);
  const std::int64_t total = run_task(context, store->add("n", 10));
  CHECK((total == 10 || total == 11));  // the one that was given up may have happened
}

TEST_CASE("keys that nobody has renewed are gone, and the store with them") {
  TUTTI_NEEDS_ETCD();
  const std::string job = new_job();
  boost::asio::io_context context;
  const auto store = join(context, shared_cluster().url(job));
  run_task(context, store->set("k", "v"));
  bootstrap::etcd_client client(context.get_executor(), {{"127.0.0.1", shared_cluster().port(0)}}, nullptr);
  const std::string lease =
      run_task(context, client.watch("tutti/" + job + "/lease", 1, core::deadline_after(20s), "a test"))
          .value_or("");
  revoke(lease);
  check_says(failure_of([&] { run_task(context, store->set("k", "v")); }), errc::peer_failed,
             {"contents are gone", "start the job anew"});
  check_says(failure_of([&] { run_task(context, store->get("k", 0ms)); }), errc::peer_failed, {"gone"});
  const auto next = join(context, shared_cluster().url(job));
  CHECK(run_task(context, next->count()) == 0);
}

TEST_CASE("a key that is held goes with its user, and comes back with it") {
  TUTTI_NEEDS_ETCD();
  const std::string job = new_job();
  boost::asio::io_context context, of_other;
  const auto store = join(context, shared_cluster().url(job));
  auto other = join(of_other, shared_cluster().url(job));
  run_task(context, store->hold("mine", "1", 2s));
  run_task(of_other, other->hold("others", "2", 2s));
  run_task(of_other, other->set("plain", "3"));
  CHECK(run_task(context, store->get("others")) == "2");
  other.reset();  // as if it had died
  core::wakeup pause(context.get_executor());
  for (std::size_t all = 3; all == 3;) {
    all = run_task(context, store->count());
    run_task(context, pause.wait(core::deadline_after(50ms)));
  }
  CHECK(run_task(context, store->get("mine")) == "1");
  CHECK(run_task(context, store->get("plain")) == "3");
  CHECK(run_task(context, store->count("others")) == 0);

  // etcd has removed it while this user was out of reach.
  revoke(lease_of(job, "mine"));
  CHECK(run_task(context, store->count("mine")) == 0);
  CHECK(run_task(context, store->get("mine")) == "1");
  CHECK(run_task(context, store->erase("mine")));
  CHECK(run_task(context, store->count("mine")) == 0);
  check_says(failure_of([&] { run_task(context, store->hold("mine", "1", 0s)); }), errc::invalid_argument,
             {"hold('mine')", "a second"});
}

TEST_CASE("a key that was held does not come back after an end of that") {
  TUTTI_NEEDS_ETCD();
  const std::string job = new_job();
  boost::asio::io_context context;
  const auto store = join(context, shared_cluster().url(job));
  std::vector<std::string> leases;
  for (const std::string key : {"erased", "exchanged", "set"}) {
    run_task(context, store->hold(key, "1", 2s));
    leases.push_back(lease_of(job, key));
  }
  CHECK(run_task(context, store->erase("erased")));
  CHECK(!run_task(context, store->compare_exchange("exchanged", "2", "")).exchanged);
  CHECK(run_task(context, store->compare_exchange("exchanged", "1", "")).exchanged);
  run_task(context, store->set("set", "2"));
  for (const std::string& lease : leases) revoke(lease);  // as after a while without renewal
  check_says(failure_of([&] { run_task(context, store->get("erased", 1500ms)); }), errc::timed_out, {});
  CHECK(run_task(context, store->count("exchanged")) == 0);
  CHECK(run_task(context, store->get("set")) == "2");
}

TEST_CASE("limits of etcd") {
  TUTTI_NEEDS_ETCD();
  boost::asio::io_context context;
  {
    test::etcd_cluster small(1, {"--max-request-bytes", "4096"});
    const auto store = join(context, small.url(new_job()));
    check_says(failure_of([&] { run_task(context, store->set("k", std::string(10'000, 'x'))); }),
               errc::resources, {"set('k')", "several keys", "--max-request-bytes"});
    run_task(context, store->set("k", "v"));
  }
  test::etcd_cluster full(1, {"--quota-backend-bytes", "2000000"});
  const auto store = join(context, full.url(new_job()));
  const failure f = failure_of([&] {
    for (int i = 0; i < 20; ++i) run_task(context, store->set(std::to_string(i), std::string(400'000, 'x')));
  });
  check_says(f, errc::resources, {"no space", "etcdctl compact", "--quota-backend-bytes"});
}

TEST_CASE("an etcd that asks for users") {
  TUTTI_NEEDS_ETCD();
  test::etcd_cluster cluster(1);
  ask(cluster, 0, "/v3/auth/user/add", {{"name", "root"}, {"password", "x"}});
  ask(cluster, 0, "/v3/auth/role/add", {{"name", "root"}});
  ask(cluster, 0, "/v3/auth/user/grant", {{"user", "root"}, {"role", "root"}});
  ask(cluster, 0, "/v3/auth/enable");
  check_says(failure_to_join(cluster.url(new_job())), errc::unauthorized,
             {"asks for a user", "etcdctl auth"});
}

#ifdef TUTTI_HAVE_TLS
TEST_CASE("TLS, with certificates of both sides") {
  TUTTI_NEEDS_ETCD();
  TUTTI_NEEDS_TLS();
  const test::scratch_directory scratch;
  const test::authority good(scratch.path(), "good"), bad(scratch.path(), "bad");
  const auto of_etcd = good.issue("etcd", "IP:127.0.0.1"), mine = good.issue("mine"),
             other = bad.issue("other");
  test::etcd_cluster cluster(1,
                             {"--cert-file", of_etcd.certificate, "--key-file", of_etcd.key,
                              "--trusted-ca-file", good.file(), "--client-cert-auth"},
                             "https");
  boost::asio::io_context context;
  const auto connect = [&](const std::string& scheme, const tls_identity& tls,
                           std::chrono::milliseconds timeout) {
    return run_task(context, etcd_store::connect(context.get_executor(), scheme + cluster.address(0) + "/job",
                                                 timeout, tls));
  };
  const tls_identity known = make_tls_identity(mine.certificate, mine.key, good.file());
  const auto store = connect("etcds://", known, 50s);
  run_task(context, store->set("k", std::string(1'000'000, 'x')));
  CHECK(run_task(context, store->get("k")).size() == 1'000'000);
  test::waited w;
  core::background_tasks tasks;
  tasks.start(test::get_into(*store, "later", 50s, &w));
  run_task(context, store->set("later", "v"));
  test::run_until(context, [&] { return w.done; });
  CHECK(w.value == "v");
  check_says(failure_of([&] {
               connect("etcds://", make_tls_identity(other.certificate, other.key, bad.file()), 50s);
             }),
             errc::unauthorized, {"TLS", "certificate"});
  CHECK(failure_of([&] { connect("etcd://", nullptr, 300ms); }).code != errc::success);
}
#endif

TEST_CASE("members of two clusters") {
  TUTTI_NEEDS_ETCD();
  // Both would have the same id, had they the same ports and names.
  test::etcd_cluster one(1), other(1);
  boost::asio::io_context context;
  const std::string job = new_job();
  const auto store = join(context, "etcd://" + one.address(0) + "," + other.address(0) + "/" + job);
  run_task(context, store->set("k", "v"));
  // Where the key is: a slow member is not waited for.
  const auto in_one = join(context, one.url(job));
  const bool is_one = run_task(context, in_one->compare_exchange("k", "", "")).value == "v";
  (is_one ? one : other).kill(0);
  check_says(failure_of([&] { run_task(context, store->set("k", "v")); }), errc::invalid_argument,
             {"another cluster", "one cluster only"});
}

TEST_CASE("what is no etcd") {
  for (const char* answer :
       {"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found", "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]",
        "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"header\":[1,2]}",
        "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n{"}) {
    const something_else there(answer);
    const failure f = failure_to_join(there.url());
    CHECK_MESSAGE(f.code == errc::protocol, f.text);
    CHECK_MESSAGE((f.says("is no etcd") || f.says("as etcd does")), f.text);
  }
  // What may pass is asked again.
  const something_else cut("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{");
  check_says(failure_to_join(cut.url(), 1s), errc::timed_out, {"joining etcd_store", "before its answer"});
  const something_else proxy("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
  check_says(failure_to_join(proxy.url(), 1s), errc::timed_out, {"HTTP status 503"});
  std::uint16_t port = 0;
  base::unique_fd silent = test::listening_socket(port);
  const std::string url = "etcd://127.0.0.1:" + std::to_string(port) + "/job";
  check_says(failure_to_join(url, 1s), errc::timed_out, {"no etcd has answered", "did not answer in time"});
  silent.reset();
  check_says(failure_to_join(url, 1s), errc::timed_out, {"no etcd has answered", "refused"});
}

TEST_CASE("texts that name no place in etcd") {
  for (const char* url :
       {"etcd://", "etcd://host", "etcd://host/", "etcd://host/job/", "etcd://:1/job", "etcd://host:0/job",
        "etcd://host:70000/job", "etcd://host:1,/job", "etcd://me@host/job", "http://host/job"}) {
    const failure f = failure_to_join(url);
    CHECK_MESSAGE(f.code == errc::invalid_argument, f.text);
    CHECK_MESSAGE(f.says("etcd://host:port[,host:port...]/JOB"), f.text);
  }
  check_says(failure_to_join("etcds://host/job"), errc::invalid_argument,
             {"TUTTI_TLS_CERTIFICATE", "etcd://"});
  const bootstrap::etcd_place place = bootstrap::parse_etcd_url("etcds://a,[::1]:7,b:8/x/y");
  REQUIRE(place.members.size() == 3);
  CHECK((place.members[0].host == "a" && place.members[0].port == 2379));
  CHECK((place.members[1].host == "::1" && place.members[1].port == 7));
  CHECK((place.members[2].host == "b" && place.members[2].port == 8));
  CHECK(place.job == "x/y");
  CHECK(place.tls);
}
