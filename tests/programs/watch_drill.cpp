// SPDX-License-Identifier: Apache-2.0
// Ranks that stop, compute, read slowly or become unresponsive, for comm/watch_process_test: `watch_drill
// NAME`. Rank 1 does it; rank 0 waits for it and prints its observations.
#include <signal.h>
#include <unistd.h>

#include <sys/resource.h>
#include <algorithm>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
using namespace std::chrono_literals;

// A clock that all ranks of one machine share.
double now_s() { return std::chrono::duration<double>(clock_type::now().time_since_epoch()).count(); }

auto nap(boost::asio::steady_timer& timer, std::chrono::milliseconds d) {
  timer.expires_after(d);
  return timer.async_wait(boost::asio::deferred);
}

bool suspects_victim(const tutti::communicator& world) {
  const std::vector<int> suspects = world.suspected_ranks();
  return std::find(suspects.begin(), suspects.end(), 1) != suspects.end();
}

// Checks 20 times a second whether the victim is suspected, until it is or `patience` has passed.
tutti::task<double> seconds_until_suspected(tutti::communicator world, double from) {
  boost::asio::steady_timer timer(world.get_executor());
  for (int i = 0; i < 400; ++i) {
    if (suspects_victim(world)) co_return now_s() - from;
    co_await nap(timer, 50ms);
  }
  co_return -1;
}

void say_resources() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  std::printf("cpu %.3f\n", static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                                1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec));
}

// The victim sends its pid and the time, and is stopped. It is continued when it is suspected.
tutti::task<> stops(tutti::communicator world) {
  std::vector<double> sum(1000, world.rank() + 1.0);
  co_await world.all_reduce(sum, tutti::sum);
  double word = 0;
  if (world.rank() == 1) {
    std::vector<double> mine = {static_cast<double>(::getpid()), now_s()};
    co_await world.send(mine, 0);
    ::raise(SIGSTOP);
    co_await world.send(word, 0);
  } else if (world.rank() == 0) {
    std::vector<double> its(2);
    co_await world.recv(its, 1);
    tutti::request waiting = world.irecv(word, 1);
    const double after = co_await seconds_until_suspected(world, its[1]);
    std::printf("suspected after %.3f\n", after);
    ::kill(static_cast<pid_t>(its[0]), SIGCONT);
    co_await waiting;
    std::printf("it is back\n");
  }
  std::fill(sum.begin(), sum.end(), world.rank() + 1.0);
  co_await world.all_reduce(sum, tutti::sum);
  const double right = world.size() * (world.size() + 1) / 2.0;
  // Until the next check.
  boost::asio::steady_timer timer(world.get_executor());
  co_await nap(timer, 1s);
  if (world.rank() == 0) {
    std::printf("sum %s\n", sum.front() == right && sum.back() == right ? "right" : "wrong");
    std::printf("suspects %zu\n", world.suspected_ranks().size());
  }
}

// All wait in a collective for a rank that stays stopped.
tutti::task<> stays_stopped(tutti::communicator world) {
  double sum = 1;
  co_await world.all_reduce(sum, tutti::sum);
  if (world.rank() == 1) {
    std::printf("pid %d\n", ::getpid());
    std::fflush(stdout);
    ::raise(SIGSTOP);
    // Continued after it was given up.
    ::_exit(0);
  }
  const double from = now_s();
  std::string heard;
  try {
    co_await world.all_reduce(sum, tutti::sum);
  } catch (const tutti::error& e) {
    heard = std::string(e.code() == tutti::errc::peer_failed ? "peer_failed" : "other") + ": " + e.what();
  }
  std::printf("rank %d heard after %.3f %s\n", world.rank(), now_s() - from, heard.c_str());
}

// Rank 1 dies, and the rank that takes its place in the next world stays stopped.
tutti::task<> renumbered(tutti::communicator world) {
  // A slow rank may hear of the death in the first barrier already.
  auto heard = co_await tutti::as_result(world.barrier());
  if (world.rank() == 1) ::_exit(9);
  if (!heard.error) heard = co_await tutti::as_result(world.barrier());
  if (!heard.error) std::printf("the death was not noticed\n");
  world = co_await world.rejoin();
  co_await stays_stopped(world);
}

