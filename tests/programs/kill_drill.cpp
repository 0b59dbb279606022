// SPDX-License-Identifier: Apache-2.0
// Ranks that are killed at random, one after the other, during every collective and messages, for
// comm/kill_drill_test: `kill_drill FILE SEED KILLS`. The survivors shrink and continue. All ranks map FILE,
// where the victim writes the time of its death. Every rank prints its observations; violations begin with
// WRONG.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using tutti::communicator;
using tutti::sum;
using tutti::task;
using number = std::int64_t;
using numbers = std::vector<number>;

constexpr std::size_t most_kills = 64;
struct deaths {
  std::array<std::atomic<std::int64_t>, most_kills> at_ns;  // 0: not yet
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class random_plan {  // splitmix64, the same on all ranks
 public:
  explicit random_plan(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t end) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<std::size_t>((z ^ (z >> 31)) % end);
  }

 private:
  std::uint64_t state_;
};

struct wrong_result : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void expect(bool so, const char* what) {
  if (!so) throw wrong_result(what);
}
void expect_all(const numbers& data, number wanted, const char* what) {
  for (const number x : data) expect(x == wanted, what);
}

// ---- each kind of operation; `n` elements a block, in repetition `i` ----

task<> barrier(communicator c, std::size_t, int) { co_await c.barrier(); }

task<> broadcast(communicator c, std::size_t n, int i) {
  numbers data(n, c.rank() == i % c.size() ? i : -1);
  co_await c.broadcast(data, i % c.size());
  expect_all(data, i, "broadcast");
}
task<> all_reduce(communicator c, std::size_t n, int i) {
  numbers data(n, c.rank() + i);
  co_await c.all_reduce(data, sum);
  expect_all(data, c.size() * (c.size() - 1) / 2 + number{i} * c.size(), "all_reduce");
}
task<> reduce(communicator c, std::size_t n, int i) {
  const int root = i % c.size();
  const numbers in(n, c.rank());
  numbers out(c.rank() == root ? n : 0);
  co_await c.reduce(in, out, sum, root);
  expect_all(out, c.size() * (c.size() - 1) / 2, "reduce");
}
task<> scatter(communicator c, std::size_t n, int i) {
  const int root = i % c.size();
  numbers in(c.rank() == root ? n * static_cast<std::size_t>(c.size()) : 0), out(n, -1);
  for (std::size_t k = 0; k < in.size(); ++k) in[k] = static_cast<number>(k / n) + i;
  co_await c.scatter(in, out, root);
  expect_all(out, c.rank() + i, "scatter");
}
void expect_blocks(const numbers& data, std::size_t n, int i, const char* what) {
  for (std::size_t k = 0; k < data.size(); ++k) expect(data[k] == static_cast<number>(k / n) + i, what);
}
task<> gather(communicator c, std::size_t n, int i) {
  const int root = i % c.size();
  const numbers in(n, c.rank() + i);
  numbers out(c.rank() == root ? n * static_cast<std::size_t>(c.size()) : 0, -1);
  co_await c.gather(in, out, root);
  expect_blocks(out, n, i, "gather");
}
task<> all_gather(communicator c, std::size_t n, int i) {
  const numbers in(n, c.rank() + i);
  numbers out(n * static_cast<std::size_t>(c.size()), -1);
  co_await c.all_gather(in, out);
  expect_blocks(out, n, i, "all_gather");
}
task<> reduce_scatter(communicator c, std::size_t n, int i) {
  const numbers in(n * static_cast<std::size_t>(c.size()), c.rank() + i);
  numbers out(n, -1);
  co_await c.reduce_scatter(in, out, sum);
  expect_all(out, c.size() * (c.size() - 1) / 2 + number{i} * c.size(), "reduce_scatter");
}
task<> all_to_all(communicator c, std::size_t n, int i) {
  const numbers in(n * static_cast<std::size_t>(c.size()), c.rank() + i);
  numbers out(in.size(), -1);
  co_await c.all_to_all(in, out);
  expect_blocks(out, n, i, "all_to_all");
}
task<> scan(communicator c, std::size_t n, int i) {
  const numbers in(n, i + 1);
  numbers out(n, -1);
  co_await c.scan(in, out, sum);
  expect_all(out, number{i + 1} * (c.rank() + 1), "scan");
}
task<> exclusive_scan(communicator c, std::size_t n, int i) {
  const numbers in(n, i + 1);
  numbers out(n, 0);
  co_await c.exclusive_scan(in, out, sum);
  expect_all(out, number{i + 1} * c.rank(), "exclusive_scan");
}

