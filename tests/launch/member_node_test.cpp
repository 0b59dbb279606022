// SPDX-License-Identifier: Apache-2.0
// The launcher of a node other than 0. The test plays node 0.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <memory>

#include "bootstrap/control_link.hpp"
#include "launch/node_messages.hpp"
#include "launched.hpp"
#include "support/contains.hpp"
#include "support/listening_socket.hpp"

using namespace tutti;
using namespace tutti::launch;
using namespace std::chrono_literals;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;

namespace {

// Node 0, as the launcher of one other node sees it.
struct node_0 {
  boost::asio::io_context loop;
  std::string address;
  std::unique_ptr<bootstrap::control_link> link;
  bool greeted = false;
  bool lost = false;
  std::vector<event> heard;
  std::unique_ptr<bootstrap::acceptor> listener;

  node_0() {
    const auto take = [this](std::unique_ptr<bootstrap::control_link> arrived, int) {
      link = std::move(arrived);
      link->start({[this](std::string_view message) {
                     if (std::exchange(greeted, true)) heard.push_back(decode_event(message));
                   },
                   [this](const std::string&, bool) {
                     lost = true;
                     link->close();
                   }});
    };
    listener = bootstrap::accept_launchers(loop.get_executor(), "common", nullptr, 10s, take,
                                           [](const std::string&, const std::string& why) { FAIL(why); });
    std::uint16_t port = 0;
    listener->open(test::listening_socket(port));
    address = "127.0.0.1:" + std::to_string(port);
  }

  std::unique_ptr<launched> member(const words& program) const {
    words all = {"-n", "1", "--nnodes", "2", "--node-rank", "1", "--master", address};
    all.insert(all.end(), program.begin(), program.end());
    return std::make_unique<launched>(all, words{"TUTTI_SECRET=common"});
  }
  template <class Condition>
  void run_until(Condition reached) {
    const auto bound = std::chrono::steady_clock::now() + 20s;
    while (!reached()) {
      REQUIRE(std::chrono::steady_clock::now() < bound);
      loop.run_one_until(bound);
    }
  }
  // Runs until the node has told this many events of this kind. Returns the last.
  template <class T>
  T wait_for(std::ptrdiff_t count = 1) {
    const auto is_one = [](const event& e) { return std::holds_alternative<T>(e); };
    run_until([&] { return std::count_if(heard.begin(), heard.end(), is_one) >= count; });
    return std::get<T>(*std::find_if(heard.rbegin(), heard.rend(), is_one));
  }
  void send(const command& what) const { link->send(encode(what)); }
  void start(int restart_count = 0) const {
    start_ranks s;
    s.job_id = "id";
    s.restart_count = restart_count;
    s.world_size = 2;
    s.first_rank = 1;
    s.ports = {1, 2};
    s.node = 1;
    s.grace = 1000ms;
    send(s);
  }
  ending end(launched& node, int code) {
    send(job_over{code, "over\n"});
    run_until([&] { return lost; });
    return node.finish();
  }
};

}  // namespace

TEST_SUITE("launch/member_node") {
  TEST_CASE("a stop before the first start, which is under way: no rank runs") {
    node_0 head;
    auto node = head.member({"sleep", "1000"});
    head.run_until([&] { return head.greeted; });
    node->signal(SIGTERM);
    CHECK(head.wait_for<stop_wanted>().signal == SIGTERM);
    head.start();
    CHECK(head.wait_for<ranks_ended>().ends.empty());
    CHECK(head.end(*node, 128 + SIGTERM).exit_code == 128 + SIGTERM);
  }

  TEST_CASE("a stop between two starts, of which the second is under way: no rank runs") {
    node_0 head;
    auto node = head.member({"sh", "-c", "[ $TUTTI_RESTART_COUNT = 0 ] || exec sleep 1000"});
    head.run_until([&] { return head.greeted; });
    head.start();
    CHECK(head.wait_for<ranks_ended>().ends.size() == 1);
    node->signal(SIGINT);
    CHECK(head.wait_for<stop_wanted>().signal == SIGINT);
    head.start(1);
    CHECK(head.wait_for<ranks_ended>(2).ends.empty());
    CHECK(head.end(*node, 128 + SIGINT).exit_code == 128 + SIGINT);
  }
}