// Rank 0 stays stopped. The others notice it in a barrier, and go on without it.
tutti::task<> shrinks(tutti::communicator world) {
  co_await world.barrier();
  if (world.rank() == 0) {
    std::printf("pid %d\n", ::getpid());
    std::fflush(stdout);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  const auto failed = co_await tutti::as_result(world.barrier());
  if (!failed.error) std::printf("no failure\n");
  const double from = now_s();
  const tutti::communicator rest = co_await world.shrink();
  std::printf("rank %d is one of %d after %.3f\n", world.rank(), rest.size(), now_s() - from);
}

tutti::task<> computes(tutti::communicator world) {
  double sum = 1;
  co_await world.all_reduce(sum, tutti::sum);
  if (world.rank() == 1) {
    const double from = now_s();
    while (now_s() < from + 2.5) {
    }
  }
  tutti::request reducing;
  const double from = now_s();
  if (world.rank() != 1) {
    reducing = tutti::start(world.all_reduce(sum, tutti::sum));
    const double after = co_await seconds_until_suspected(world, from);
    std::printf("rank %d suspected after %.3f\n", world.rank(), after);
    co_await reducing;
    const double all = now_s() - from;
    boost::asio::steady_timer timer(world.get_executor());
    co_await nap(timer, 1s);
    std::printf("rank %d goes on after %.3f, suspects %zu\n", world.rank(), all,
                world.suspected_ranks().size());
  } else {
    co_await world.all_reduce(sum, tutti::sum);
  }
}

// Rank 0 waits for a message for some seconds without any traffic.
tutti::task<> rests(tutti::communicator world) {
  boost::asio::steady_timer timer(world.get_executor());
  std::vector<std::byte> data(1024);
  co_await world.barrier();
  if (world.rank() == 1) {
    co_await nap(timer, 4s);
    co_await world.send(data, 0);
  } else if (world.rank() == 0) {
    const tutti::counters before = tutti::counters_of(world);
    co_await world.recv(data, 1);
    const tutti::counters after = tutti::counters_of(world);
    std::printf("parks %llu\n", static_cast<unsigned long long>(after.parks - before.parks));
    say_resources();
  }
  co_await world.barrier();
}

// No operation is pending for some seconds.
tutti::task<> idles(tutti::communicator world) {
  boost::asio::steady_timer timer(world.get_executor());
  co_await world.barrier();
  co_await nap(timer, 1s);  // the end of the barrier, and what was asked meanwhile, are no idling
  const tutti::counters before = tutti::counters_of(world);
  co_await nap(timer, 3s);
  const tutti::counters after = tutti::counters_of(world);
  std::printf("rank %d parks %llu\n", world.rank(),
              static_cast<unsigned long long>(after.parks - before.parks));
  co_await world.barrier();
}

// The victim neither reads nor runs its loop for a while: the sender's window stays full.
tutti::task<> reads_late(tutti::communicator world) {
  std::vector<std::byte> data(48 << 20);
  boost::asio::steady_timer timer(world.get_executor());
  co_await world.barrier();
  if (world.rank() == 0) {
    for (int i = 0; i < 3; ++i) co_await world.send(data, 1);
    std::printf("sent\n");
  } else if (world.rank() == 1) {
    tutti::request first = world.irecv(data, 0);
    co_await nap(timer, 20ms);
    std::this_thread::sleep_for(8s);  // other ranks of this machine do not suspect it either
    co_await first;
    for (int i = 1; i < 3; ++i) co_await world.recv(data, 0);
  }
  co_await world.barrier();
}

// Rank 0, which serves the store, is killed. Ranks that do not wait for it do not notice.
tutti::task<> loses_its_store(tutti::communicator world) {
  const std::vector<int> others = {1, 2};
  tutti::communicator rest = co_await world.group(others);
  if (world.rank() == 0) {
    int ready = 0;
    co_await world.recv(ready, 1);
    ::raise(SIGKILL);
  }
  double sum = 1;
  co_await rest.all_reduce(sum, tutti::sum);
  if (world.rank() == 1) co_await world.send(world.rank(), 0);
  boost::asio::steady_timer timer(world.get_executor());
  while (world.failed_ranks().empty()) co_await nap(timer, 5ms);
  bool right = true;
  for (int round = 0; round < 200; ++round) {
    sum = 1;
    co_await rest.all_reduce(sum, tutti::sum);
    right = right && sum == 2;
  }
  std::printf("rank %d without the store: %s\n", world.rank(), right ? "right" : "wrong");
}

long resident_mib() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss / 1024;
}

