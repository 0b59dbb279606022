// SPDX-License-Identifier: Apache-2.0
// The programs of examples/only_here, on two ranks and on four.
#include "support/command.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using doctest::Approx;
using tutti::test::command_result;
using tutti::test::run_shell;
using tutti::test::scratch_directory;

namespace {

std::string program(const std::string& name) { return TUTTI_EXAMPLES_BIN_DIR "/only_" + name; }

// Runs it and checks exit code 0 and the expected output.
command_result run(int ranks, const std::string& name, const std::string& options = "") {
  command_result result =
      run_shell(TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " " + options + " " + program(name));
  INFO(result.output);
  CHECK(result.exit_code == 0);
  return result;
}

// Of output that begins with it. The system's mathematics decide about its last digits.
double loss_in(const std::string& output) {
  constexpr std::string_view head = "loss ";
  CHECK(output.starts_with(head));
  return output.starts_with(head) ? std::stod(output.substr(head.size())) : 0;
}

}  // namespace

TEST_CASE("only here: a deadline names the absent rank") {
  for (const int ranks : {2, 4}) {
    const command_result r = run(ranks, "deadline");
    INFO(r.output);
    const std::string absent = std::to_string(ranks - 1);
    CHECK(r.times("not done within 300 ms (with_timeout); not called by rank " + absent + " ") == ranks - 1);
    CHECK(r.says("rank " + absent + " was absent; the world is whole\n"));
  }
}

TEST_CASE("only here: a receive and a socket in one wait") {
  for (const int ranks : {2, 4})
    CHECK(run(ranks, "receive_or_socket").output == "a message of rank 1: 7\na client of the socket\n");
}

TEST_CASE("only here: the optimiser steps on finished chunks") {
  for (const int ranks : {2, 4})
    CHECK(run(ranks, "chunks").output == "1000000 parameters stepped in 8 chunks: correct\n");
}

TEST_CASE("only here: a parameter server") {
  CHECK(run(2, "parameter_server").output == "10 updates of 1 workers, each parameter is 10\n");
  CHECK(run(4, "parameter_server").output == "30 updates of 3 workers, each parameter is 30\n");
}

TEST_CASE("only here: the program may use the buffer of a cancelled all_reduce at once") {
  for (const int ranks : {2, 4}) {
    const command_result r = run(ranks, "cancel 64");
    INFO(r.output);
    CHECK(r.times(": cancelled after ") == ranks);
    CHECK(r.times("the buffer is its own\n") == ranks);
  }
}

TEST_CASE("only here: the simulator finds the planted deadlock, and reproduces it") {
  const command_result r = run_shell(program("simulate"));
  INFO(r.output);
  CHECK(r.exit_code == 0);
  CHECK(r.says("rank 0 waits for ever: recv from rank 2, "));
  CHECK(r.says("rank 1 waits for ever: barrier #"));
  CHECK(r.says("the same again: yes, to the last event\n"));
}

TEST_CASE("only here: a hang explained") {
  for (const int ranks : {2, 4}) {
    const command_result r = run(ranks, "hang");
    INFO(r.output);
    const std::string last = std::to_string(ranks - 1);
    CHECK(r.says(" has not been called by rank " + last + " "));
    CHECK(r.says("a circle: rank 0 waits for " + last + " (all_reduce at hang.cpp:"));
  }
}

TEST_CASE("only here: shrink and rejoin") {
  for (const int ranks : {2, 4}) {
    const command_result r = run(ranks, "shrink_and_rejoin", "--on-failure restart --max-restarts 1");
    INFO(r.output);
    CHECK(r.times("rank 1 (host ") == ranks - 1);
    CHECK(r.says("without rank 1: " + std::to_string(ranks - 1) + " ranks\n"));
    CHECK(r.says("with its successor: " + std::to_string(ranks) + " ranks\n"));
  }
}

