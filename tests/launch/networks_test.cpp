// SPDX-License-Identifier: Apache-2.0
// Real ranks on two hosts: first pretended hosts, then networks with a cable between them.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <memory>

#include "launched.hpp"
#include "support/contains.hpp"
#include "support/skip.hpp"
#include "two_networks.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;

namespace {

using tutti::test::contains;

words node(int number, const std::string& master, words rest) {
  words all = {"--nnodes",     "2",    "--node-rank",    std::to_string(number),
               "--master",     master, "--join-timeout", "20",
               "--tag-output", "never"};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

void check_sums(launched& first, launched& second, int ranks_on_first, int ranks) {
  const ending ends[] = {first.finish(), second.finish()};
  std::string all;
  for (const ending& end : ends) {
    CHECK(end.exit_code == 0);
    CHECK(end.error.empty());
    all += end.output;
  }
  CHECK(testing::count_of(all, "\n") == ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ": right\n";
    CHECK(contains(ends[rank < ranks_on_first ? 0 : 1].output, line));
  }
}

}  // namespace

TEST_SUITE("launch/networks") {
  TEST_CASE("pretended hosts of one launcher reach each other over loopback") {
    const ending end =
        testing::launch({"-n", "3", "--tag-output", "never", TUTTI_SUMS_PATH}, {"TUTTI_HOST_ID=a,b,b"});
    CHECK(end.exit_code == 0);
    CHECK_MESSAGE(end.error.empty(), end.error);
    CHECK(testing::count_of(end.output, "of 3: right\n") == 3);
  }

  TEST_CASE("ranks of one host with different users reach each other over loopback") {
    const std::string as_others = "exec setpriv --reuid $((65534 - $RANK / 2)) ";
    if (testing::launch({"-n", "1", "sh", "-c", as_others + "test -x \"$0\"", TUTTI_SUMS_PATH}).exit_code !=
        0)
      TUTTI_SKIP("only root can start ranks of two users, of programs that both may read");
    const ending end = testing::launch(
        {"-n", "3", "--tag-output", "never", "sh", "-c", as_others + "\"$0\"", TUTTI_SUMS_PATH},
        {"TUTTI_TIMEOUT=20"});
    CHECK(end.exit_code == 0);
    CHECK_MESSAGE(end.error.empty(), end.error);
    CHECK(testing::count_of(end.output, "of 3: right\n") == 3);
  }

  TEST_CASE("each program that writes a trace refuses an invalid size") {
    const ending end = testing::launch(
        {"-n", "1", "sh", "-c", "unset TUTTI_FLIGHT; TUTTI_TRACE=/dev/null TUTTI_TRACE_MIB=abc exec \"$0\"",
         TUTTI_SUMS_PATH});
    CHECK(end.exit_code != 0);
    CHECK_MESSAGE(contains(end.error, "TUTTI_TRACE_MIB='abc' is not an integer"), end.error);
  }

  TEST_CASE("ranks on two pretended hosts, of different sizes") {
    const std::string master = testing::free_outward_address();
    if (master.empty())
      TUTTI_SKIP("this machine has no address but loopback ones, which lead to no other host");
    launched second(node(1, master, {"-n", "1", TUTTI_SUMS_PATH}), {"TUTTI_SECRET=s", "TUTTI_HOST_ID=b"});
    launched first(node(0, master, {"-n", "3", TUTTI_SUMS_PATH}), {"TUTTI_SECRET=s", "TUTTI_HOST_ID=a"});
    check_sums(first, second, 3, 4);
  }

  TEST_CASE("after a restart the ranks find each other, and no rank of the first start") {
    const std::string master = testing::free_outward_address();
    if (master.empty())
      TUTTI_SKIP("this machine has no address but loopback ones, which lead to no other host");
    // Runs while the others wait for the rank that fails.
    const words program = {"-n",
                           "2",
                           "sh",
                           "-c",
                           "[ $TUTTI_RESTART_COUNT = 0 ] && [ $RANK = 3 ] && exit 3; exec \"$0\"",
                           TUTTI_SUMS_PATH};
    words again = node(0, master, program);
    again.insert(again.begin(), {"--max-restarts", "1"});
    launched first(again, {"TUTTI_SECRET=s", "TUTTI_HOST_ID=a"});
    launched second(node(1, master, program), {"TUTTI_SECRET=s", "TUTTI_HOST_ID=b"});
    const ending on_first = first.finish(), on_second = second.finish();
    CHECK(on_first.exit_code == 0);
    CHECK(on_second.exit_code == 0);
    CHECK(contains(on_first.error, "tutti-run: restart 1 of 1: rank 3 exited with code 3"));
    CHECK(testing::count_of(on_first.output + on_second.output, ": right\n") == 4);
  }

  TEST_CASE("ranks on two networks") {
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    const std::string master = networks->address(0) + ":29500";
    launched first(node(0, master, {"-n", "2", TUTTI_SUMS_PATH}), {"TUTTI_SECRET=s"}, networks->network(0));
    launched second(node(1, master, {"-n", "2", TUTTI_SUMS_PATH}), {"TUTTI_SECRET=s"}, networks->network(1));
    check_sums(first, second, 2, 4);
  }

  TEST_CASE("ranks on two networks with IPv6 only") {
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    if (!networks->leave_ipv4()) TUTTI_SKIP("this kernel has no IPv6");
    const std::string master = "[" + networks->address_v6(0) + "]:29500";
    launched first(node(0, master, {"-n", "2", TUTTI_SUMS_PATH}), {"TUTTI_SECRET=s"}, networks->network(0));
    launched second(node(1, master, {"-n", "2", TUTTI_SUMS_PATH}), {"TUTTI_SECRET=s"}, networks->network(1));
    check_sums(first, second, 2, 4);
  }

  TEST_CASE("hosts with twelve interfaces: the route to node 0 is used, or a named interface") {
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    networks->add_interfaces();
    const std::string master = networks->address(0) + ":29500";
    const auto start = [&](int host, words variables) {
      variables.push_back("TUTTI_SECRET=s");
      return std::make_unique<launched>(node(host, master, {"-n", "1", TUTTI_SUMS_PATH}), variables,
                                        networks->network(host));
    };
    {
      const auto first = start(0, {}), second = start(1, {});
      check_sums(*first, *second, 1, 2);
    }
    const auto wrong = [&](int host) {
      return start(host, {"TUTTI_ADDRESS=" + networks->unreachable_address(host)});
    };
    const auto first = wrong(0), second = wrong(1);
    const std::string errors = first->finish().error + second->finish().error;
    CAPTURE(errors);
    CHECK((contains(errors, "cannot connect to " + networks->unreachable_address(0)) ||
           contains(errors, "cannot connect to " + networks->unreachable_address(1))));
    CHECK(contains(errors, "does not lead here: set TUTTI_ADDRESS or TUTTI_INTERFACE on host "));
  }

  TEST_CASE("a cable is cut: all ranks end, and the error names the unreachable node") {
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    const std::string master = networks->address(0) + ":29500";
    const words program = {"-n", "2", "--node-timeout", "1", TUTTI_DRILL_PATH, "wait_for_ever"};
    launched first(node(0, master, program), {"TUTTI_SECRET=s"}, networks->network(0));
    launched second(node(1, master, program), {"TUTTI_SECRET=s"}, networks->network(1));
    std::vector<testing::watched> ranks;
    for (launched* each : {&first, &second}) {
      each->wait_for("ready ", 2);
      each->wait_for("\n", 2);
      for (const std::string& line : testing::lines_of(each->output()))
        ranks.emplace_back(std::stoi(line.substr(6)));
    }
    const auto cut = std::chrono::steady_clock::now();
    networks->cut();
    const ending on_first = first.finish(), on_second = second.finish();
    CHECK(std::chrono::steady_clock::now() - cut < std::chrono::seconds(15));
    for (testing::watched& rank : ranks) CHECK(rank.dies());
    CHECK(on_first.exit_code == 1);
    CHECK(on_second.exit_code == 1);
    CHECK(contains(on_first.error, "node 1 (ranks 2-3 on "));
    CHECK(contains(on_first.error, " was lost: "));
    CHECK(contains(on_second.error, "node 0 at " + master + " was lost: "));
  }

  TEST_CASE("a cable is cut before all nodes have joined") {
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    networks->cut();
    const std::string master = networks->address(0) + ":29500";
    words impatient = node(1, master, {"-n", "2", "true"});
    impatient[7] = "0.5";
    launched second(impatient, {"TUTTI_SECRET=s"}, networks->network(1));
    const ending end = second.finish();
    CHECK(end.exit_code == 1);
    CHECK(contains(end.error, "cannot join node 0 at " + master));
  }
}