// Over a slow network: sums, then more data than it can carry quickly.
tutti::task<> crawls(tutti::communicator world) {
  std::vector<double> data(16 << 10);
  bool right = true;
  const long before = resident_mib();
  for (int round = 0; round < 3; ++round) {
    std::fill(data.begin(), data.end(), world.rank() + 1.0);
    co_await world.all_reduce(data, tutti::sum);
    right = right && data.front() == 3 && data.back() == 3;
  }
  std::vector<std::byte> much(1 << 20);
  if (world.rank() == 0) co_await world.send(much, 1);
  if (world.rank() == 1) co_await world.recv(much, 0);
  co_await world.barrier();
  std::printf("sum %s\ngrown by %ld\n", right ? "right" : "wrong", resident_mib() - before);
}

// The ranks exchange messages without end. Every survivor prints when and how it got the error.
tutti::task<> falls_silent(tutti::communicator world) {
  const int peer = world.size() - 1 - world.rank();
  std::vector<double> mine(1 << 10), theirs(1 << 10);
  co_await world.barrier();
  std::string heard;
  double last = now_s();
  try {
    for (int round = 0;; ++round) {
      tutti::request receiving = world.irecv(theirs, peer);
      co_await world.send(mine, peer);
      co_await receiving;
      if (round == 100) {
        std::printf("ready\n");
        std::fflush(stdout);
      }
      last = now_s();
    }
  } catch (const tutti::error& e) {
    heard = std::string(e.code() == tutti::errc::peer_failed ? "peer_failed" : "other") + ": " + e.what();
  }
  std::printf("rank %d heard at %.3f, %.3f after the last message: %s\n", world.rank(), now_s(),
              now_s() - last, heard.c_str());
}

// The ranks of one of two hosts go on when the cable is cut. They have met some of the other host's ranks only.
tutti::task<> goes_on_without_a_host(tutti::communicator world) {
  double last = now_s();
  std::vector<float> gradient(1000, 1);
  for (int round = 0;; ++round) {
    const auto summed = co_await tutti::as_result(world.all_reduce(gradient, tutti::sum));
    if (summed.error) break;
    last = now_s();
    if (round == 100) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
  }
  const tutti::communicator rest = co_await world.shrink();
  int ranks = 1;
  co_await rest.all_reduce(ranks, tutti::sum);
  std::printf("rank %d goes on with %d of %d, %.3f after the last sum\n", world.rank(), ranks, rest.size(),
              now_s() - last);
}

// Rank 1 dies, while a process that it has forked lives as long as rank 0 and has its connections.
// Rank 0 waits for it, and with more ranks for any.
tutti::task<> dies_after_fork(tutti::communicator world) {
  double word = static_cast<double>(::getpid());
  if (world.rank() == 0) co_await world.send(word, 1);
  if (world.rank() > 1) {
    co_await tutti::as_result(world.recv(word, 0));  // until rank 0 leaves
    co_return;
  }
  if (world.rank() == 1) {
    co_await world.recv(word, 0);
    if (::fork() == 0) {
      while (::kill(static_cast<pid_t>(word), 0) == 0) ::usleep(10'000);
      ::_exit(0);
    }
    ::kill(::getpid(), SIGKILL);
  }
  const double from = now_s();
  std::string heard;
  try {
    co_await world.recv(word, world.size() == 2 ? 1 : tutti::any_source);
  } catch (const tutti::error& e) {
    heard = std::string(e.code() == tutti::errc::peer_failed ? "peer_failed" : "other") + ": " + e.what();
  }
  std::printf("heard after %.3f %s\n", now_s() - from, heard.c_str());
}

// "COLLECTIVE.ALGORITHM". Rank 1 gets the last frame.
tutti::task<> call(tutti::communicator world, std::string what, bool* over) {
  const std::string name = what.substr(what.find('.') + 1);
  const auto all = tutti::all_algorithms();
  const tutti::algorithm with =
      *std::find_if(all.begin(), all.end(), [&name](tutti::algorithm a) { return name == name_of(a); });
  const int mine = world.rank() + 1;
  int one = mine;
  std::vector<int> each(static_cast<std::size_t>(world.size()), mine);
  if (what.starts_with("barrier.")) co_await world.barrier().with(with);
  if (what.starts_with("broadcast.")) co_await world.broadcast(one, 2).with(with);
  if (what.starts_with("reduce.")) co_await world.reduce(mine, one, tutti::sum, 1).with(with);
  if (what.starts_with("all_reduce.")) co_await world.all_reduce(one, tutti::sum).with(with);
  if (what.starts_with("all_gather.")) co_await world.all_gather(mine, each).with(with);
  if (what.starts_with("gather.")) co_await world.gather(mine, each, 1).with(with);
  if (what.starts_with("scatter.")) co_await world.scatter(each, one, 2).with(with);
  *over = true;
}

// The state of a process, as ps prints it.
char state_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t at = text.rfind(')');
  return at + 2 < text.size() ? text[at + 2] : '?';
}

