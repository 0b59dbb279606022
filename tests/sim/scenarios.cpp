// SPDX-License-Identifier: Apache-2.0
#include "sim/scenarios.hpp"

#include "coll/random/performer.hpp"
#include "sim/survivors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <tutti/tutti.hpp>

namespace tutti::test {
namespace {

constexpr int tags = 2;
constexpr std::size_t longest_letter = 400;

struct letter_head {
  std::uint32_t from;
  std::uint32_t number;  // counts messages between this sender and receiver
  std::uint32_t tag;
  std::uint32_t final;  // the last message from this sender to this receiver
};

std::uint64_t key_of(const letter_head& h, int to) {
  return (std::uint64_t{h.from} << 40) ^ (std::uint64_t{h.number} << 8) ^ static_cast<std::uint64_t>(to);
}

// One rank's state of its messages.
struct post {
  post(communicator w, mail p)
      : world(std::move(w)),
        plan(p),
        numbers(p.seed * 131 + static_cast<std::uint64_t>(world.rank())),
        sent(static_cast<std::size_t>(world.size())),
        expected(static_cast<std::size_t>(world.size())),
        got(static_cast<std::size_t>(world.size())),
        last(static_cast<std::size_t>(world.size() * tags), -1),
        finals_to_come(world.size() - 1) {}
  communicator world;
  mail plan;
  random_numbers numbers;
  std::vector<std::uint32_t> sent;      // by receiver: successful sends
  std::vector<std::uint32_t> expected;  // by sender, after all senders have finished
  std::vector<std::uint32_t> got;
  std::vector<std::int64_t> last;  // by sender and tag: the number of the last message
  int finals_to_come;
  bool all_sent = false;