// Blocks of n, 2n and 3n elements in turn.
std::vector<std::size_t> uneven(const communicator& c, std::size_t n) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < c.size(); ++r) counts.push_back(n * (1 + static_cast<std::size_t>(r) % 3));
  return counts;
}
std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}
void expect_uneven(const numbers& data, const std::vector<std::size_t>& counts, int i, const char* what) {
  std::size_t k = 0;
  for (std::size_t r = 0; r < counts.size(); ++r)
    for (std::size_t j = 0; j < counts[r]; ++j) expect(data[k++] == static_cast<number>(r) + i, what);
}
numbers laid_out(const std::vector<std::size_t>& counts, int i) {
  numbers data;
  for (std::size_t r = 0; r < counts.size(); ++r)
    data.insert(data.end(), counts[r], static_cast<number>(r) + i);
  return data;
}

task<> scatter_v(communicator c, std::size_t n, int i) {
  const int root = i % c.size();
  const std::vector<std::size_t> counts = uneven(c, n);
  numbers in, out(counts[static_cast<std::size_t>(c.rank())], -1);
  if (c.rank() == root) in = laid_out(counts, i);
  co_await c.scatter_v(in, counts, out, root);
  expect_all(out, c.rank() + i, "scatter_v");
}
task<> gather_v(communicator c, std::size_t n, int i) {
  const int root = i % c.size();
  const std::vector<std::size_t> counts = uneven(c, n);
  const numbers in(counts[static_cast<std::size_t>(c.rank())], c.rank() + i);
  numbers out(c.rank() == root ? total(counts) : 0, -1);
  co_await c.gather_v(in, out, counts, root);
  if (c.rank() == root) expect_uneven(out, counts, i, "gather_v");
}
task<> all_gather_v(communicator c, std::size_t n, int i) {
  const std::vector<std::size_t> counts = uneven(c, n);
  const numbers in(counts[static_cast<std::size_t>(c.rank())], c.rank() + i);
  numbers out(total(counts), -1);
  co_await c.all_gather_v(in, out, counts);
  expect_uneven(out, counts, i, "all_gather_v");
}
task<> reduce_scatter_v(communicator c, std::size_t n, int i) {
  const std::vector<std::size_t> counts = uneven(c, n);
  const numbers in(total(counts), c.rank() + i);
  numbers out(counts[static_cast<std::size_t>(c.rank())], -1);
  co_await c.reduce_scatter_v(in, counts, out, sum);
  expect_all(out, c.size() * (c.size() - 1) / 2 + number{i} * c.size(), "reduce_scatter_v");
}
task<> all_to_all_v(communicator c, std::size_t n, int i) {
  const std::vector<std::size_t> counts = uneven(c, n);
  // Rank r gets counts[r] elements from every rank.
  const numbers in(total(counts), c.rank() + i);
  const std::vector<std::size_t> from(static_cast<std::size_t>(c.size()),
                                      counts[static_cast<std::size_t>(c.rank())]);
  numbers out(total(from), -1);
  co_await c.all_to_all_v(in, counts, out, from);
  expect_uneven(out, from, i, "all_to_all_v");
}

task<> split(communicator c, std::size_t, int) {
  communicator part = co_await c.split(c.rank() % 2, 0);
  expect(part.size() == (c.size() + 1 - c.rank() % 2) / 2, "split");
  int ones = 1;
  co_await part.all_reduce(ones, sum);
  expect(ones == part.size(), "all_reduce after split");
}
task<> duplicate(communicator c, std::size_t, int) {
  communicator other = co_await c.duplicate();
  co_await other.barrier();
}

task<> ring(communicator c, std::size_t n, int i) {
  const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
  const numbers out(n, c.rank() + i);
  numbers in(n, -1);
  tutti::request sending = c.isend(out, right, 5);
  co_await c.recv(in, left, 5);
  expect_all(in, left + i, "ring");
  co_await sending;
}
// One rank asks all the others and takes the answers in any order.
task<> from_anyone(communicator c, std::size_t n, int i) {
  const int server = i % c.size();
  numbers data(n, c.rank() == server ? i : -1);
  if (c.rank() == server) {
    number heard = 0;
    for (int k = 1; k < c.size(); ++k) {
      const tutti::status st = co_await c.recv(data, tutti::any_source, 6);
      expect_all(data, st.source, "from_anyone");
      heard += st.source;
      co_await c.send(i, st.source, 7);
    }
    expect(heard == c.size() * (c.size() - 1) / 2 - server, "from_anyone: who came");
  } else {
    std::fill(data.begin(), data.end(), c.rank());
    co_await c.send(data, server, 6);
    int answer = -1;
    co_await c.recv(answer, server, 7);
    expect(answer == i, "from_anyone: the answer");
  }
}
// Several at once, of different kinds.
task<> mixture(communicator c, std::size_t n, int i) {
  numbers a(n, 1), b(n, 2);
  tutti::request first = tutti::start(c.all_reduce(a, sum)), second = tutti::start(c.all_reduce(b, sum)),
                 third = tutti::start(c.barrier());
  co_await ring(c, n, i);
  co_await third;
  co_await second;
  co_await first;
  expect_all(a, c.size(), "mixture");
  expect_all(b, 2 * c.size(), "mixture");
}

