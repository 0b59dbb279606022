// SPDX-License-Identifier: Apache-2.0
#include "sim/elastic_job.hpp"

#include "base/fields.hpp"
#include "bootstrap/elastic_store.hpp"
#include "bootstrap/relayed_store.hpp"
#include "bootstrap/store_contents.hpp"
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "launch/coordination.hpp"
#include "launch/coordinator.hpp"
#include "sim/elastic_ledger.hpp"
#include "sim/random_numbers.hpp"

#include <algorithm>
#include <csignal>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tutti/messages.hpp>
#include <tutti/sim/simulation.hpp>
#include <tutti/store.hpp>
#include <tutti/tutti.hpp>
#include <utility>

// Compiled in one unit with other scenarios, whose names are in tutti::test.
namespace tutti::test::elastic_simulation {
namespace {

using namespace std::chrono_literals;
using launch::command;
using launch::event;
using sim::random_numbers;

constexpr int event_tag = 0, command_tag = 1, request_tag = 2, done_tag = 3;
constexpr int most_processes = 64;
constexpr int first_letter_tag = 1000, first_answer_tag = 1 << 30;
constexpr int most_rejoins = 60;  // of one process
constexpr auto patience_of_rank = 20s;
// Of a launcher: the timers of what waits behind its request do not know simulated time.
constexpr auto longest_request = 2s;

struct job_plan {
  std::uint64_t seed = 0;
  launch::options options;
  int steps = 0;
  bool kills = false;   // single processes are killed
  bool drains = false;  // nodes are drained
};

// What a member sends to each other member in a step.
struct letter {
  std::int32_t progress = 0;
  std::int32_t newcomers = 0;
  std::int32_t closed = 0;  // it has left this world
};

struct node;

struct process {
  int number = 0;
  int start = 0;
  bool newcomer = false;
  bool alive = true;
  int progress = 0;
  std::vector<int> world;  // ids of the other members, with their nodes
  std::vector<int> on;
  int epoch = -1;
  core::running_task running;
  node* of = nullptr;
};

int letter_tag(int epoch, int from, int to) {
  return first_letter_tag + (epoch * most_processes + from) * most_processes + to;
}

// One rank of the simulation, as the launcher of a node.
struct node {
  node(communicator w, const job_plan& p, elastic_ledger& b)
      : world(std::move(w)),
        plan(p),
        books(b),
        numbers(p.seed * 977 + static_cast<std::uint64_t>(world.rank())),
        ranks(1 + static_cast<int>(numbers.below(2))) {}

  communicator world;
  const job_plan& plan;
  elastic_ledger& books;
  random_numbers numbers;
  const int ranks;
  std::function<void(const event&)> tell;
  launch::start_ranks given;
  bool runs = false;
  bool stopping = false;
  bool told_end = false;
  std::vector<launch::outcome> ends;
  std::vector<int> starts;
  // The store as the ranks here reach it: on the other nodes through this launcher.
  std::unique_ptr<store> reached;
  std::deque<process> processes;
  std::uint32_t requests = 0;
  struct mail {
    std::vector<char> bytes;
    request sending;
  };
  std::list<mail> outbox;
  std::list<core::running_task> tasks;  // last: they use the others

  void post(int to, int tag, std::vector<char> bytes) {
    outbox.remove_if([](const mail& m) { return m.sending.done(); });
    mail& m = outbox.emplace_back(mail{std::move(bytes), request{}});
    m.sending = world.isend(m.bytes, to, tag);
  }
  void post(int to, int tag, const std::string& text) {
    post(to, tag, std::vector<char>(text.begin(), text.end()));
  }
  void post(int to, int tag, const letter& l) {
    const char* const first = reinterpret_cast<const char*>(&l);
    post(to, tag, std::vector<char>(first, first + sizeof l));
  }
  void spawn(task<> what) {
    tasks.remove_if([](const core::running_task& t) { return !t.running(); });
    tasks.emplace_back().start(std::move(what));
  }
  bool idle() const {
    return std::none_of(processes.begin(), processes.end(), [](const process& p) { return p.alive; });
  }
  std::chrono::nanoseconds some(std::chrono::nanoseconds most) {
    return std::chrono::nanoseconds(numbers.up_to(most.count()));
  }
  void leave_world(process& p) {
    letter l;
    l.closed = 1;
    for (std::size_t i = 0; i < p.world.size(); ++i)
      post(p.on[i], letter_tag(p.epoch, p.number, p.world[i]), l);
    p.world.clear();
    p.on.clear();
  }

