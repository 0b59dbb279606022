// SPDX-License-Identifier: Apache-2.0
// Sends, receives and probes, also matched ones, are cancelled and dropped at random points, over each real transport. Their
// buffers are freed and overwritten at once. Every successfully sent message is received once and in order,
// no cancelled one is, nothing is left over, and the world still works.
//
// TUTTI_TEST_STORM=100000 sets the number of operations; TUTTI_TEST_SEED replays a run.
#include "comm/communicator_state.hpp"
#include "support/instrumented.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;

namespace {

constexpr int ranks = 4;
constexpr std::size_t most_bytes = 1024 * 1024;
constexpr std::size_t most_sends = 24;  // at a time, of one rank

// Messages of one rank for another use several routes. Within a route they stay in order if only one receive
// waits at a time: three tags of the world, and a communicator of its own with the number of the message as
// tag.
constexpr std::size_t routes = 4;
constexpr std::size_t numbered_route = 3;
constexpr int first_tag = 10;
constexpr std::uint32_t end_of_route = 1'000'000'000;  // the number of the last message

// 40 bits that identify the message.
std::uint64_t name_of(int from, int to, std::size_t route, std::uint64_t number) {
  const auto at = static_cast<std::uint64_t>(from * ranks + to) * routes + route;
  return ((at + 1) << 40) | number;
}
void write_message(std::span<std::byte> bytes, std::uint64_t name) {
  for (std::uint64_t i = 0; bytes.size() >= sizeof name; ++i, bytes = bytes.subspan(sizeof name)) {
    const std::uint64_t word = i == 0 ? name : name * 0x9e3779b97f4a7c15ULL + i;
    std::memcpy(bytes.data(), &word, sizeof word);
  }
  for (std::byte& b : bytes) b = static_cast<std::byte>(name);
}
bool is_message(std::span<const std::byte> bytes, std::uint64_t name) {
  for (std::uint64_t i = 0; bytes.size() >= sizeof name; ++i, bytes = bytes.subspan(sizeof name)) {
    const std::uint64_t word = i == 0 ? name : name * 0x9e3779b97f4a7c15ULL + i;
    if (std::memcmp(bytes.data(), &word, sizeof word) != 0) return false;
  }
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](std::byte b) { return b == static_cast<std::byte>(name); });
}

enum class outcome { success, cancelled, dropped };

// Events, written by each rank in its own part and read after all have ended.
struct ledger {
  struct sent {
    int to;
    std::uint32_t number;
    outcome became;
  };
  struct received {
    int from;
    std::uint32_t number;
  };
  std::array<std::array<std::deque<sent>, routes>, ranks> sends;
  std::array<std::array<std::deque<received>, routes>, ranks> receives;
  std::array<std::uint64_t, ranks> operations{};
  std::array<std::uint64_t, ranks> given_back{};
  std::atomic<int> checked = 0;
};

// Memory that is valid only during its operation. It is then freed if AddressSanitizer would notice an
// access, or else overwritten and checked later.
class buffer {
 public:
  buffer(std::size_t bytes, bool shared) : bytes_(bytes), shared_(shared) {
    if (shared) {
      in_shared_.resize(bytes);
    } else {
      own_.reset(new std::byte[bytes]);
    }
  }
  std::span<std::byte> span() {
    return shared_ ? std::span<std::byte>(in_shared_) : std::span(own_.get(), bytes_);
  }
  void write_over() { std::fill(span().begin(), span().end(), poison); }
  bool untouched() {
    const auto s = span();  // megabytes, often: each byte is compared with the next
    return s.empty() || (s.front() == poison && std::memcmp(s.data(), s.data() + 1, s.size() - 1) == 0);
  }

 private:
  static constexpr std::byte poison{0xDB};
  std::size_t bytes_;
  bool shared_;
  std::unique_ptr<std::byte[]> own_;
  shared_vector<std::byte> in_shared_;
};

class graveyard {
 public:
  void bury(std::unique_ptr<buffer> b) {
    if (instrumented) return;  // freed here
    b->write_over();
    buried_.push_back(std::move(b));
    if (buried_.size() > 12) dig();
  }
  void dig_all() {
    while (!buried_.empty()) dig();
  }

 private:
  void dig() {
    TUTTI_EXPECT(buried_.front()->untouched());
    buried_.pop_front();
  }
  std::deque<std::unique_ptr<buffer>> buried_;
};

struct pending_send {
  std::unique_ptr<buffer> data;
  request sending;
  ledger::sent* entry;
};
struct pending_receive {
  std::unique_ptr<buffer> data;
  request receiving;
};

