// SPDX-License-Identifier: Apache-2.0
// tutti::init by each method. Ranks are threads of one process, each with its own runtime.
#include "base/unique_fd.hpp"
#include "bootstrap/variables.hpp"
#include "support/child.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"
#include "support/variable.hpp"
#include "transport/tcp/listen_address.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <tutti/init_options.hpp>
#include <tutti/runtime.hpp>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;

namespace {

task<> join_and_add_up(runtime& rt, init_options options, store* through = nullptr) {
  const int size = options.world_size;
  communicator world;
  if (through == nullptr) {
    world = co_await init(rt, std::move(options));
  } else {
    world = co_await init(rt, std::move(options), *through);
  }
  int x = world.rank() + 1;
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(world.size() == size);
  TUTTI_EXPECT(x == size * (size + 1) / 2);
}

init_options options_of(const std::string& method, int rank, int size) {
  init_options o;
  o.init_method = method;
  o.rank = rank;
  o.world_size = size;
  o.timeout = 40s;
  return o;
}

// Starts the ranks in the order of `order`. `change` may alter each one's options.
std::vector<failure> join_in_order(
    const std::string& method, const std::vector<int>& order,
    const std::function<void(init_options&)>& change = [](init_options&) {}) {
  const int size = static_cast<int>(order.size());
  return run_threads(size, [&](int place) {
    init_options o = options_of(method, order[static_cast<std::size_t>(place)], size);
    change(o);
    runtime rt;
    rt.run(join_and_add_up(rt, std::move(o)));
  });
}

void check_all(const std::vector<failure>& failures) {
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
}

// A port that was free a moment ago at an address of this host; 0 if there is no such address.
unsigned short free_port(const char* address) {
  boost::asio::io_context context;
  boost::system::error_code code;
  tcp::acceptor acceptor(context);
  const tcp::endpoint at(boost::asio::ip::make_address(address), 0);
  acceptor.open(at.protocol(), code);
  if (!code) acceptor.bind(at, code);
  return code ? static_cast<unsigned short>(0) : acceptor.local_endpoint().port();
}

}  // namespace

TEST_CASE("init by tcp://: an address, an IPv6 address, a name of several addresses") {
  const variables none({});
  for (const auto& [host, address] :
       {std::pair("127.0.0.1", "127.0.0.1"), {"localhost", "127.0.0.1"}, {"[::1]", "::1"}}) {
    const unsigned short port = free_port(address);
    if (port == 0) {
      count_skip(__FILE__, __LINE__, std::string("this host has no address ") + address);
      continue;
    }
    CAPTURE(host);
    check_all(join_in_order("tcp://" + std::string(host) + ":" + std::to_string(port), {3, 1, 0, 2}));
  }
}

TEST_CASE("init by tcp:// on this host's own address with a secret also listens at that address") {
  const variables only_tcp({{"TUTTI_TRANSPORTS", "tcp"}});
  const boost::asio::ip::address outward = transport::tcp::outward_address();
  if (outward.is_loopback()) TUTTI_SKIP("this host has no address but loopback");
  const std::string address = outward.is_v6() ? "[" + outward.to_string() + "]" : outward.to_string();
  const unsigned short port = free_port(outward.to_string().c_str());
  if (port == 0) TUTTI_SKIP("nothing can listen at " + address);
  const std::string method = "tcp://" + address + ":" + std::to_string(port);
  check_all(join_in_order(method, {1, 0}, [](init_options& o) { o.secret = "of this test"; }));
  for (const failure& f : join_in_order(method, {1, 0}, [](init_options& o) { o.timeout = 200ms; })) {
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says("TUTTI_SECRET"), f.text);
  }
}

TEST_CASE("init by file:// works in any order and repeatedly, and leaves no files") {
  const variables none({});
  const scratch_directory scratch;
  const std::string file = scratch.path() / "rendezvous";
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0}}) {
    check_all(join_in_order("file://" + file, order));
    CHECK_FALSE(std::filesystem::exists(file));
  }
  check_all(join_in_order("file://" + file, {0, 1, 2}, [](init_options& o) { o.transports = {"tcp"}; }));
  check_all(join_in_order("file://" + file, {0, 1, 2}, [](init_options& o) {
    o.transports = {"tcp"};
    o.secret = "of this test";
  }));
}