struct deed {
  const char* name;
  task<> (*body)(communicator, std::size_t n, int i);
};
constexpr deed deeds[] = {{"all_reduce", all_reduce},
                          {"ring", ring},
                          {"broadcast", broadcast},
                          {"reduce", reduce},
                          {"from_anyone", from_anyone},
                          {"barrier", barrier},
                          {"scatter", scatter},
                          {"gather", gather},
                          {"all_gather", all_gather},
                          {"reduce_scatter", reduce_scatter},
                          {"all_to_all", all_to_all},
                          {"scan", scan},
                          {"exclusive_scan", exclusive_scan},
                          {"scatter_v", scatter_v},
                          {"gather_v", gather_v},
                          {"all_gather_v", all_gather_v},
                          {"reduce_scatter_v", reduce_scatter_v},
                          {"all_to_all_v", all_to_all_v},
                          {"split", split},
                          {"duplicate", duplicate},
                          {"mixture", mixture}};
constexpr std::size_t sizes[] = {1, 7, 300, 4000, 40'000};

void die_after(std::chrono::microseconds delay, std::atomic<std::int64_t>* at) {
  std::thread([delay, at] {
    std::this_thread::sleep_for(delay);
    at->store(now_ns());
    ::kill(::getpid(), SIGKILL);
  }).detach();
}

// Repeats until an error.
task<> repeat(communicator c, const deed* what, std::size_t n) {
  for (int i = 0;; ++i) co_await what->body(c, n, i);
}

std::string text_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += " " + std::to_string(r);
  return text;
}

task<> drill(communicator world, std::uint64_t seed, int kills, deaths* dead) {
  const int me = world.rank();
  communicator c = world;
  std::vector<int> members(static_cast<std::size_t>(c.size()));
  std::iota(members.begin(), members.end(), 0);
  for (int round = 0; round < kills && c.size() > 1; ++round) {
    random_plan plan(seed + static_cast<std::uint64_t>(round) * 7919);
    const deed& what = deeds[(seed + static_cast<std::uint64_t>(round)) % std::size(deeds)];
    const std::size_t n = sizes[plan.below(std::size(sizes))];
    const auto victim = static_cast<int>(plan.below(static_cast<std::size_t>(c.size())));
    const std::chrono::microseconds delay(plan.below(4) == 0 ? plan.below(300) : plan.below(30'000));
    std::atomic<std::int64_t>& at = dead->at_ns[static_cast<std::size_t>(round)];
    std::string text;
    bool peer_failed = false;
    std::int64_t heard = 0;
    try {
      // No rank dies while others still check the previous round.
      co_await c.barrier();
      if (c.rank() == victim) die_after(delay, &at);
      co_await repeat(c, &what, n);
    } catch (const tutti::error& e) {
      heard = now_ns();
      text = e.what();
      // communicator_failed if another request of this rank has got peer_failed.
      peer_failed = e.code() == tutti::errc::peer_failed || e.code() == tutti::errc::communicator_failed;
    }
    const std::string name = "rank " + std::to_string(members[static_cast<std::size_t>(victim)]) + " (host ";
    if (!peer_failed || at.load() == 0 || text.find(name) == std::string::npos)
      std::printf("WRONG rank %d round %d %s: %s%s\n", me, round, what.name,
                  at.load() == 0 ? "nobody has died: " : "", text.c_str());
    const std::int64_t before = now_ns();
    communicator next = co_await c.shrink();
    const std::int64_t mended = now_ns() - before;
    const std::vector<int> failed = c.failed_ranks();
    if (failed != std::vector<int>{victim})
      std::printf("WRONG rank %d round %d: failed ranks%s\n", me, round, text_of(failed).c_str());
    members.erase(members.begin() + victim);
    std::vector<int> got(static_cast<std::size_t>(next.size()));
    co_await next.all_gather(me, got);
    if (got != members) std::printf("WRONG rank %d round %d: members%s\n", me, round, text_of(got).c_str());
    number total = me + 1;
    co_await next.all_reduce(total, sum);
    if (total != std::accumulate(members.begin(), members.end(), number{0}) + next.size())
      std::printf("WRONG rank %d round %d: the sum is %lld\n", me, round, static_cast<long long>(total));
    std::printf("survivor %d round %d %s %zu noticed %lld mended %lld\n", me, round, what.name, n,
                static_cast<long long>((heard - at.load()) / 1000), static_cast<long long>(mended / 1000));
    std::fflush(stdout);
    c = next;
  }
  std::printf("rank %d is left\n", me);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: kill_drill FILE SEED KILLS\n");
    return 2;
  }
  const int fd = ::open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(deaths)) != 0) return 2;
  void* const memory = ::mmap(nullptr, sizeof(deaths), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return 2;
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 0);
  const int kills = std::min(std::atoi(argv[3]), static_cast<int>(most_kills));
  return tutti::run(
      [=](communicator world) { return drill(std::move(world), seed, kills, static_cast<deaths*>(memory)); });
}