TEST_CASE("only here: halos by put_signal") {
  for (const int ranks : {2, 4})
    CHECK(run(ranks, "halo").output == "after 100 steps the rod has 1000 of 1000 units of heat\n");
}

TEST_CASE("only here: a work queue by fetch_add") {
  for (const int ranks : {2, 4})
    CHECK(run(ranks, "work_queue").output ==
          "1000 results; the longest sequence below 1001 starts at 871 and has 178 steps\n");
}

TEST_CASE("only here: two jobs hand weights over; a rank of each is killed, and the others go on") {
  for (const int trainers : {2, 4}) {
    const scratch_directory folder;
    const std::string file = (folder.path() / "meeting").string();
    const auto job = [&file](int ranks, const std::string& name) {
      return TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " --on-failure continue --tag-output never " +
             program("two_jobs") + " " + name + " " + file;
    };
    const command_result r = run_shell(job(trainers, "train") + " & " + job(2, "serve") +
                                       "; echo serve: $?; wait $!; echo train: $?");
    INFO(r.output);
    CHECK(r.says("server 0: 125000 weights of step 10\n"));
    // Who is left is told of both deaths, and all weights come to the server that is left.
    CHECK(r.times("trainers: ") == 2 * (trainers - 1));
    CHECK(r.times("servers: ") == 2);
    for (const int step : {20, 30})
      CHECK(r.says("server 0: 250000 weights of step " + std::to_string(step) + "\n"));
    // 128 + SIGKILL: a rank was killed; the others ended well.
    CHECK(r.says("serve: 137\n"));
    CHECK(r.says("train: 137\n"));
  }
}

TEST_CASE("only here: a shared vector") {
  for (const int ranks : {2, 4}) {
    const command_result r = run(ranks, "shared");
    INFO(r.output);
    CHECK(r.times(": correct\n") == ranks - 1);
    CHECK(r.says("rank 0 sent 4000000 floats to " + std::to_string(ranks - 1) + " ranks\n"));
  }
}

TEST_CASE("only here: a pipeline has the losses of one process, to the last digit") {
  const std::string alone = run(1, "pipeline 4").output;
  const std::string loss = alone.substr(0, alone.find(';'));
  CHECK(loss.starts_with("loss 4.49425"));
  for (const int ranks : {2, 4}) {
    const command_result r = run(ranks, "pipeline 4");
    INFO(r.output);
    CHECK(r.says(loss + "; time in bubbles 0."));
    CHECK(r.says(ranks == 2 ? "by the formula 0.200\n" : "by the formula 0.429\n"));
  }
}

TEST_CASE("only here: a sharded optimiser has the loss of one process, and its share of the state") {
  for (const int ranks : {1, 2, 4}) {
    const std::string output = run(ranks, "sharded").output;
    CHECK(loss_in(output) == Approx(7741.6).epsilon(1e-5));
    CHECK(output.ends_with("; bytes of state on each rank: " + std::to_string(320000 / ranks) + "\n"));
  }
}

TEST_CASE(
    "only here: layers split by columns and rows have the loss of one process, in any number of chunks") {
  const auto loss = [](int ranks, const char* chunks) {
    return loss_in(run(ranks, std::string("tensor_parallel ") + chunks).output);
  };
  const double of_one = loss(1, "1");  // Eigen's random numbers differ by version
  CHECK(of_one > 1);
  CHECK(loss(1, "8") == Approx(of_one).epsilon(1e-4));  // other processors round differently
  for (const int ranks : {2, 4})
    for (const char* chunks : {"1", "8"}) CHECK(loss(ranks, chunks) == Approx(of_one).epsilon(1e-4));
}

TEST_CASE("only here: a server that trains") {
  for (const int ranks : {2, 4}) {
    const command_result r = run(ranks, "asio_server 200");
    INFO(r.output);
    CHECK(r.times(" was told: step 100\n") == ranks);
    CHECK(r.says("clients: port "));
    CHECK(r.says("trained for 200 steps: x is 1.000\n"));
  }
}
