// SPDX-License-Identifier: Apache-2.0
#include "launch/options.hpp"

#include <doctest/doctest.h>

using namespace tutti::launch;
using namespace std::chrono_literals;

namespace {

options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tutti-run");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string refusal(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const usage_error& e) {
    return e.what();
  }
  return "accepted";
}

bool mentions(const std::string& text, const char* what) { return text.find(what) != std::string::npos; }

}  // namespace

TEST_SUITE("launch/options") {
  TEST_CASE("defaults and all options") {
    const options plain = parse({"-n", "4", "./hello"});
    CHECK(plain.ranks == 4);
    CHECK(plain.nodes == 1);
    CHECK(plain.grace == 5000ms);
    CHECK(plain.timeout == 0ms);
    CHECK(plain.trace.empty());
    CHECK(plain.explain_after == 0ms);
    CHECK(plain.on_failure == failure_policy::stop);
    CHECK(plain.tag_output == tag_policy::automatic);
    CHECK(plain.program == std::vector<std::string>{"./hello"});

    const options full = parse({"--np=2",
                                "--nnodes",
                                "3",
                                "--node-rank",
                                "2",
                                "--master",
                                "10.0.0.1:29500",
                                "--on-failure",
                                "continue",
                                "--log-dir",
                                "logs",
                                "--tag-output",
                                "never",
                                "--timeout",
                                "1.5",
                                "--trace",
                                "t.json",
                                "--explain-after",
                                "2.5",
                                "--grace",
                                "0",
                                "prog"});
    CHECK(full.ranks == 2);
    CHECK(full.nodes == 3);
    CHECK(full.node_rank == 2);
    REQUIRE(full.master);
    CHECK(full.master->host == "10.0.0.1");
    CHECK(full.master->port == 29500);
    CHECK(full.on_failure == failure_policy::go_on);
    CHECK(full.log_dir == "logs");
    CHECK(full.tag_output == tag_policy::never);
    CHECK(full.timeout == 1500ms);
    CHECK(full.trace == "t.json");
    CHECK(full.explain_after == 2500ms);
    CHECK(full.grace == 0ms);
    CHECK(parse({"--nproc-per-node", "3", "p"}).ranks == 3);
    CHECK(parse({"-n3", "p"}).ranks == 3);
    const options six =
        parse({"-n", "1", "--nnodes", "2", "--node-rank", "0", "--master", "[fd00::1]:80", "p"});
    CHECK(six.master->host == "fd00::1");
    CHECK_NOTHROW(parse({"-n", "1", "--nnodes", "1", "--node-rank", "0", "--master", "localhost:80", "p"}));
    const options elastic = parse({"-n", "2", "--nnodes", "2:4", "--master", "a:1", "p"});
    CHECK(elastic.elastic);
    CHECK(elastic.least_nodes == 2);
    CHECK(elastic.nodes == 4);
    CHECK(elastic.node_rank == -1);
    CHECK(elastic.on_failure == failure_policy::restart_rank);
    CHECK(elastic.max_restarts == 3);
    CHECK(elastic.quorum == tutti::bootstrap::quorum::none);
    CHECK(parse({"-n", "2", "--nnodes", "1:4", "--quorum", "majority", "p"}).quorum ==
          tutti::bootstrap::quorum::majority);
    CHECK(parse({"-n", "2", "--nnodes", "1:4", "p"}).nodes == 1);
  }

  TEST_CASE("arguments after the program belong to it") {
    using words = std::vector<std::string>;
    CHECK(parse({"-n", "2", "prog", "-n", "8", "--help", "--", "--np=3"}).program ==
          words{"prog", "-n", "8", "--help", "--", "--np=3"});
    CHECK(parse({"-n", "2", "--", "prog", "-x"}).program == words{"prog", "-x"});
    CHECK(parse({"-n", "2", "--", "-prog", "--", "-x"}).program == words{"-prog", "--", "-x"});
    CHECK(parse({"-n", "2", "prog", "", "a b"}).program == words{"prog", "", "a b"});
  }

  TEST_CASE("bad counts") {
    for (const char* count : {"0", "-1", "4097"})
      CHECK(mentions(refusal({"-n", count, "p"}), "from 1 to 4096"));
    CHECK(mentions(refusal({"-n", "four", "p"}), "-n four: give a number"));
    CHECK(mentions(refusal({"--np", "2.5", "p"}), "-n 2.5: give a number"));
    CHECK(mentions(refusal({"-n", "99999999999999999999", "p"}), "not so large"));
    CHECK(refusal({"-n", "", "p"}) != "accepted");
    for (const char* name : {"-n", "--np"}) CHECK(mentions(refusal({name}), "-n: give the number of ranks"));
    for (const char* option : {"--nnodes", "--node-rank", "--max-restarts", "--explain-after", "--timeout",
                               "--grace", "--join-timeout", "--node-timeout", "--secret-fd"})
      CHECK(mentions(refusal({"-n", "2", option, "abc", "p"}),
                     (std::string(option) + " abc: give a number").c_str()));
    CHECK(mentions(refusal({"p"}), "how many ranks"));
    CHECK(mentions(refusal({}), "how many ranks"));
  }

  TEST_CASE("a missing program and unknown options") {
    CHECK(mentions(refusal({"-n", "2"}), "which program"));
    CHECK(mentions(refusal({"-n", "2", "--"}), "which program"));
    CHECK(mentions(refusal({"-n", "2", "--frobnicate", "p"}), "--frobnicate"));
    CHECK(refusal({"-n", "2", "--on-failure", "again", "p"}) != "accepted");
    CHECK(refusal({"-n", "2", "--tag-output", "maybe", "p"}) != "accepted");
    CHECK(mentions(refusal({"-n", "2", "--grace", "-1", "p"}), "--grace"));
    CHECK(mentions(refusal({"-n", "2", "--timeout", "nan", "p"}), "--timeout"));
  }

  TEST_CASE("restarts") {
    CHECK(parse({"-n", "1", "p"}).max_restarts == 0);
    const options usual = parse({"-n", "1", "--on-failure", "restart", "p"});
    CHECK(usual.on_failure == failure_policy::restart_rank);
    CHECK(usual.max_restarts == 3);
    CHECK(parse({"-n", "1", "--on-failure", "restart", "--max-restarts", "7", "p"}).max_restarts == 7);
    CHECK(parse({"-n", "1", "--max-restarts", "2", "p"}).on_failure == failure_policy::restart_all);
    CHECK(parse({"-n", "1", "--on-failure", "restart-all", "p"}).on_failure == failure_policy::restart_all);
    CHECK(parse({"-n", "1", "--on-failure", "restart-all", "p"}).max_restarts == 3);
    CHECK(parse({"-n", "1", "--max-restarts", "0", "p"}).on_failure == failure_policy::stop);
    CHECK(mentions(refusal({"-n", "1", "--max-restarts", "2", "--on-failure", "stop", "p"}),
                   "--max-restarts 2 contradicts --on-failure stop"));
    CHECK(mentions(refusal({"-n", "1", "--max-restarts", "2", "--on-failure", "continue", "p"}),
                   "contradicts --on-failure continue"));
    CHECK(mentions(refusal({"-n", "1", "--max-restarts", "-1", "p"}), "--max-restarts"));
  }

  TEST_CASE("--quiet keeps all output, a secret has one source") {
    CHECK(mentions(refusal({"-n", "1", "--quiet", "p"}), "--log-dir"));
    CHECK(parse({"-n", "1", "--quiet", "--log-dir", "d", "p"}).quiet);
    CHECK(parse({"-n", "1", "--secret-fd", "5", "p"}).secret_fd == 5);
    CHECK(mentions(refusal({"-n", "1", "--secret-fd", "-1", "p"}), "--secret-fd"));
  }

  TEST_CASE("contradictory nodes") {
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "2", "p"}), "--node-rank"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "2", "--node-rank", "0", "p"}), "--master"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "2", "--node-rank", "2", "--master", "a:1", "p"}),
                   "0 to 1"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "2", "--node-rank", "-1", "--master", "a:1", "p"}),
                   "0 to 1"));
    CHECK(mentions(refusal({"-n", "2", "--node-rank", "1", "p"}), "--nnodes"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "0", "p"}), "--nnodes"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "3:2", "p"}), "--nnodes 3:2"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "0:2", "p"}), "--nnodes 0:2"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "1:many", "p"}), "MIN:MAX"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "2:3", "p"}), "--master"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "1:3", "--node-rank", "1", "p"}), "--master"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "1:3", "--on-failure", "restart-all", "p"}), "--nnodes"));
    CHECK(mentions(refusal({"-n", "2", "--quorum", "majority", "p"}), "--nnodes MIN:MAX"));
    CHECK(mentions(refusal({"-n", "2", "--nnodes", "1:3", "--quorum", "most", "p"}), "--quorum"));
    CHECK(mentions(refusal({"-n", "2", "--node-timeout", "0.5", "p"}), "--node-timeout"));
    CHECK(mentions(refusal({"-n", "2", "--join-timeout", "-1", "p"}), "--join-timeout"));
    for (const char* master :
         {"host", "host:", ":80", "host:0", "host:65536", "host:8x", "fd00::1:80", "[]:80"})
      CHECK(mentions(refusal({"-n", "1", "--nnodes", "2", "--node-rank", "0", "--master", master, "p"}),
                     "HOST:PORT"));
  }

  TEST_CASE("help names every option") {
    std::string text;
    try {
      parse({"--help"});
    } catch (const help_request& help) {
      text = help.text;
    }
    for (const char* option :
         {"--np",           "--nproc-per-node", "--nnodes",  "--node-rank", "--master",
          "--on-failure",   "--max-restarts",   "--log-dir", "--quiet",     "--tag-output",
          "--trace",        "--explain-after",  "--timeout", "--grace",     "--join-timeout",
          "--node-timeout", "--secret-fd",      "--check",   "--quorum",    "Usage: tutti-run -n RANKS"})
      CHECK(mentions(text, option));
  }

  TEST_CASE("--variables lists tutti's variables without any other option") {
    std::string text;
    try {
      parse({"--variables"});
    } catch (const help_request& help) {
      text = help.text;
    }
    CHECK(mentions(text, "Security:\n  TUTTI_SECRET=TEXT\n      the job's secret"));
    CHECK(mentions(text, "  TUTTI_LOOP=auto|io_uring|epoll\n"));
  }

  TEST_CASE("--prefix beside no installation says how to have one") {
    CHECK(mentions(refusal({"--prefix"}), "not installed beside"));
    CHECK(mentions(refusal({"--prefix"}), "libtutti-dev"));
  }
}