tutti::task<> say_end_of(tutti::task<> work, std::string what) {
  try {
    co_await std::move(work);
    what += " completed";
  } catch (const tutti::error& e) {
    what += std::string(e.code() == tutti::errc::peer_failed ? " peer_failed: " : " other: ") + e.what();
  }
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
}

// Rank 1 is stopped in a collective when the others have all that they need from it. They complete it, and rank 2
// dies. Rank 0 then lets rank 1 go on.
tutti::task<> completes(tutti::communicator world, std::string what) {
  const std::string me = "rank " + std::to_string(world.rank());
  const int pid = ::getpid();
  std::vector<int> pids(static_cast<std::size_t>(world.size()));
  boost::asio::steady_timer timer(world.get_executor());
  int x = 0;
  bool over = false;
  co_await world.all_gather(pid, pids);
  co_await call(world, what, &over);  // connects the ranks
  co_await world.barrier();
  over = false;
  if (world.rank() == 2) {
    co_await world.recv(x, 1);
    while (state_of(pids[1]) != 'T') co_await nap(timer, 1ms);
    co_await call(world, what, &over);
    co_await world.recv(x, 0);
    ::raise(SIGKILL);
  }
  tutti::scope reached;
  reached.spawn(say_end_of(call(world, what, &over), me + " reached it and"));
  if (world.rank() == 0) {
    co_await world.send(x, 1);
    co_await reached.join();
    co_await world.send(x, 2);
  } else {
    co_await world.recv(x, 0);
    co_await world.send(x, 2);
    co_await nap(timer, 5ms);  // what it has sent leaves
    if (over) std::printf("WRONG: rank 1 waits for nothing\n");
    ::raise(SIGSTOP);
    co_await reached.join();
  }
  co_await say_end_of(call(world, "barrier.dissemination", &over), me + " called the next and");
  if (world.rank() == 0) ::kill(pids[1], SIGCONT);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (constexpr std::string_view prefix = "completes:"; name.starts_with(prefix))
    return tutti::run([what = std::string(name.substr(prefix.size()))](tutti::communicator world) {
      return completes(std::move(world), what);
    });
  tutti::task<> (*drill)(tutti::communicator) = nullptr;
  if (name == "stops") drill = stops;
  if (name == "stays_stopped") drill = stays_stopped;
  if (name == "renumbered") drill = renumbered;
  if (name == "shrinks") drill = shrinks;
  if (name == "computes") drill = computes;
  if (name == "rests") drill = rests;
  if (name == "idles") drill = idles;
  if (name == "reads_late") drill = reads_late;
  if (name == "loses_its_store") drill = loses_its_store;
  if (name == "crawls") drill = crawls;
  if (name == "falls_silent") drill = falls_silent;
  if (name == "goes_on_without_a_host") drill = goes_on_without_a_host;
  if (name == "dies_after_fork") drill = dies_after_fork;
  if (drill == nullptr) return 2;
  return tutti::run(drill);
}