  // ---- commands ----
  void execute(const command& what);
  void start_process(int number, int start, bool newcomer);
  void stop_all(std::chrono::nanoseconds within);
  void kill(process& p);
  void ended(process& p, int exit_code, int signal);
  bool over = false;
};

// A client of the launcher's store. Like with a tcp_store, requests may be lost with the connection.
class message_store final : public store {
 public:
  explicit message_store(node& n) : node_(n) {}
  std::string name() const override { return "the store of the simulated launcher"; }

 private:
  task<store_answer> carry_out(store_request r) override {
    using enum store_operation;
    if (r.operation != get && r.operation != compare_exchange && r.operation != append)
      throw std::logic_error("not asked for");
    r.number = ++node_.requests;
    const int tag = first_answer_tag + static_cast<int>(r.number);
    node_.post(0, request_tag, base::to_bytes(r));
    std::vector<char> text;
    std::string trouble;
    errc why = errc::peer_failed;
    try {
      const status found = co_await with_timeout(node_.world.probe(0, tag), r.timeout);
      text.resize(found.bytes);
      co_await node_.world.recv(text, 0, tag);
    } catch (const error& e) {
      trouble = e.what();
      if (e.code() == errc::timed_out) why = errc::timed_out;
    }
    if (!trouble.empty()) throw error(why, trouble);
    store_answer a = bootstrap::decode_answer({text.data(), text.size()});
    if (a.code != errc::success) throw error(a.code, a.text);
    co_return std::move(a);
  }

