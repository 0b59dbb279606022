// SPDX-License-Identifier: Apache-2.0
// Ranks that end abnormally, for comm/process_test: `drill NAME`. Rank 1 does it; the others print the errors
// that they get.
#include <signal.h>
#include <unistd.h>

#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

constexpr int victim = 1;
constexpr std::size_t long_bytes = 32 << 20;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

// Lets the loop make some progress.
auto turn(const tutti::communicator& world) {
  return boost::asio::post(world.get_executor(), boost::asio::deferred);
}

// The victim continues when the others are waiting. Its own last messages may be lost with it.
tutti::task<> others_wait(tutti::communicator world) {
  int ready = 0;
  if (world.rank() != victim) {
    co_await world.send(ready, victim);
  } else {
    for (int i = 1; i < world.size(); ++i) co_await world.recv(ready, tutti::any_source);
  }
}

tutti::task<> killed_in_all_reduce(tutti::communicator world) {
  std::vector<float> data(1 << 20, 1);
  for (int round = 0;; ++round) {
    if (world.rank() == victim && round == 3) {
      const tutti::request reducing = tutti::start(world.all_reduce(data, tutti::max));
      co_await turn(world);
      die();
    }
    co_await world.all_reduce(data, tutti::max);
  }
}

tutti::task<> killed_while_waited_for(tutti::communicator world) {
  int never = 0;
  tutti::request waiting;
  if (world.rank() != victim) waiting = world.irecv(never, victim);
  co_await others_wait(world);
  if (world.rank() == victim) die();
  co_await waiting;
}

// No survivor leaves while the other still waits for any rank.
tutti::task<> survivors_meet(tutti::communicator world) {
  int done = 0;
  if (world.rank() == 0) co_await world.recv(done, 2, 2);
  if (world.rank() == 2) co_await world.send(done, 0, 2);
}

// The victim has no connections. The ranks that wait for it connect to it only then.
tutti::task<> killed_before_any_message(tutti::communicator world) {
  if (world.rank() == victim) die();
  int never = 0;
  const auto r =
      co_await tutti::as_result(world.recv(never, world.rank() == 0 ? victim : tutti::any_source, 1));
  co_await survivors_meet(world);
  throw tutti::error(static_cast<tutti::errc>(r.error.value()), r.message);
}

tutti::task<> killed_before_any_message_that_is_probed_for(tutti::communicator world) {
  if (world.rank() == victim) die();
  const auto r = co_await tutti::as_result(world.probe(world.rank() == 0 ? victim : tutti::any_source, 1));
  co_await survivors_meet(world);
  throw tutti::error(static_cast<tutti::errc>(r.error.value()), r.message);
}

// The stream breaks at a random place: the survivors' receives and sends continue until one fails.
tutti::task<> killed_while_sending(tutti::communicator world) {
  std::vector<std::byte> data(long_bytes);
  for (int round = 0;; ++round) {
    if (world.rank() != victim) {
      co_await world.recv(data, victim);
      continue;
    }
    tutti::request first = world.isend(data, 0), second = world.isend(data, 2);
    if (round == 1) {
      co_await turn(world);
      die();
    }
    co_await first;
    co_await second;
  }
}

tutti::task<> killed_while_receiving(tutti::communicator world) {
  std::vector<std::byte> data(long_bytes), other(world.rank() == victim ? long_bytes : 0);
  for (int round = 0;; ++round) {
    if (world.rank() != victim) {
      co_await world.send(data, victim);
      continue;
    }
    tutti::request first = world.irecv(data, 0), second = world.irecv(other, 2);
    if (round == 1) {
      co_await turn(world);
      die();
    }
    co_await first;
    co_await second;
  }
}

tutti::task<> killed_with_a_window(tutti::communicator world, bool waits) {
  int mine = 0;
  tutti::window w = co_await world.window(std::span(&mine, 1));
  co_await w.put(victim, victim);
  co_await w.flush(victim);
  co_await others_wait(world);
  if (world.rank() == victim) die();
  if (waits) co_await w.wait_signal(0, [](std::uint64_t n) { return n > 0; });
  for (;;) co_await w.fetch_add(victim, 0, 1);
}
tutti::task<> killed_while_its_signal_is_waited_for(tutti::communicator world) {
  return killed_with_a_window(std::move(world), true);
}
tutti::task<> killed_while_its_window_is_used(tutti::communicator world) {
  return killed_with_a_window(std::move(world), false);
}

tutti::task<> returns_early(tutti::communicator world) {
  co_await others_wait(world);
  if (world.rank() == victim) co_return;
  int never = 0;
  co_await world.recv(never, victim);
}

