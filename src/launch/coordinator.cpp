// SPDX-License-Identifier: Apache-2.0
#include "launch/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/text.hpp"

namespace tutti::launch {
namespace {

constexpr int timeout_exit_code = 124;  // as timeout(1) has it
constexpr int plain_failure = 1;
// Beyond the grace period: for SIGKILL to work, output to flow, and the message to come.
constexpr std::chrono::milliseconds slack{10000};

}  // namespace

std::optional<departure> departure_by(const event& what, failure_policy on_failure) {
  if (const auto* const failed = std::get_if<rank_failed>(&what)) {
    if (failed->restart > 0 || on_failure != failure_policy::restart_rank || failed->end.exec_error != 0)
      return std::nullopt;
    return departure{failed->end.shell_code(), describe_rank(failed->end)};
  }
  const auto* const wanted = std::get_if<stop_wanted>(&what);
  if (wanted == nullptr) return std::nullopt;
  switch (wanted->why) {
    case stop_wanted::reason::signal:
      return departure{128 + wanted->signal, "it was stopped by " + signal_name(wanted->signal)};
    case stop_wanted::reason::timeout:
      return departure{timeout_exit_code, "it has run longer than its --timeout"};
    case stop_wanted::reason::reader_gone:
      return departure{128 + SIGPIPE, "nobody reads its output any more"};
    case stop_wanted::reason::cannot_start:
      break;
  }
  return departure{plain_failure, wanted->text};
}

coordinator::coordinator(const options& o, std::string job_id, outlets to) : options_(o), to_(std::move(to)) {
  plan_.job_id = std::move(job_id);
  plan_.max_restarts = o.max_restarts;
  plan_.on_failure = o.on_failure;
  plan_.grace = o.grace;
  plan_.least_nodes = o.least_nodes;
  plan_.quorum = o.quorum;
  for (int n = 0; n < o.nodes; ++n) nodes_.try_emplace(n);
}

// ---- joining ----

std::optional<std::string> coordinator::join(const hello& who) {
  const std::string caller = fmt::format("the tutti-run on {} (pid {})", who.host, who.pid);
  if (who.nodes != options_.nodes)
    return fmt::format("{} has --nnodes {}, and node 0 has --nnodes {}: give the same on all nodes", caller,
                       who.nodes, options_.nodes);
  if (who.node < 0 && options_.elastic)
    return fmt::format("{} comes too many: --nnodes allows {} nodes, and as many are there", caller,
                       options_.nodes);
  if (who.node < 0 || who.node >= options_.nodes || who.ranks < 1)
    return fmt::format("{} has --node-rank {} and -n {}, which make no sense", caller, who.node, who.ranks);
  node_state& node = nodes_.at(who.node);
  if (node.joined && !node.lost)
    return fmt::format(
        "{} has --node-rank {}, and so has {} (pid {}): give each node a --node-rank of its own", caller,
        who.node, describe_node(who.node), node.who.pid);
  if (phase_ != phase::joining && !(options_.elastic && phase_ == phase::running))
    return fmt::format("{} comes too late: the job is over", caller);
  node = node_state{};
  node.joined = true;
  node.who = who;
  const int needed = options_.elastic ? options_.least_nodes : options_.nodes;
  if (!who.run.empty()) {
    number_ranks(node);
    node.told_to_start = clock::now();
  } else if (phase_ == phase::running)
    start_newcomer(who.node);
  else if (nodes_.at(own_).joined && std::ssize(missing()) <= options_.nodes - needed)
    start({});
  return std::nullopt;
}

void coordinator::take_over(const hello& own) {
  own_ = own.node;
  phase_ = phase::running;
  started_at_ = clock::now();
  join(own);
}

int coordinator::free_number() const {
  for (const auto& [n, node] : nodes_)
    if (n != own_ && (!node.joined || node.lost)) return n;
  return -1;
}

std::vector<int> coordinator::missing() const {
  std::vector<int> nodes;
  for (const auto& [n, node] : nodes_)
    if (!node.stays()) nodes.push_back(n);
  return nodes;
}

// ---- starting and stopping ----

void coordinator::number_ranks(node_state& node) {
  node.first_rank = node.who.first_rank >= 0 ? node.who.first_rank : plan_.world_size;
  plan_.world_size = std::max(plan_.world_size, node.first_rank + node.who.ranks);
}

void coordinator::start(std::string notice) {
  plan_.world_size = 0;
  for (auto& [n, node] : nodes_) {
    if (node.stays()) number_ranks(node);
    node.ended = node.leaving;
    node.told = {};
  }
  phase_ = phase::running;
  started_at_ = clock::now();
  reason_ = reason::none;
  finished_rank_.reset();
  first_failure_.reset();
  to_.expect_end(std::chrono::milliseconds(0));
  plan_.newcomer = false;
  plan_.notice = std::move(notice);
  try {
    plan_.ports = to_.open_store();
  } catch (const std::runtime_error& e) {
    return abandon(plain_failure, fmt::format("tutti-run: {}\n", e.what()));
  }
  for (auto& [n, node] : nodes_) {
    if (!node.stays()) continue;
    plan_.node = n;
    plan_.first_rank = node.first_rank;
    node.told_to_start = started_at_;
    to_.send(n, plan_);
  }
}

void coordinator::start_newcomer(int node) {
  node_state& state = nodes_.at(node);
  number_ranks(state);
  state.told_to_start = clock::now();
  plan_.node = node;
  plan_.first_rank = state.first_rank;
  plan_.newcomer = true;
  plan_.notice.clear();
  to_.say(fmt::format("tutti-run: {} has come; its ranks are in when the others call rejoin()\n",
                      describe_node(node)));
  to_.send(node, plan_);
}

// The others go on.
void coordinator::leave(int node, departure how) {
  node_state& state = nodes_.at(node);
  if (std::exchange(state.leaving, true)) return;
  state.leaves = std::move(how);
  to_.say(fmt::format("tutti-run: {} leaves: {}; the others go on\n", describe_node(node), state.leaves.why));
  if (state.ended || phase_ == phase::joining) release(node);
}

// Its number is free when its connection has closed.
void coordinator::release(int node) {
  const departure& how = nodes_.at(node).leaves;
  to_.send(node,
           job_over{how.exit_code,
                    fmt::format("tutti-run: this node has left the job: {}; the others go on\n", how.why)});
}

void coordinator::no_further_world(const std::string& why) {
  if (phase_ != phase::running) return;
  wanted_ = {plain_failure, fmt::format("tutti-run: the job was stopped: {}\n", why)};
  stop(reason::wanted, SIGTERM, -1);
}

void coordinator::stop(reason why, int signal, int but_for) {
  if (phase_ == phase::running) {
    phase_ = phase::stopping;
    reason_ = why;
    to_.expect_end(options_.grace + slack);
  }
  send_running(stop_ranks{signal}, but_for);
}

void coordinator::send_running(const command& what, int but_for) {
  for (const auto& [n, node] : nodes_)
    if (n != but_for && !node.finished()) to_.send(n, what);
}

// ---- reports of nodes ----

void coordinator::on(int node, const event& what) {
  if (phase_ == phase::over) return;
  std::visit([&](const auto& e) { on_event(node, e); }, what);
}

void coordinator::on_event(int node, const rank_failed& e) {
  if (phase_ != phase::running || nodes_.at(node).leaving) return;
  const bool never_complete = options_.on_failure == failure_policy::restart_rank && !options_.elastic &&
                              options_.max_restarts > 0 && finished_rank_ && e.end.exec_error == 0;
  if (never_complete)
    to_.say(fmt::format(
        "tutti-run: rank {} is not started anew: rank {} has finished, so the ranks can never be complete "
        "again. Let all ranks end together, after a last barrier, or use --on-failure restart-all\n",
        e.end.rank, *finished_rank_));
  else if (e.restart > 0)
    return to_.say(fmt::format("tutti-run: {}; it is started anew ({} of {})\n", describe_rank(e.end),
                               e.restart, options_.max_restarts));
  if (may_go(node))
    if (std::optional<departure> how = departure_by(e, options_.on_failure))
      return leave(node, std::move(*how));
  if (!first_failure_) {
    first_failure_ = since_start(node, e.end);
    first_failure_at_ = clock::now();
  }
  if (options_.on_failure != failure_policy::go_on || e.end.exec_error != 0)
    return stop(reason::failure, SIGTERM, e.restart > 0 ? -1 : node);  // its node has restarted it
  const auto goes_on = [node](const auto& n) { return n.first != node && !n.second.finished(); };
  if (e.others_run || std::ranges::any_of(nodes_, goes_on))
    to_.say(fmt::format("tutti-run: {}; the others go on\n", describe_rank(e.end)));
}

void coordinator::on_event(int node, const stop_wanted& e) {
  const bool by_signal = e.why == stop_wanted::reason::signal;
  if (may_go(node)) return leave(node, departure_by(e, options_.on_failure).value());
  // Otherwise the job would start again once its ranks have ended.
  const bool prevents_restart = phase_ == phase::stopping && reason_ == reason::failure &&
                                options_.on_failure == failure_policy::restart_all;
  if (phase_ != phase::stopping || prevents_restart) {
    reason_ = reason::wanted;
    wanted_ = ending_of(node, e);
  }
  if (phase_ != phase::joining) return stop(reason::wanted, by_signal ? e.signal : SIGTERM, node);
  conclude();
}

void coordinator::on_event(int node, const kill_wanted&) {
  // The first interrupt was for the start before.
  if (phase_ == phase::running && !nodes_.at(node).leaving) {
    wanted_ = ending_of(node, {stop_wanted::reason::signal, SIGINT, {}});
    stop(reason::wanted, SIGINT, node);
  }
  if (phase_ != phase::stopping) return;
  to_.expect_end(slack);
  send_running(kill_ranks{}, node);
}

void coordinator::on_event(int node, const ranks_ended& e) {
  node_state& state = nodes_.at(node);
  state.ended = true;
  if (state.leaving && phase_ == phase::running) {
    release(node);
    return try_conclude();
  }
  state.told = e;
  for (outcome& end : state.told.ends) end = since_start(node, end);
  try_conclude();
}

void coordinator::lost(int node, const std::string& why) {
  node_state& state = nodes_.at(node);
  if (phase_ == phase::over || state.lost) return;
  const bool had_ended = state.ended;
  const auto say_others_go_on = [&] {
    to_.say(fmt::format("tutti-run: {} was lost: {}; the others go on\n", describe_node(node), why));
  };
  state.lost = true;
  if (state.leaving && had_ended) return try_conclude();
  if (phase_ == phase::joining && may_go(node)) {
    if (!state.leaving) say_others_go_on();
    state = node_state{};
    return;
  }
  if (may_go(node)) {
    if (!had_ended) say_others_go_on();
    return try_conclude();
  }
  losses_.emplace_back(node, why);
  if (phase_ == phase::joining) {
    reason_ = reason::node_lost;
    return conclude();
  }
  // Its ranks went with it, and their peers may have failed before this node heard of it.
  const bool explains_failure = phase_ == phase::stopping && reason_ == reason::failure && !had_ended &&
                                losses_.size() == 1 && !is_blow(*first_failure_) &&
                                first_failure_->thrown != outcome::exception::own &&
                                clock::now() - first_failure_at_ <= moment_of_death;
  if (explains_failure) reason_ = reason::node_lost;
  if (had_ended || options_.on_failure == failure_policy::go_on)
    say_others_go_on();
  else if (phase_ == phase::running)
    stop(reason::node_lost, SIGTERM, node);
  try_conclude();
}

void coordinator::abandon(int exit_code, const std::string& why) {
  if (phase_ == phase::over) return;
  reason_ = reason::wanted;
  wanted_ = {exit_code, why};
  conclude();
}

void coordinator::overdue() {
  if (phase_ != phase::stopping) return;
  for (auto& [n, node] : nodes_)
    if (n != own_ && !node.finished()) {
      node.lost = true;
      losses_.emplace_back(n, "it does not tell that its ranks have ended");
    }
  try_conclude();
}

// ---- the end, or another start ----

void coordinator::try_conclude() {
  if (phase_ != phase::running && phase_ != phase::stopping) return;
  if (!std::ranges::all_of(nodes_, [](const auto& n) { return n.second.finished(); })) return;
  const std::vector<outcome> ends = all_ends();
  const outcome* cause = first_cause(ends);
  // A node that has gone has no launcher that could start its ranks.
  const bool again = options_.on_failure == failure_policy::restart_all &&
                     plan_.restart_count < plan_.max_restarts &&
                     (reason_ == reason::failure || reason_ == reason::none) && losses_.empty() &&
                     cause != nullptr && cause->exec_error == 0;
  if (!again) return conclude();
  ++plan_.restart_count;
  start(fmt::format("tutti-run: restart {} of {}: rank {} {} (pid {} on {}, {:.3f} s after the start)\n",
                    plan_.restart_count, plan_.max_restarts, cause->rank, tutti::launch::describe(*cause),
                    cause->pid, place_of(cause->rank), static_cast<double>(cause->after.count()) / 1000));
}

void coordinator::conclude() {
  phase_ = phase::over;
  to_.expect_end(std::chrono::milliseconds(0));
  const std::vector<outcome> ends = all_ends();
  const outcome* cause = first_cause(ends);
  // The node whose rank it was may have gone before it could report how all of them ended.
  if (cause == nullptr && reason_ == reason::failure) cause = &*first_failure_;
  const int code = exit_code(cause);
  for (const auto& [n, node] : nodes_)
    if (node.joined && !node.lost) to_.send(n, job_over{code, report(ends, cause, n)});
}

// ---- how it ended ----

int coordinator::node_of(int rank) const {
  for (const auto& [n, node] : nodes_)
    if (node.first_rank >= 0 && rank >= node.first_rank && rank < node.first_rank + node.who.ranks) return n;
  return 0;
}

std::string coordinator::describe_node(int node) const {
  const node_state& state = nodes_.at(node);
  if (state.first_rank < 0) return fmt::format("node {} ({})", node, state.who.host);
  std::vector<int> ranks;
  for (int i = 0; i < state.who.ranks; ++i) ranks.push_back(state.first_rank + i);
  return fmt::format("node {} ({} on {})", node, base::ranks_text(ranks), state.who.host);
}

std::string coordinator::place_of(int rank) const {
  const int node = node_of(rank);
  const std::string& host = nodes_.at(node).who.host;
  return several() ? fmt::format("{}, node {}", host, node) : host;
}

outcome coordinator::since_start(int node, outcome end) const {
  const auto later =
      std::chrono::duration_cast<std::chrono::milliseconds>(nodes_.at(node).told_to_start - started_at_);
  end.after += later;
  end.thrown_after += later;
  return end;
}

// In the order in which they ended. Within a node the order is that of the reported deaths.
std::vector<outcome> coordinator::all_ends() const {
  std::multimap<std::chrono::milliseconds, outcome> order;
  for (const auto& [n, node] : nodes_) {
    std::chrono::milliseconds at{0};
    for (const outcome& end : node.told.ends) {
      at = std::max(at, end.after);
      order.emplace(at, end);
    }
  }
  std::vector<outcome> ends;
  for (const auto& [at, end] : order) ends.push_back(end);
  return ends;
}

coordinator::ending coordinator::ending_of(int node, const stop_wanted& e) const {
  const std::string by = several() ? fmt::format(" on {}", describe_node(node)) : "";
  const std::string stopped = "tutti-run: the job was stopped";
  if (e.why == stop_wanted::reason::signal)
    return {128 + e.signal, fmt::format("{} by {}{}\n", stopped, signal_name(e.signal), by), true};
  if (e.why == stop_wanted::reason::timeout)
    return {timeout_exit_code,
            several() ? fmt::format("{}: it ran longer than the --timeout{}\n", stopped, by)
                      : fmt::format("{}: it ran longer than --timeout {:g}\n", stopped,
                                    static_cast<double>(options_.timeout.count()) / 1000),
            true};
  if (e.why == stop_wanted::reason::reader_gone)
    return {128 + SIGPIPE, fmt::format("{}: nobody reads the output{} any more\n", stopped, by), false, node};
  return {plain_failure, fmt::format("tutti-run: {}{}\n", e.text, by)};
}

std::string coordinator::report(const std::vector<outcome>& ends, const outcome* cause, int node) const {
  std::string text;
  if (reason_ == reason::wanted && node != wanted_.unread_node) text = wanted_.text;
  std::vector<int> killed;
  for (const outcome& end : ends)
    if (end.killed && end.signal == SIGKILL) killed.push_back(end.rank);
  if (reason_ == reason::wanted && wanted_.lists_killed && !killed.empty())
    text += fmt::format("tutti-run: rank {} had to be killed\n", base::rank_list(killed));
  if (cause != nullptr && (reason_ == reason::failure || reason_ == reason::none)) {
    text += failure_report(*cause, ends, nodes_.at(node_of(cause->rank)).told, options_,
                           place_of(cause->rank), plan_.world_size);
    if (const int restarts = plan_.restart_count; restarts > 0)
      text += fmt::format("tutti-run: given up after {} restart{}\n", restarts, restarts == 1 ? "" : "s");
  }
  for (const auto& [gone, why] : losses_)
    text += fmt::format("tutti-run: {} was lost: {}\n", describe_node(gone), why);
  // The user of node 0 gets everything, the others a summary.
  if (node != own_ && !text.empty()) text.resize(text.find('\n') + 1);
  return text;
}

int coordinator::exit_code(const outcome* cause) const {
  if (reason_ == reason::wanted) return wanted_.exit_code;
  if (reason_ == reason::node_lost) return plain_failure;
  if (cause != nullptr) return cause->ended_by_launcher() ? plain_failure : cause->shell_code();
  return losses_.empty() ? 0 : plain_failure;
}

}  // namespace tutti::launch