  node& node_;
};

// ---- a process ----

// True: all steps are done. False: the world has lost a member, or newcomers wait.
task<bool> train(node* n, process* p, const std::atomic<int>* newcomers) {
  for (int step = 0;; ++step) {
    co_await sleep_for(n->some(3ms));
    n->books.begins(p->epoch, step);
    letter all;
    all.progress = p->progress;
    all.newcomers = newcomers->load();
    const std::vector<int> others = p->world, on = p->on;
    const letter mine = all;
    for (std::size_t i = 0; i < others.size(); ++i)
      n->post(on[i], letter_tag(p->epoch, p->number, others[i]), mine);
    for (std::size_t i = 0; i < others.size(); ++i) {
      letter l;
      const auto got = co_await as_result(
          n->world.recv(std::span(&l, 1), on[i], letter_tag(p->epoch, others[i], p->number)));
      if (got.error || l.closed != 0) co_return false;
      all.progress = std::max(all.progress, l.progress);
      all.newcomers = std::max(all.newcomers, l.newcomers);
    }
    n->books.stepped(p->epoch, step);
    p->progress = all.progress + 1;
    if (p->progress >= n->plan.steps) co_return true;
    if (all.newcomers > 0) co_return false;
  }
}

task<> main_of(node* n, process* p) {
  core::platform& time = core::loop::current()->engine().platform();
  for (int joined = 0; joined < most_rejoins; ++joined) {
    bootstrap::job who;
    who.rank = p->number;
    who.restarts = p->start;
    who.newcomer = p->newcomer;
    who.timeout = patience_of_rank;
    core::endpoint_record mine;
    mine.rank = p->number;
    mine.pid = p->number * 100 + p->start;
    mine.host = std::to_string(n->world.rank());
    mine.host_id = mine.host;
    const core::world_info info =
        co_await bootstrap::meet_through(*n->reached, who, mine, time, time.now() + who.timeout);
    p->newcomer = false;
    p->epoch = static_cast<int>(info.epoch);
    n->books.joined(p->number * 100 + p->start, info);
    for (const auto& [rank, r] : info.peers.known()) {
      const int number = static_cast<int>(r.pid / 100);
      if (number == p->number) continue;
      p->world.push_back(number);
      p->on.push_back(std::stoi(r.host));
    }
    // Connections to a member that has ended are refused.
    const bool refused = std::ranges::any_of(info.peers.known(),
                                             [n](const auto& r) { return n->books.is_gone(r.second.pid); });
    if (refused) {
      n->leave_world(*p);
      continue;
    }
    std::atomic<int> newcomers{0};
    core::running_task listening;
    listening.start(
        bootstrap::follow_newcomers(*n->reached, info.epoch, newcomers),
        [](void*, std::exception_ptr) noexcept {}, nullptr);
    const bool done = co_await train(n, p, &newcomers);
    n->leave_world(*p);
    if (done) {
      n->books.finished();
      co_return;
    }
  }
  throw error(errc::peer_failed, "it has rejoined too often");
}

// ---- a launcher ----

void node::start_process(int number, int start, bool newcomer) {
  process& p = processes.emplace_back();
  p.number = number;
  p.start = start;
  p.newcomer = newcomer;
  p.of = this;
  p.running.start(
      main_of(this, &p),
      [](void* self, std::exception_ptr failure) noexcept {
        auto& it = *static_cast<process*>(self);
        int code = 0;
        if (failure) {
          code = 1;
          try {
            std::rethrow_exception(failure);
          } catch (const error& e) {
            it.of->books.failed(e);
          } catch (const std::exception& e) {
            it.of->books.wrong(e.what());
          }
        }
        it.of->ended(it, code, 0);
      },
      &p);
}

void node::kill(process& p) {
  if (!p.alive) return;
  p.running.stop();
  ended(p, 0, SIGKILL);
}

task<> kill_later(node* n, process* p, std::chrono::nanoseconds after) {
  co_await sleep_for(after);
  n->kill(*p);
}

task<> start_later(node* n, int number, int start) {
  co_await sleep_for(n->some(10ms));
  if (n->stopping) {
    if (n->idle() && !std::exchange(n->told_end, true)) n->tell(launch::ranks_ended{n->ends, {}, {}});
    co_return;
  }
  n->start_process(number, start, true);
}

void node::ended(process& p, int exit_code, int signal) {
  p.alive = false;
  books.gone(p.number * 100 + p.start);
  leave_world(p);
  // If it has died between its answer and its first message.
  int missed = -1;
  const auto there = books.missed_by(p.number * 100 + p.start, &missed);
  if (missed > p.epoch) {
    p.epoch = missed;
    for (const auto& [member, on] : there) {
      p.world.push_back(static_cast<int>(member / 100));
      p.on.push_back(on);
    }
    leave_world(p);
  }
  launch::outcome end;
  end.rank = p.number;
  end.pid = p.number * 100 + p.start;
  end.exit_code = exit_code;
  end.signal = signal;
  end.asked_with = stopping ? SIGTERM : 0;
  end.killed = stopping;
  int& restarts = starts[static_cast<std::size_t>(p.number - given.first_rank)];
  const bool again = !stopping && end.failed() && restarts < given.max_restarts;
  tell(launch::process_ended{p.number, p.start, !end.failed(), again});
  if (again) {
    ++restarts;
    tell(launch::rank_failed{end, true, restarts});
    return spawn(start_later(this, p.number, p.start + 1));
  }
  ends.push_back(end);
  if (end.failed() && !stopping) {
    tell(launch::rank_failed{end, !idle(), 0});
    stop_all(given.grace);
  }
  if (ends.size() == starts.size() || (stopping && idle()))
    if (!std::exchange(told_end, true)) tell(launch::ranks_ended{ends, {}, {}});
}

void node::stop_all(std::chrono::nanoseconds within) {
  stopping = true;
  for (process& p : processes)
    if (p.alive) spawn(kill_later(this, &p, some(within)));
}

void node::execute(const command& what) {
  if (const auto* const start = std::get_if<launch::start_ranks>(&what)) {
    given = *start;
    runs = true;
    stopping = told_end = false;
    ends.clear();
    starts.assign(static_cast<std::size_t>(ranks), 0);
    reached = std::make_unique<message_store>(*this);
    if (world.rank() > 0)
      reached = std::make_unique<bootstrap::relayed_store>(
          world.get_executor(), std::move(reached), bootstrap::serves_others, nullptr,
          core::loop::current()->engine().platform(), longest_request);
    for (int i = 0; i < ranks; ++i) start_process(given.first_rank + i, given.restart_count, given.newcomer);
  } else if (std::holds_alternative<launch::stop_ranks>(what)) {
    stop_all(given.grace);
    if (runs && idle() && !std::exchange(told_end, true)) tell(launch::ranks_ended{ends, {}, {}});
  } else if (std::holds_alternative<launch::kill_ranks>(what)) {
    stop_all(0ns);
  } else if (std::holds_alternative<launch::job_over>(what)) {
    over = true;
    post(world.rank(), done_tag, std::string("!"));
  }
}

task<> drain(node* n, std::chrono::nanoseconds after) {
  co_await sleep_for(after);
  if (!n->runs || n->over) co_return;
  launch::stop_wanted wanted;
  wanted.signal = SIGTERM;
  n->stop_all(n->given.grace);
  n->tell(wanted);
}

task<> kill_one(node* n, std::chrono::nanoseconds after) {
  co_await sleep_for(after);
  std::vector<process*> living;
  for (process& p : n->processes)
    if (p.alive) living.push_back(&p);
  if (!living.empty()) n->kill(*living[n->numbers.below(living.size())]);
}

void disturb(node* n) {
  const auto within = 60ms;
  if (n->plan.kills && n->numbers.happens(0.5)) n->spawn(kill_one(n, n->some(within)));
  if (n->plan.kills && n->numbers.happens(0.3)) n->spawn(kill_one(n, n->some(2s)));
  if (n->plan.drains && n->world.rank() > 0 && n->numbers.happens(0.3)) n->spawn(drain(n, n->some(within)));
}

// The launcher of a node other than node 0.
task<> be_member(node* n) {
  n->tell = [n](const event& what) { n->post(0, event_tag, launch::encode(what)); };
  if (n->numbers.happens(0.5)) co_await sleep_for(n->some(80ms));
  launch::hello own;
  own.nodes = n->plan.options.nodes;
  own.node = -1;
  own.ranks = n->ranks;
  own.host = "host" + std::to_string(n->world.rank());
  n->post(0, event_tag, launch::encode(own));
  disturb(n);
  try {
    auto commands = messages<char>(n->world, 0, command_tag);
    while (!n->over) {
      const auto m = co_await commands.next();
      n->execute(launch::decode_command(std::string_view(m->data.data(), m->data.size())));
    }
  } catch (const error&) {
    // Like member_node::on_lost: node 0 has ended, or cannot be reached.
    n->over = true;
    n->stop_all(n->given.grace);
  }
  while (!n->idle()) co_await sleep_for(50ms);
}

// The launcher of node 0.
struct head {
  explicit head(node* n)
      : self(n),
        desk(n->plan.options, "job",
             {[this](int to, const command& what) { send(to, what); }, [](std::string_view) {},
              [this] { return open_store(); }, [this](std::chrono::milliseconds t) { expect_end(t); }}) {
    self->tell = [this](const event& what) { hear(0, what); };
  }
  node* self;
  launch::coordinator desk;
  std::unique_ptr<memory_store> contents;
  std::unique_ptr<bootstrap::elastic_store> elastic;
  std::map<int, int> link_of, ranks_of;  // by node
  int ends_expected = 0;