void expect_left(const tutti::communicator& world, const std::error_code& error, const std::string& text) {
  if (error != tutti::errc::peer_left) throw tutti::error(static_cast<tutti::errc>(error.value()), text);
  if (text.find("rank 1 (host ") == text.npos || text.find("has finished and left") == text.npos)
    throw std::runtime_error("the error does not say that rank 1 has left: " + text);
  if (!world.failed_ranks().empty()) throw std::runtime_error("a rank that has left counts as failed");
}

// The others have no connection to the victim, and must not count it as dead. An operation that needs the
// victim fails because it has left, and a receive from any rank continues.
tutti::task<> leaves_unmet(tutti::communicator world) {
  if (world.rank() == victim) co_return;
  int x = 7;
  if (world.rank() == 2) {
    co_await world.send(x, 0);
    co_await world.recv(x, 0);  // otherwise the failure of the barrier might end rank 0's receive
  } else {
    const auto r = co_await tutti::as_result(world.recv(x, victim));
    expect_left(world, r.error, r.message);
    co_await world.recv(x, tutti::any_source);
    if (x != 7) throw std::runtime_error("a wrong number has come");
    co_await world.send(x, 2);
  }
  const auto r = co_await tutti::as_result(world.barrier());
  expect_left(world, r.error, r.message);
}

tutti::task<> exits_without_leaving(tutti::communicator world) {
  co_await others_wait(world);
  if (world.rank() == victim) ::_exit(0);
  int never = 0;
  co_await world.recv(never, victim);
}

tutti::task<> throws(tutti::communicator world) {
  co_await others_wait(world);
  if (world.rank() == victim) throw std::runtime_error("boom");
  int never = 0;
  co_await world.recv(never, victim);
}

tutti::task<> throws_and_the_others_exit(tutti::communicator world) {
  co_await others_wait(world);
  if (world.rank() == victim) throw std::runtime_error("boom");
  int never = 0;
  const auto heard = co_await tutti::as_result(world.recv(never, victim));
  if (heard.error) ::_exit(3);
}

tutti::task<> adds_up(tutti::communicator world) {
  int one = 1;
  co_await world.all_reduce(one, tutti::sum);
  co_await world.barrier();
  if (one != world.size()) throw std::runtime_error("a wrong sum");
}

// Thousands of collectives wait for a rank that comes late.
tutti::task<> floods(tutti::communicator world) {
  constexpr int many = 20'000;
  if (world.rank() == victim) co_await tutti::sleep_for(std::chrono::milliseconds(1500));
  std::vector<int> numbers(many, 1);
  std::vector<tutti::request> sums;
  for (int& number : numbers) sums.push_back(tutti::start(world.all_reduce(number, tutti::sum)));
  co_await tutti::when_all(sums);
  for (const int number : numbers)
    if (number != world.size()) throw std::runtime_error("a wrong sum");
}

tutti::task<> wait_for_ever(tutti::communicator world) {
  co_await world.barrier();
  std::printf("ready %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  int never = 0;
  co_await world.recv(never, (world.rank() + 1) % world.size());
}

struct drill {
  std::string_view name;
  tutti::task<> (*body)(tutti::communicator);
};
constexpr drill drills[] = {
    {"killed_in_all_reduce", &killed_in_all_reduce},
    {"killed_while_waited_for", &killed_while_waited_for},
    {"killed_before_any_message", &killed_before_any_message},
    {"killed_before_any_message_that_is_probed_for", &killed_before_any_message_that_is_probed_for},
    {"killed_while_sending", &killed_while_sending},
    {"killed_while_receiving", &killed_while_receiving},
    {"killed_while_its_signal_is_waited_for", &killed_while_its_signal_is_waited_for},
    {"killed_while_its_window_is_used", &killed_while_its_window_is_used},
    {"returns_early", &returns_early},
    {"leaves_unmet", &leaves_unmet},
    {"exits_without_leaving", &exits_without_leaving},
    {"throws", &throws},
    {"throws_and_the_others_exit", &throws_and_the_others_exit},
    {"adds_up", &adds_up},
    {"floods", &floods},
    {"wait_for_ever", &wait_for_ever},
};

const char* name_of(const std::error_code& code) {
  if (code == tutti::errc::peer_failed) return "peer_failed";
  if (code == tutti::errc::peer_left) return "peer_left";
  if (code == tutti::errc::mismatch) return "mismatch";
  return "another error";
}

tutti::task<> survive(tutti::communicator world, const drill* d) {
  const int rank = world.rank();
  try {
    co_await d->body(world);
  } catch (const tutti::error& e) {
    std::printf("rank %d heard %s: %s\n", rank, name_of(e.code()), e.what());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const drill& d : drills)
    if (argc == 2 && d.name == argv[1])
      return tutti::run([&d](tutti::communicator world) { return survive(std::move(world), &d); });
  std::fprintf(stderr, "usage: drill NAME\n");
  return 2;
}