TEST_CASE("init by file:// ignores a file that a crashed run has left") {
  const variables none({});
  const scratch_directory scratch;
  const std::string file = scratch.write("rendezvous", "tutti-s2");
  check_all(join_in_order("file://" + file, {1, 0}));
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("init by the program's own store makes several worlds, whatever the environment says") {
  const variables none({{"RANK", "7"}, {"WORLD_SIZE", "9"}, {"MASTER_ADDR", "nowhere.invalid"}});
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  for (const auto& [group, transport] : {std::pair{"a", "shm"}, std::pair{"b", "tcp"}}) {
    CAPTURE(group);
    check_all(run_threads(3, [&, name = group, way = transport](int rank) {
      runtime rt;
      memory_store mine(rt.get_executor(), shared);
      prefix_store keys(mine, name);
      init_options o = options_of("env://", rank, 3);
      o.transports = {way};
      rt.run(join_and_add_up(rt, std::move(o), &keys));
    }));
  }
  runtime rt;
  memory_store mine(rt.get_executor(), shared);
  const auto refused = [&](int rank, int size) {
    return failure_of([&] { rt.run(join_and_add_up(rt, options_of("env://", rank, size), &mine)); });
  };
  CHECK(refused(3, 3).says("ranks are 0 to 2"));
  init_options over_mpi = options_of("env://", 0, 1);
  over_mpi.backend = "mpi";
  CHECK(failure_of([&] { rt.run(join_and_add_up(rt, over_mpi, &mine)); }).code == errc::not_supported);
}

TEST_CASE("init: every method names missing ranks at the timeout") {
  const variables none({});
  const scratch_directory scratch;
  const std::string port = std::to_string(free_port("127.0.0.1"));
  for (const std::string& method :
       {"file://" + (scratch.path() / "rendezvous").string(), "tcp://127.0.0.1:" + port}) {
    CAPTURE(method);
    const auto begin = std::chrono::steady_clock::now();
    init_options o = options_of(method, 0, 3);
    o.timeout = 200ms;
    const failure f = failure_of([&] {
      runtime rt;
      rt.run(join_and_add_up(rt, o));
    });
    CHECK(f.code == errc::join_failed);
    CHECK_MESSAGE(f.says("ranks 1-2 of 3"), f.text);
    CHECK(std::chrono::steady_clock::now() - begin < 30s);
  }
  init_options o = options_of("tcp://127.0.0.1:" + port, 1, 3);
  o.timeout = 200ms;
  const failure f = failure_of([&] {
    runtime rt;
    rt.run(join_and_add_up(rt, o));
  });
  CHECK(f.code == errc::join_failed);
  CHECK_MESSAGE(f.says("rank 0 has not come"), f.text);
  CHECK_MESSAGE(f.says("the address in init_method"), f.text);
}

namespace {

task<> cancel_init(runtime& rt, init_options options) {
  failure seen;
  const auto join = [](runtime& in, init_options as) -> task<> { co_await init(in, std::move(as)); };
  scope work;
  work.spawn(keep_failure(join(rt, options), &seen));
  work.cancel();
  co_await work.join();
  TUTTI_EXPECT(seen.code == errc::cancelled);
  const failure late = co_await failure_in(with_timeout(init(rt, std::move(options)), 1ms));
  TUTTI_EXPECT(late.code == errc::timed_out);
}

}  // namespace

TEST_CASE("init: a rank that is stopped says so, whatever it waits for") {
  const variables none({});
  const scratch_directory scratch;
  const std::string at_port = "tcp://127.0.0.1:" + std::to_string(free_port("127.0.0.1"));
  const std::string at_file = "file://" + (scratch.path() / "rendezvous").string();
  for (const auto& [method, rank] : {std::pair(at_port, 0), {at_port, 1}, {at_file, 0}}) {
    CAPTURE(method);
    CAPTURE(rank);
    runtime rt;
    CHECK_NOTHROW(rt.run(cancel_init(rt, options_of(method, rank, 3))));
  }
}

TEST_CASE("init: a wrong TUTTI_LOOP is an error before the program runs") {
  const variable loop("TUTTI_LOOP", "kqueue");
  boost::asio::io_context context;
  for (const failure& f : {failure_of([] { runtime rt; }), failure_of([&] { runtime rt(context); })}) {
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says("TUTTI_LOOP='kqueue'"), f.text);
  }
}

TEST_CASE("init: a list of pretended hosts has one for each rank") {
  const auto add_up = [](communicator world) -> task<> {
    int one = 1;
    co_await world.all_reduce(one, sum);
    TUTTI_EXPECT(one == 3);
  };
  for (const auto& [hosts, said] :
       {std::pair<const char*, const char*>{"a,b", "names 2 hosts"}, {"a,b,c,d", "names 4 hosts"}}) {
    const variable pretended("TUTTI_HOST_ID", hosts);
    const failure f = failure_of([&] { run_local(3, add_up); });
    CAPTURE(f.text);
    CHECK(f.code == errc::invalid_argument);
    CHECK(f.says(said));
    CHECK(f.says("there are 3 ranks"));
  }
  for (const char* const hosts : {"a", "a,b,c"}) {
    const variable pretended("TUTTI_HOST_ID", hosts);
    CHECK_NOTHROW(run_local(3, add_up));
  }
}

TEST_CASE("init: shared memory above RLIMIT_FSIZE is an error with its cure, without a signal") {
  child limited([](const auto&) {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit most{65'536, 65'536};
    ::setrlimit(RLIMIT_FSIZE, &most);
    const failure f = failure_of(
        [] { run_local(2, over("shm"), [](communicator world) -> task<> { co_await world.barrier(); }); });
    return f.code == errc::resources && f.says("ulimit -f") ? 0 : 1;
  });
  CHECK(limited.end() == 0);
}