  launch::rank_0_ports open_store() {
    elastic.reset();
    contents = std::make_unique<memory_store>(self->world.get_executor());
    elastic = std::make_unique<bootstrap::elastic_store>(
        self->world.get_executor(), std::make_unique<memory_store>(self->world.get_executor(), *contents),
        self->plan.options.least_nodes, self->plan.options.quorum,
        [this](const std::string& why) { self->books.wrong(why); });
    elastic->serve();
    return {1, 2};
  }
  void expect_end(std::chrono::milliseconds t) {
    const int mine = ++ends_expected;
    if (t.count() > 0) self->spawn(overdue(this, mine, t));
  }
  static task<> overdue(head* h, int mine, std::chrono::milliseconds t) {
    co_await sleep_for(t);
    if (h->ends_expected == mine) h->desk.overdue();
  }
  static task<> execute_later(head* h, command what) {
    co_await sleep_for(1us);
    if (std::holds_alternative<launch::job_over>(what)) {
      // Ends last, so that every other launcher gets an answer.
      for (int i = 0; i < 50 && !h->link_of.empty(); ++i) co_await sleep_for(100ms);
    }
    h->self->execute(what);
  }
  void send(int to, const command& what) {
    if (const auto* const start = std::get_if<launch::start_ranks>(&what))
      for (int i = 0; i < ranks_of[to]; ++i)
        elastic->tell(&bootstrap::membership::started, to, start->first_rank + i, start->restart_count);
    if (to == 0) return self->spawn(execute_later(this, what));
    if (const auto known = link_of.find(to); known != link_of.end())
      self->post(known->second, command_tag, launch::encode(what));
  }
  void hear(int from, const event& what) {
    if (const auto* const e = std::get_if<launch::process_ended>(&what); e != nullptr && elastic) {
      elastic->tell(&bootstrap::membership::ended, e->rank, e->start, e->well);
      if (e->again) elastic->tell(&bootstrap::membership::started, from, e->rank, e->start + 1);
      if (!elastic->minority().empty()) desk.no_further_world(elastic->minority());
      return look_whether_done();
    }
    desk.on(from, what);
  }
  void look_whether_done() {
    if (elastic && elastic->over()) desk.work_done();
  }
  static task<> fence(head* h, int loss) {
    co_await sleep_for(launch::time_to_end_unheard(h->self->plan.options));
    h->elastic->tell(&bootstrap::membership::overdue, loss);
  }
  void lost(int link, const error& e) {
    for (const auto& [n, l] : link_of) {
      if (l != link) continue;
      const int who = n;
      link_of.erase(who);
      const std::string text = e.what();
      const bool closed = e.code() == errc::peer_left || text.find("died or was killed") != text.npos;
      if (elastic && closed) elastic->tell(&bootstrap::membership::node_ended, who);
      if (elastic && !closed) self->spawn(fence(this, elastic->tell(&bootstrap::membership::node_lost, who)));
      desk.lost(who, text);
      return look_whether_done();
    }
  }
  static task<> hear_node(head* h, int link) {
    std::optional<error> end;
    try {
      auto events = messages<char>(h->self->world, link, event_tag);
      int number = -1;
      for (;;) {
        const auto m = co_await events.next();
        const std::string_view text(m->data.data(), m->data.size());
        if (number >= 0) {
          if (h->link_of.contains(number) && h->link_of[number] == link)
            h->hear(number, launch::decode_event(text));
          continue;
        }
        launch::hello who = launch::decode_hello(text);
        who.node = h->desk.free_number();
        const bool is_free = !h->link_of.contains(who.node);
        if (is_free) {
          h->link_of[who.node] = link;
          h->ranks_of[who.node] = who.ranks;
        }
        const std::optional<std::string> refusal = h->desk.join(who);
        number = who.node;
        if (!refusal) continue;
        number = -1;
        if (is_free) h->link_of.erase(who.node);
        h->self->post(link, command_tag, launch::encode(command(launch::job_over{2, *refusal})));
      }
    } catch (const error& e) {
      end = e;
    } catch (const std::exception& e) {
      h->self->books.wrong(e.what());
    }
    if (end) h->lost(link, *end);
  }