struct ended {
  status result;
  std::error_code code;
  std::string text;
};
task<> end_of(request* r, ended* out) {
  try {
    out->result = co_await *r;
  } catch (const std::system_error& e) {
    out->code = e.code();
    out->text = e.what();
  }
}

class rank_in_storm {
 public:
  rank_in_storm(communicator world, communicator numbered, std::uint64_t seed, ledger& book)
      : world_(std::move(world)),
        numbered_(std::move(numbered)),
        numbers_(seed * 1'000'003 + static_cast<std::uint64_t>(world_.rank())),
        book_(book) {}

  task<> run(std::size_t operations) {
    while (started_ < operations) {
      const std::size_t route = numbers_.below(routes);
      const std::size_t what = numbers_.below(20);
      if (what < 5) {
        if (sends_.size() < most_sends) start_send(route);
      } else if (what < 10) {
        if (!receives_[route]) start_receive(route, numbers_.one_in(2));
      } else if (what < 14) {
        co_await end_a_receive(route);
      } else if (what < 16) {
        co_await end_a_send();
      } else if (what < 17) {
        if (numbers_.one_in(2) || receives_[route]) {
          co_await look(route);
        } else {
          co_await take_one(route);
        }
      } else {
        co_await turns(1 + numbers_.below(2));
      }
      co_await harvest();
    }
    book_.operations[here()] = started_;
  }

  // Sends a last message for each rank in each route, and receives everything.
  task<> drain() {
    // A receive may still wait for a rank whose last message has arrived.
    for (std::size_t route = 0; route < routes; ++route) co_await end_a_receive(route);
    for (std::size_t route = 0; route < routes; ++route)
      for (int to = 0; to < ranks; ++to) start_send(route, to, 16, end_of_route);
    for (std::size_t route = 0; route < routes; ++route) {
      while (ended_routes_[route] < ranks) {
        if (!receives_[route]) start_receive(route, true);
        ended e;
        co_await end_of(&receives_[route]->receiving, &e);
        take(route, e);
      }
    }
    for (pending_send& s : sends_) {
      ended e;
      co_await end_of(&s.sending, &e);
      note(s, e);
    }
    sends_.clear();
    graves_.dig_all();
  }