  std::chrono::microseconds patience() {
    constexpr std::size_t most[] = {30, 300, 3000};
    return std::chrono::microseconds(1 + numbers.below(most[numbers.below(std::size(most))]));
  }
};

// Whether the operation was ended by its deadline or by the other side. Rethrows other failures.
bool given_up(std::error_code code, const std::string& text) {
  if (!code) return false;
  if (code == errc::timed_out && text.find("with_timeout") != text.npos) return true;
  // The sender cancelled it after part of it had arrived.
  if (code == errc::cancelled && text.find("took back") != text.npos) return true;
  throw error(static_cast<errc>(code.value()), text);
}

// Connects all ranks.
task<> meet(communicator world) {
  std::vector<int> mine(static_cast<std::size_t>(world.size()), world.rank());
  std::vector<int> others(mine.size());
  co_await world.all_to_all(mine, others).with(algorithm::pairwise);
}

task<> write_letters(post* p) {
  const int me = p->world.rank();
  const auto size = static_cast<std::size_t>(p->world.size());
  std::vector<std::uint32_t> numbers(size);
  std::vector<std::byte> text;
  struct underway {
    std::vector<std::byte> text;
    request sending;
    std::size_t to = 0;
  };
  std::deque<underway> several;  // so that later messages arrive while earlier ones are awaited
  for (int i = 0; i < p->plan.letters; ++i) {
    // Not to itself: a rank that awaits its own message before it sends it waits for ever.
    const std::size_t to = (static_cast<std::size_t>(me) + 1 + p->numbers.below(size - 1)) % size;
    const letter_head head{static_cast<std::uint32_t>(me), numbers[to]++,
                           static_cast<std::uint32_t>(p->numbers.below(tags)), 0};
    text.resize(sizeof head + p->numbers.below(longest_letter - sizeof head));
    fill(text, key_of(head, static_cast<int>(to)));
    std::memcpy(text.data(), &head, sizeof head);
    const int tag = static_cast<int>(head.tag);
    if (p->numbers.one_in(3)) {
      const auto d = p->patience();
      const auto ended = co_await as_result(with_timeout(p->world.send(text, static_cast<int>(to), tag), d));
      if (!given_up(ended.error, ended.message)) ++p->sent[to];
    } else if (p->numbers.one_in(2)) {
      underway& one = several.emplace_back();
      one.text = text;
      one.to = to;
      one.sending = p->world.isend(one.text, static_cast<int>(to), tag);
    } else {
      co_await p->world.send(text, static_cast<int>(to), tag);
      ++p->sent[to];
    }
    while (several.size() > 3) {
      co_await several.front().sending;
      ++p->sent[several.front().to];
      several.pop_front();
    }
    if (p->numbers.one_in(4)) {
      const auto d = p->patience();
      co_await sleep_for(d);
    }
  }
  for (; !several.empty(); several.pop_front()) {
    co_await several.front().sending;
    ++p->sent[several.front().to];
  }
  for (std::size_t to = 0; to < size; ++to) {
    if (to == static_cast<std::size_t>(me)) continue;
    const letter_head head{static_cast<std::uint32_t>(me), numbers[to], 0, 1};
    text.resize(sizeof head);
    std::memcpy(text.data(), &head, sizeof head);
    co_await p->world.send(text, static_cast<int>(to), 0);
    ++p->sent[to];
  }
  co_await p->world.all_to_all(p->sent, p->expected);
  p->all_sent = true;
}

void read_letter(post* p, std::span<const std::byte> text, const status& st, int source, int tag) {
  letter_head head;
  const auto me = p->world.rank();
  const auto wrong = [&](const char* why) {
    throw std::runtime_error("rank " + std::to_string(me) + ", a letter from " + std::to_string(st.source) +
                             " with tag " + std::to_string(st.tag) + ", asked for (" +
                             std::to_string(source) + ", " + std::to_string(tag) + "): " + why);
  };
  if (text.size() < sizeof head) wrong("is too short");
  std::memcpy(&head, text.data(), sizeof head);
  if (static_cast<int>(head.from) != st.source || static_cast<int>(head.tag) != st.tag)
    wrong("is from somebody else, or has another tag");
  if ((source != any_source && source != st.source) || (tag != any_tag && tag != st.tag))
    wrong("was not asked for");
  std::vector<std::byte> whole(text.size());
  fill(whole, key_of(head, me));
  std::memcpy(whole.data(), &head, sizeof head);
  if (!std::equal(whole.begin(), whole.end(), text.begin())) wrong("has another text");
  std::int64_t& last = p->last[head.from * tags + head.tag];
  if (head.number <= last) wrong(head.number == last ? "came twice" : "came after a later one");
  last = head.number;
  p->finals_to_come -= static_cast<int>(head.final);
  ++p->got[head.from];
}

task<> read_letters(post* p) {
  std::array<std::byte, longest_letter> buffer;
  const auto size = static_cast<std::size_t>(p->world.size());
  int idle = 0;  // receives that got nothing although a message must arrive
  for (;;) {
    if (p->all_sent) {
      if (p->got == p->expected) co_return;
      for (std::size_t r = 0; r < size; ++r)
        if (p->got[r] > p->expected[r]) throw std::runtime_error("more letters came than were sent");
      if (idle > 500)
        throw std::runtime_error("rank " + std::to_string(p->world.rank()) + ": a letter is lost");
    }
    const auto other = (static_cast<std::size_t>(p->world.rank()) + 1 + p->numbers.below(size - 1)) % size;
    const int source = p->numbers.one_in(2) ? any_source : static_cast<int>(other);
    const int tag = p->numbers.one_in(2) ? any_tag : static_cast<int>(p->numbers.below(tags));
    if (p->finals_to_come > 0 && p->numbers.one_in(3)) {
      // A message must arrive.
      const auto ended_well = co_await as_result(p->world.recv(buffer, any_source, any_tag));
      if (!given_up(ended_well.error, ended_well.message))
        read_letter(p, std::span(buffer).first(ended_well.value.bytes), ended_well.value, any_source,
                    any_tag);
      continue;
    }
    const auto d = p->patience();
    const bool was_late = p->all_sent;
    const auto ended = co_await as_result(with_timeout(p->world.recv(buffer, source, tag), d));
    // A rank that has sent and received all its messages may have left.
    const bool left = ended.error == errc::peer_left;
    if (left || given_up(ended.error, ended.message)) {
      if (left) co_await sleep_for(d);
      if (was_late) ++idle;
      continue;
    }
    idle = 0;
    read_letter(p, std::span(buffer).first(ended.value.bytes), ended.value, source, tag);
  }
}

}  // namespace

task<> exchange_letters(communicator world, mail plan) {
  co_await meet(world);
  post p(std::move(world), plan);
  scope both;  // when one fails, the other is not waited for
  both.spawn(read_letters(&p));
  both.spawn(write_letters(&p));
  co_await both.join();
}

task<> sum_up(communicator world, std::uint64_t seed, int rounds) {
  co_await meet(world);
  random_numbers numbers(seed);  // the same on all ranks
  const auto size = static_cast<std::uint64_t>(world.size());
  const auto me = static_cast<std::uint64_t>(world.rank());
  for (int round = 0; round < rounds; ++round) {
    const std::size_t count = 1 + numbers.below(numbers.one_in(3) ? 600 : 20);
    std::vector<std::uint64_t> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = seed + i * (me + 1);
    co_await world.all_reduce(values, sum);
    for (std::size_t i = 0; i < count; ++i)
      if (values[i] != size * seed + i * (size * (size + 1) / 2)) throw std::runtime_error("a wrong sum");
    if (size > 1 && numbers.one_in(3)) {
      std::uint64_t token = me + seed;
      std::uint64_t came = 0;
      request mine = world.isend(token, static_cast<int>((me + 1) % size), 5);
      co_await world.recv(came, static_cast<int>((me + size - 1) % size), 5);
      co_await mine;
      if (came != (me + size - 1) % size + seed) throw std::runtime_error("a wrong token");
    }
  }
}

sim::options small_world(std::uint64_t seed) {
  random_numbers numbers(seed * 3 + 1);
  sim::options o;
  o.seed = seed;
  o.ranks = 2 + static_cast<int>(numbers.below(4));
  o.ranks_per_host = numbers.one_in(4) ? 2 : 1;
  // Longer than any necessary wait, so that failures are reported and not timed out.
  o.timeout = std::chrono::hours(1);
  constexpr std::size_t limits[] = {0, 64, 4096, 65'536};
  o.network.eager_limit = limits[numbers.below(std::size(limits))];
  constexpr std::size_t slices[] = {100, 4096, 262'144};
  o.network.slice = slices[numbers.below(std::size(slices))];
  o.noise = sim::random_noise(seed);
  return o;
}

program program_for(const sim::options& o, std::size_t steps, std::size_t most_bytes) {
  setting where;
  where.transport = "tcp";
  where.ranks = o.ranks;
  for (int r = 0; r < o.ranks; ++r)
    where.hosts += std::string(r > 0 ? "," : "") + static_cast<char>('a' + r / o.ranks_per_host);
  return random_program(o.seed, where, steps, most_bytes);
}

void judge(const sim::options& o, const sim::report& r, const std::string& what) {
  const auto wrong = [&](const std::string& why) {
    throw std::runtime_error(why + "\n" + what + "; " + o.faults.text() + "\n" + r.text());
  };
  if (r.stuck()) wrong("ranks wait for ever");
  for (const sim::rank_report& one : r.ranks) {
    if (one.how != sim::ending::threw) continue;
    if (one.reason == errc::success) wrong("a wrong result");
    if (o.faults.none()) wrong("an operation failed although nothing fails");
  }
  // A silent host is noticed after 3 s, a rank that left lingers for 5 s. The timeout is much longer.
  if (r.time > std::chrono::minutes(5)) wrong("something was waited for until its timeout");
}

void run_schedule(std::uint64_t seed) {
  sim::options o = small_world(seed);
  const bool fails = seed % 2 == 1;
  if (fails) o.faults = sim::faults::random(seed, o.ranks, std::chrono::milliseconds(3));
  switch (seed / 2 % 6) {
    case 0: {
      const program p = program_for(o, 12, 3000);
      return judge(o, sim::run(o, [&p](communicator world) { return perform(std::move(world), &p); }),
                   p.replay());
    }
    case 1:
    case 2: {
      const mail plan{seed, 12};
      return judge(
          o, sim::run(o, [plan](communicator world) { return exchange_letters(std::move(world), plan); }),
          "letters");
    }
    case 3:
    case 4:
      return run_survival(seed);
    default:
      return judge(o, sim::run(o, [seed](communicator world) { return sum_up(std::move(world), seed, 10); }),
                   "sums");
  }
}

}  // namespace tutti::test