  // ---- the store ----
  static task<> serve(head* h, int link, store_request r) {
    memory_store store(h->self->world.get_executor(), *h->contents);
    const std::uint64_t number = r.number;
    if (r.operation == store_operation::get) r.timeout = std::chrono::hours(24 * 365);
    store_answer a = co_await store.perform(std::move(r));
    a.number = number;
    h->self->post(link, first_answer_tag + static_cast<int>(number), base::to_bytes(a));
  }
  static task<> serve_node(head* h, int link) {
    try {
      auto requests = messages<char>(h->self->world, link, request_tag);
      for (;;) {
        const auto m = co_await requests.next();
        const std::string_view text(m->data.data(), m->data.size());
        h->self->spawn(serve(h, link, bootstrap::decode_request(text)));
      }
    } catch (const error&) {
    }
  }
  static task<> give_up_joining(head* h) {
    co_await sleep_for(h->self->plan.options.join_timeout);
    if (h->desk.joining()) h->desk.abandon(1, "too few have come");
  }
};

task<> be_head(node* n) {
  head h(n);
  n->spawn(head::give_up_joining(&h));
  for (int link = 0; link < n->world.size(); ++link) {
    n->spawn(head::serve_node(&h, link));
    if (link > 0) n->spawn(head::hear_node(&h, link));
  }
  launch::hello own;
  own.nodes = n->plan.options.nodes;
  own.ranks = n->ranks;
  own.host = "host0";
  h.ranks_of[0] = n->ranks;
  h.desk.join(own);
  disturb(n);
  char done = 0;
  co_await n->world.recv(std::span(&done, 1), 0, done_tag);
  n->tasks.clear();  // they use the head
}

task<> main_of_node(communicator world, const job_plan* plan, elastic_ledger* books) {
  node n(std::move(world), *plan, *books);
  if (n.world.rank() == 0) {
    co_await be_head(&n);
  } else {
    co_await be_member(&n);
  }
  n.tasks.clear();
}

// ---- schedules ----

sim::faults draw_faults(random_numbers& numbers, int nodes) {
  sim::faults f;
  const auto moment = [&] { return sim::duration(numbers.up_to(sim::duration(80ms).count())); };
  for (int rank = 0; rank < nodes; ++rank) {
    if (!numbers.happens(rank == 0 ? 0.05 : 0.25)) continue;
    sim::death d;
    d.rank = rank;
    if (numbers.happens(0.5)) {
      d.at = moment();
    } else {
      d.frames = 1 + numbers.below(200);
    }
    f.deaths.push_back(d);
  }
  if (numbers.happens(0.4)) {
    sim::partition p;
    for (int rank = 0; rank < nodes; ++rank)
      if (numbers.happens(rank == 0 ? 0.3 : 0.5)) p.ranks.push_back(rank);
    p.from = moment();
    // Some partitions heal before any rank gives up, some later, some never.
    const std::uint64_t dice = numbers.below(3);
    if (dice == 0) p.until = p.from + moment();
    if (dice == 1) p.until = p.from + 5s;
    f.partitions.push_back(p);
  }
  if (nodes > 1 && numbers.happens(0.3)) {
    sim::disconnection d;
    d.a = static_cast<int>(numbers.below(static_cast<std::uint64_t>(nodes)));
    d.b = (d.a + 1 + static_cast<int>(numbers.below(static_cast<std::uint64_t>(nodes) - 1))) % nodes;
    d.at = moment();
    d.loses = numbers.happens(0.5);
    f.disconnections.push_back(d);
  }
  if (numbers.happens(0.3)) {
    sim::stall s;
    s.rank = static_cast<int>(numbers.below(static_cast<std::uint64_t>(nodes)));
    s.from = moment();
    s.until = s.from + (numbers.happens(0.5) ? moment() : sim::duration(2s));
    f.stalls.push_back(s);
  }
  if (numbers.happens(0.3))
    f.skews.push_back({static_cast<int>(numbers.below(static_cast<std::uint64_t>(nodes))),
                       sim::duration(numbers.up_to(3'600'000'000'000)), 400 * numbers.share() - 200});
  return f;
}

void run(std::uint64_t seed, elastic_census* all) {
  random_numbers numbers(sim::scrambled(seed * 13 + 1));
  sim::options o;
  o.seed = seed;
  o.ranks = 1 + static_cast<int>(numbers.below(6));
  o.timeout = std::chrono::hours(10'000);
  o.patience = 0ms;
  o.noise = sim::random_noise(seed);
  o.noise.start = sim::duration(numbers.happens(0.5) ? 30ms : 0ms);
  job_plan plan;
  plan.seed = seed;
  launch::options& l = plan.options;
  l.elastic = true;
  l.nodes = std::max(2, o.ranks - (numbers.happens(0.1) ? 1 : 0));
  l.least_nodes = 1 + static_cast<int>(numbers.below(static_cast<std::uint64_t>(std::min(o.ranks, 3))));
  l.quorum = numbers.happens(0.4) ? bootstrap::quorum::majority : bootstrap::quorum::none;
  l.on_failure = launch::failure_policy::restart_rank;
  l.max_restarts = 2;
  l.grace = 2s;
  l.node_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(o.network.silence);
  l.join_timeout = 30s;
  l.program = {"train"};
  plan.steps = 5 + static_cast<int>(numbers.below(30));
  const bool calm = seed % 4 == 0;
  plan.kills = !calm && numbers.happens(0.5);
  plan.drains = !calm && numbers.happens(0.5);
  if (!calm) o.faults = draw_faults(numbers, o.ranks);

  elastic_ledger books(l.least_nodes, l.quorum == bootstrap::quorum::majority);
  for (const sim::death& d : o.faults.deaths) books.may_die(d.rank);
  const sim::report r =
      sim::run(o, [&](communicator world) { return main_of_node(std::move(world), &plan, &books); });
  const auto wrong = [&](const std::string& why) {
    throw std::runtime_error(why + "\n" + o.faults.text() + "\n" + books.text() + "\n" + r.text());
  };
  if (!books.complaint().empty()) wrong(books.complaint());
  if (r.stuck()) wrong("nodes wait for ever");
  for (const sim::rank_report& one : r.ranks)
    if (one.how == sim::ending::threw) wrong("a node failed");
  if (calm && l.least_nodes == 1 && books.finishes() == 0) wrong("an undisturbed job has not finished");
  if (r.time > std::chrono::minutes(30)) wrong("it has taken too long");
  books.add_to(*all);
}

}  // namespace
}  // namespace tutti::test::elastic_simulation

void tutti::test::run_elastic_job(std::uint64_t seed, elastic_census* all) {
  elastic_simulation::run(seed, all);
}