  // The endpoint must hold nothing of the storm.
  task<> check_for_leaks() {
    const operation<> any = world_.barrier();  // never started: it knows its communicator
    const p2p::endpoint& endpoint = any.what().comm->endpoint();
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
      const p2p::endpoint_usage u = endpoint.usage();
      if (u.posted + u.unexpected + u.transfer_ids + u.controls == 0) break;
      if (std::chrono::steady_clock::now() > end)
        throw std::runtime_error("left over: " + std::to_string(u.posted) + " receives, " +
                                 std::to_string(u.unexpected) + " messages, " +
                                 std::to_string(u.transfer_ids) + " transfer ids, " +
                                 std::to_string(u.controls) + " frames");
      co_await turns(1);
    }
    book_.given_back[here()] = endpoint.counters().given_back;
    // No rank continues before all have checked.
    ++book_.checked;
    while (book_.checked < ranks) {
      TUTTI_EXPECT(std::chrono::steady_clock::now() < end);
      co_await turns(1);
    }
  }

 private:
  std::size_t here() const { return static_cast<std::size_t>(world_.rank()); }
  communicator& of(std::size_t route) { return route == numbered_route ? numbered_ : world_; }
  static int tag_of(std::size_t route) {
    return route == numbered_route ? any_tag : first_tag + static_cast<int>(route);
  }

  task<> turns(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) co_await asio::post(world_.get_executor(), asio::deferred);
  }

  std::size_t some_size(std::size_t route) {
    const std::size_t least = route == numbered_route ? 0 : sizeof(std::uint64_t);
    constexpr std::size_t below[] = {64, 64, 5'000, 70'000, 300'000, 300'000, most_bytes, most_bytes};
    const std::size_t end = below[numbers_.below(std::size(below))];
    if (route == numbered_route && numbers_.one_in(4)) return 0;
    if (numbers_.one_in(20)) return most_bytes;
    return std::max(least, numbers_.below(end));
  }

  void start_send(std::size_t route) {
    const int to = static_cast<int>(numbers_.below(ranks));
    start_send(route, to, some_size(route), next_[static_cast<std::size_t>(to)][route]++);
  }
  void start_send(std::size_t route, int to, std::size_t bytes, std::uint32_t number) {
    ++started_;
    auto data = std::make_unique<buffer>(bytes, bytes > 4096 && numbers_.one_in(3));
    write_message(data->span(), name_of(world_.rank(), to, route, number));
    auto& book = book_.sends[here()][route];
    book.push_back({to, number, outcome::dropped});
    const int tag = route == numbered_route ? static_cast<int>(number) : tag_of(route);
    request sending = of(route).isend(data->span(), to, tag);
    sends_.push_back({std::move(data), std::move(sending), &book.back()});
  }
  void note(pending_send& s, const ended& e) {
    if (e.code && e.code != errc::cancelled) throw std::runtime_error("send: " + e.text);
    s.entry->became = e.code ? outcome::cancelled : outcome::success;
    graves_.bury(std::move(s.data));
  }
  task<> end_a_send() {
    if (sends_.empty()) co_return;
    const auto at = sends_.begin() + static_cast<std::ptrdiff_t>(numbers_.below(sends_.size()));
    pending_send s = std::move(*at);
    sends_.erase(at);
    if (numbers_.one_in(2)) {
      s.sending = request();
      graves_.bury(std::move(s.data));
      co_return;
    }
    s.sending.cancel();
    ended e;
    co_await end_of(&s.sending, &e);
    note(s, e);
  }

  void start_receive(std::size_t route, bool from_any) {
    ++started_;
    auto data = std::make_unique<buffer>(most_bytes, numbers_.one_in(4));
    const int source = from_any ? any_source : static_cast<int>(numbers_.below(ranks));
    request receiving = of(route).irecv(data->span(), source, tag_of(route));
    receives_[route].emplace(pending_receive{std::move(data), std::move(receiving)});
  }
  // The receive of the route has ended.
  void take(std::size_t route, const ended& e) {
    pending_receive r = std::move(*receives_[route]);
    receives_[route].reset();
    if (e.code) {
      // Cancelled by this rank, or half way by its sender.
      if (e.code != errc::cancelled) throw std::runtime_error("receive: " + e.text);
    } else {
      const std::span<const std::byte> bytes = r.data->span().first(e.result.bytes);
      std::uint32_t number = static_cast<std::uint32_t>(e.result.tag);
      if (route != numbered_route) {
        TUTTI_EXPECT(bytes.size() >= sizeof(std::uint64_t));
        TUTTI_EXPECT(e.result.tag == tag_of(route));
        std::uint64_t name = 0;
        std::memcpy(&name, bytes.data(), sizeof name);
        number = static_cast<std::uint32_t>(name & 0xffffffff);
      }
      TUTTI_EXPECT(is_message(bytes, name_of(e.result.source, world_.rank(), route, number)));
      book_.receives[here()][route].push_back({e.result.source, number});
      if (number == end_of_route) ++ended_routes_[route];
    }
    graves_.bury(std::move(r.data));
  }
  task<> end_a_receive(std::size_t route) {
    if (!receives_[route]) co_return;
    if (numbers_.one_in(2) && !receives_[route]->receiving.done()) {
      std::unique_ptr<buffer> data = std::move(receives_[route]->data);
      receives_[route].reset();  // drops the request
      graves_.bury(std::move(data));
      co_return;
    }
    receives_[route]->receiving.cancel();
    ended e;
    co_await end_of(&receives_[route]->receiving, &e);
    take(route, e);
  }

  task<> look(std::size_t route) {
    ++started_;
    request looking = start(of(route).probe(any_source, tag_of(route)));
    co_await turns(numbers_.below(3));
    if (numbers_.one_in(2)) co_return;
    looking.cancel();
    ended e;
    co_await end_of(&looking, &e);
    if (e.code && e.code != errc::cancelled) throw std::runtime_error("probe: " + e.text);
  }

  // Takes a message by a matched probe. Keeps it for a while, then drops or receives it. No receive waits in the
  // route, which could get a later message.
  task<> take_one(std::size_t route) {
    ++started_;
    const int source = numbers_.one_in(2) ? any_source : static_cast<int>(numbers_.below(ranks));
    basic_request<matched_message> probing = start(of(route).matched_probe(source, tag_of(route)));
    co_await turns(numbers_.below(3));
    if (numbers_.one_in(3)) co_return;
    probing.cancel();
    std::optional<matched_message> taken;
    try {
      taken = co_await probing;
    } catch (const error& e) {
      if (e.code() != errc::cancelled) throw;
    }
    co_await turns(numbers_.below(3));
    if (!taken || numbers_.one_in(3)) co_return;
    auto data = std::make_unique<buffer>(most_bytes, numbers_.one_in(4));
    request receiving = start(taken->recv(data->span()));
    receives_[route].emplace(pending_receive{std::move(data), std::move(receiving)});
  }

  task<> harvest() {
    for (std::size_t route = 0; route < routes; ++route) {
      if (!receives_[route] || !receives_[route]->receiving.done()) continue;
      ended e;
      co_await end_of(&receives_[route]->receiving, &e);
      take(route, e);
    }
    for (std::size_t i = 0; i < sends_.size();) {
      if (!sends_[i].sending.done()) {
        ++i;
        continue;
      }
      ended e;
      co_await end_of(&sends_[i].sending, &e);
      note(sends_[i], e);
      sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  communicator world_;
  communicator numbered_;
  random_numbers numbers_;
  ledger& book_;
  std::size_t started_ = 0;
  std::array<std::array<std::uint32_t, routes>, ranks> next_{};
  std::array<int, routes> ended_routes_{};
  graveyard graves_;
  std::vector<pending_send> sends_;
  std::array<std::optional<pending_receive>, routes> receives_;
};

task<> storm(communicator world, std::uint64_t seed, std::size_t operations, ledger* book) {
  communicator numbered = co_await world.duplicate();
  rank_in_storm here(world, numbered, seed, *book);
  co_await world.barrier();
  co_await here.run(operations);
  co_await here.drain();
  co_await here.check_for_leaks();
  // The world still works.
  std::vector<std::uint64_t> values(70'000, 1);
  co_await world.all_reduce(values, sum);
  TUTTI_EXPECT(values.front() == ranks);
  TUTTI_EXPECT(values.back() == ranks);
  const int right = (world.rank() + 1) % ranks;
  const int left = (world.rank() + ranks - 1) % ranks;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3'000}, most_bytes}) {
    const std::vector<std::byte> out = filled(bytes, static_cast<std::uint64_t>(world.rank()));
    std::vector<std::byte> in(bytes);
    request sending = numbered.isend(out, right, 1);
    co_await numbered.recv(in, left, 1);
    co_await sending;
    TUTTI_EXPECT(in == filled(bytes, static_cast<std::uint64_t>(left)));
  }
}

// Compares the messages received in each route with those sent successfully, in order.
std::string difference(const ledger& book) {
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      for (std::size_t route = 0; route < routes; ++route) {
        const std::string where = "from rank " + std::to_string(from) + " to rank " + std::to_string(to) +
                                  " in route " + std::to_string(route) + ": message ";
        std::vector<std::uint32_t> received;
        for (const ledger::received& r : book.receives[to][route])
          if (r.from == static_cast<int>(from)) received.push_back(r.number);
        std::size_t next = 0;
        for (const ledger::sent& s : book.sends[from][route]) {
          if (s.to != static_cast<int>(to)) continue;
          const bool here = next < received.size() && received[next] == s.number;
          next += here ? 1 : 0;
          if (s.became == outcome::success && !here)
            return where + std::to_string(s.number) + " was sent, and is not received in its place";
          if (s.became == outcome::cancelled && here)
            return where + std::to_string(s.number) + " was cancelled, and is received";
        }
        if (next != received.size())
          return where + std::to_string(received[next]) + " is received twice or out of order";
      }
  return "";
}

std::size_t operations_wanted() {
  if (const char* given = std::getenv("TUTTI_TEST_STORM")) return std::strtoull(given, nullptr, 10);
  return instrumented ? 1'000 : 4'000;
}

}  // namespace

