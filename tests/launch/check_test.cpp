// SPDX-License-Identifier: Apache-2.0
#include "launch/options.hpp"

#include <doctest/doctest.h>

#include "launched.hpp"
#include "support/skip.hpp"
#include "two_networks.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;

namespace {

bool says(const ending& end, const std::string& what) { return end.output.find(what) != std::string::npos; }

std::vector<std::string> check_of(int node, const std::string& master) {
  return {"--check", "--nnodes",       "2", "--node-rank", std::to_string(node), "--master",
          master,    "--join-timeout", "1"};
}

}  // namespace

TEST_SUITE("launch/check") {
  TEST_CASE("a variable that tutti does not read is named, and is no problem") {
    const ending end = testing::launch({"--check"}, {"TUTTI_TIMOUT=60", "TUTTI_TIMEOUT=60"});
    CHECK(end.exit_code == 0);
    CHECK(says(end, "variable: tutti reads no TUTTI_TIMOUT ("));
    CHECK_FALSE(says(end, "TUTTI_TIMEOUT"));
  }

  TEST_CASE("a single node needs no program and no secret") {
    const ending end = testing::launch({"--check"});
    CHECK(says(end, "node: 0 of 1\n"));
    CHECK(says(end, "/dev/shm: "));
    CHECK(says(end, " open files, "));
  }

  TEST_CASE("a missing secret is reported, and a secret is never shown") {
    const std::string master = testing::free_address();
    const ending without = testing::launch(check_of(0, master));
    CHECK(without.exit_code == 1);
    CHECK(says(without, "secret: none\n  problem: set TUTTI_SECRET"));
    const ending with = testing::launch(check_of(0, master), {"TUTTI_SECRET=hush-hush"});
    CHECK(says(with, "secret: in TUTTI_SECRET\n"));
    CHECK(says(with, " is free here"));
    CHECK_FALSE(says(with, "hush-hush"));
  }

  TEST_CASE("an unknown name, and an address of another host to listen on") {
    const ending name = testing::launch(check_of(1, "no-such-host.invalid:29500"), {"TUTTI_SECRET=s"});
    CHECK(name.exit_code == 1);
    CHECK(says(name, "there is no host 'no-such-host.invalid'"));
    CHECK(says(name, "problem: correct --master"));
    const ending address = testing::launch(check_of(0, "192.0.2.1:29500"), {"TUTTI_SECRET=s"});
    CHECK(address.exit_code == 1);
    CHECK(says(address, "problem: give --master an address of this node"));
  }

  TEST_CASE("the connection to node 0, before it listens, while it does, and over a cut cable") {
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    const std::string master = networks->address(0) + ":29500";
    const auto check = [&] {
      return launched(check_of(1, master), {"TUTTI_SECRET=s"}, networks->network(1)).finish();
    };
    const ending before = check();
    CHECK(says(before, "address: others reach this node at " + networks->address(1) + ","));
    CHECK(says(before, "nothing listens at port 29500 yet"));
    {
      // Node 0 waits for node 1; a check does not count as node 1.
      launched first({"--nnodes", "2", "--node-rank", "0", "--master", master, "-n", "1", "true"},
                     {"TUTTI_SECRET=s"}, networks->network(0));
      first.wait_until_it_takes_signals();
      const ending meanwhile = check();
      CHECK(meanwhile.exit_code == 0);
      CHECK(says(meanwhile, "node 0: listens at " + networks->address(0) + " port 29500\n"));
      launched second({"--nnodes", "2", "--node-rank", "1", "--master", master, "-n", "1", "true"},
                      {"TUTTI_SECRET=s"}, networks->network(1));
      const ending on_first = first.finish();
      CHECK(on_first.exit_code == 0);
      CHECK(on_first.error.empty());
      CHECK(second.finish().exit_code == 0);
    }
    networks->cut();
    const ending after = check();
    CHECK(after.exit_code == 1);
    CHECK(says(after, "node 0: out of reach (" + networks->address(0) + ": "));
    CHECK(says(after, "problem: let TCP through"));
  }
}