TEST_CASE("cancellation storm: no message is lost, duplicated, out of order or left over") {
  const std::uint64_t seed = seed_of_this_run();
  for (const std::string& transport : transports) {
    INFO("replay with TUTTI_TEST_SEED=" << seed << " over " << transport);
    const auto book = std::make_unique<ledger>();
    CHECK_NOTHROW(run_local(ranks, over(transport), [&](communicator world) {
      return storm(std::move(world), seed, operations_wanted() / ranks, book.get());
    }));
    CHECK(difference(*book) == "");
    std::uint64_t operations = 0, given_back = 0;
    std::array<std::uint64_t, 3> sends{};
    for (std::size_t r = 0; r < ranks; ++r) {
      operations += book->operations[r];
      given_back += book->given_back[r];
      for (const auto& route : book->sends[r])
        for (const ledger::sent& s : route) ++sends[static_cast<std::size_t>(s.became)];
    }
    if (std::getenv("TUTTI_TEST_STORM") != nullptr)
      MESSAGE(transport << ": " << operations << " operations; of the sends " << sends[0] << " succeeded, "
                        << sends[1] << " were cancelled, " << sends[2] << " dropped; " << given_back
                        << " messages were given back by their receives");
    CHECK(operations >= operations_wanted() / ranks * ranks);
    CHECK(sends[1] > 0);
    CHECK(given_back > 0);
  }
}
