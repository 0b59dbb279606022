// SPDX-License-Identifier: Apache-2.0
// head_node: the node whose launcher coordinates: node 0, or where launchers meet in etcd, the one that they have so.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <tutti/scope.hpp>
#include <utility>
#include <vector>

#include "base/cycles.hpp"
#include "base/hmac.hpp"
#include "base/text.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/elastic_store.hpp"
#include "flight/explanation.hpp"
#include "launch/coordination.hpp"
#include "launch/coordinator.hpp"
#include "launch/run_after.hpp"
#include "launch/store_socket.hpp"

namespace tutti::launch {
namespace {

constexpr int join_failure_exit_code = 1;
constexpr int refused_exit_code = 2;  // a wrong command line
constexpr std::size_t most_unauthenticated = 8;
constexpr std::size_t job_id_bytes = 8;
// A launcher reads memory and answers.
constexpr std::chrono::milliseconds answer_limit{600};
// One signal to all ranks makes each of them ask.
constexpr std::chrono::milliseconds same_question{200};
// All of them, when another launcher takes over.
constexpr int silent_nodes = bootstrap::membership::unknown_node - 1;
constexpr std::chrono::seconds time_to_part{5};  // for the other launchers to take the last message

class head_node final : public coordination {
 public:
  head_node(place at, std::optional<seat> elected)
      : coordination(std::move(at)),
        elected_(std::move(elected)),
        coordinator_(options_, elected_ ? elected_->run : base::random_hex(job_id_bytes),
                     {[this](int node, const command& what) { send(node, what); },
                      [this](std::string_view lines) { node_.say(lines); }, [this] { return open_store(); },
                      [this](std::chrono::milliseconds time) {
                        end_deadline_.cancel();
                        if (time.count() > 0)
                          run_after(end_deadline_, time, [this] { coordinator_.overdue(); });
                      }}) {
    if (options_.nodes > 1) {
      listener_ = bootstrap::accept_launchers(
          node_.loop.get_executor(), node_.secret, node_.tls, options_.node_timeout,
          [this](std::unique_ptr<bootstrap::control_link> link, int) { arrived(std::move(link)); },
          [this](const std::string& from, const std::string& why) { unauthenticated(from, why); });
    }
    if (elected_ && listener_) listener_->open(std::move(elected_->listening));
    if (!elected_ && options_.nodes > 1) {
      for (base::unique_fd& fd : open_rendezvous_sockets(*options_.master, options_.join_timeout)) {
        rendezvous_.push_back(bootstrap::local_endpoint(fd.get()).value().address());
        listener_->open(std::move(fd));
      }
    }
    if (!node_.own.run.empty()) {
      calls_.spawn(take_over());
      return;
    }
    if (options_.nodes > 1) run_after(join_deadline_, options_.join_timeout, [this] { join_overdue(); });
    coordinator_.join(node_.own);
  }

  void tell(const event& what) override {
    if (gathering_) return told_meanwhile_.push_back(what);
    hear(own(), what);
  }
  void lose_patience() override {
    if (!coordinator_.over()) return coordinator_.overdue();
    nodes_.clear();  // they only take their last message
    end_if_told();
  }
  role is() const override {
    if (gathering_ || coordinator_.joining()) return role::gathers;
    return elected_ && !nodes_.empty() && coordinator_.running() ? role::leads : role::alone;
  }
  base::unique_fd take_store() override { return std::move(store_); }

 private:
  // The launcher of another node, after its proof.
  struct pending_connection {
    std::unique_ptr<bootstrap::control_link> link;
    int node = -1;  // once it has joined
    bool refused = false;
    // Until this launcher has taken over:
    std::optional<hello> waits = {};
    std::vector<std::string> said = {};
  };

  int own() const { return node_.own.node; }

  void hear(int node, const event& what) {
    if (std::holds_alternative<explanation_wanted>(what)) return ask_for_records();
    if (const auto* const told = std::get_if<records_told>(&what)) return take_records(node, *told);
    if (const auto* const ended = std::get_if<process_ended>(&what); ended != nullptr && elastic_) {
      elastic_->tell(&bootstrap::membership::ended, ended->rank, ended->start, ended->well);
      if (ended->again) elastic_->tell(&bootstrap::membership::started, node, ended->rank, ended->start + 1);
      // Not before: until the first of them ends, its ranks may save what they have.
      if (!elastic_->minority().empty()) coordinator_.no_further_world(elastic_->minority());
      return look_whether_done();
    }
    coordinator_.on(node, what);
  }

  void store_failed(const std::string& why) {
    // From the loop: the store is the caller.
    later([this, why] { coordinator_.no_further_world(fmt::format("no rank can join any more: {}", why)); });
  }

  void look_whether_done() {
    if (elastic_ && elastic_->over()) coordinator_.work_done();
  }

  // ---- taking over ----

  // Another launcher has coordinated the job, and has died. The list of launchers says who else has ranks that run.
  task<> take_over() {
    gathering_ = true;
    node_.say(fmt::format("tutti-run: {}; this launcher, node {}, coordinates the job from here on\n",
                          elected_->why, own()));
    make_elastic();
    std::string trouble;
    try {
      co_await elastic_->take_over(options_.node_timeout);
      gathered_.expires_after(options_.node_timeout);
      while (waits_for_others() && gathered_.expiry() > std::chrono::steady_clock::now())
        co_await gathered_.async_wait(boost::asio::as_tuple(boost::asio::deferred));
    } catch (const error& e) {
      trouble = e.what();
    }
    coordinator_.take_over(node_.own);
    resume_ranks(node_.own);
    for (const bool again : {true, false}) {
      for (pending_connection& each : connections_)
        if (each.waits && each.waits->run.empty() != again)
          admit(each, *std::exchange(each.waits, std::nullopt));
      if (!again) break;
      gathering_ = false;
      for (const bootstrap::launcher_entry& each : elected_->others)
        if (each.is != bootstrap::launcher_entry::state::dead)
          for (int i = 0; i < each.ranks; ++i)
            elastic_->tell(&bootstrap::membership::started, silent_nodes, each.first_rank + i, 0);
      take_off(silent_nodes, false);
      take_off(bootstrap::membership::unknown_node, true);
      elastic_->serve();
    }
    if (!trouble.empty()) store_failed(trouble);
    for (pending_connection& each : connections_)
      for (const std::string& message : std::exchange(each.said, {})) on_message(each, message);
    for (const event& what : std::exchange(told_meanwhile_, {})) hear(own(), what);
    look_whether_done();
  }

  bool waits_for_others() const {
    return std::ranges::any_of(elected_->others, [](const auto& each) { return each.lives(); });
  }

  void resume_ranks(const hello& who) {
    for (int i = 0; i < std::ssize(who.run); ++i) {
      const rank_state& rank = who.run[static_cast<std::size_t>(i)];
      elastic_->tell(&bootstrap::membership::started, who.node, who.first_rank + i, rank.start);
      if (!rank.runs)
        elastic_->tell(&bootstrap::membership::ended, who.first_rank + i, rank.start, rank.well);
    }
  }

  void make_elastic() {
    std::unique_ptr<store> at = elected_ ? std::move(elected_->of_run) : server_->local();
    elastic_ = std::make_unique<bootstrap::elastic_store>(
        node_.loop.get_executor(), std::move(at), options_.least_nodes, options_.quorum,
        [this](const std::string& why) { store_failed(why); });
  }

  rank_0_ports open_store() {
    if (elected_) {
      make_elastic();
      elastic_->serve();
      return {};
    }
    store_ = options_.nodes > 1 ? open_store_socket_beside(rendezvous_.front())
                                : open_store_socket(options_.master, options_.join_timeout);
    master_port_ = reserve_port();
    const rank_0_ports ports{port_of(store_), port_of(master_port_)};
    if (options_.elastic) {
      server_ = tcp_store_server::adopt(node_.loop.get_executor(), store_.get(), node_.secret, node_.tls);
      store_.release();
      make_elastic();
      elastic_->serve();
    }
    return ports;
  }

  // ---- who waits for whom ----

  void ask_for_records() {
    if (!asked_.empty() || std::chrono::steady_clock::now() - explained_at_ < same_question) return;
    asked_ = {own()};
    for (const auto& [node, unused] : nodes_) asked_.insert(node);
    records_.clear();
    run_after(answer_deadline_, answer_limit, [this] {
      if (!asked_.empty()) explain();  // the last answer may have come in the same turn
    });
    for (const int node : std::set(asked_)) send(node, tell_records{});
  }

  void take_records(int node, const records_told& told) {
    if (!asked_.contains(node)) return;
    records_.insert(records_.end(), told.ranks.begin(), told.ranks.end());
    if (told.last) has_told(node);
  }

  void has_told(int node) {
    if (asked_.erase(node) > 0 && asked_.empty()) explain();
  }

  void explain() {
    answer_deadline_.cancel();
    explained_at_ = std::chrono::steady_clock::now();
    std::ranges::sort(records_, {}, &flight::rank_snapshot::rank);
    std::string text = "tutti-run: who waits for whom:\n" + flight::explain(records_);
    if (!asked_.empty())
      text += fmt::format("tutti-run: node {} did not tell within {} ms what its ranks are at\n",
                          base::rank_list({asked_.begin(), asked_.end()}), answer_limit.count());
    records_.clear();
    asked_.clear();
    node_.say(text);
  }

  // ---- the other nodes ----

  void arrived(std::unique_ptr<bootstrap::control_link> link) {
    pending_connection& who = connections_.emplace_back(pending_connection{std::move(link)});
    who.link->start({[this, &who](std::string_view message) { on_message(who, message); },
                     [this, &who](const std::string& why, bool closed) { on_lost(who, why, closed); }});
  }

  void on_message(pending_connection& from, std::string_view message) {
    if (from.refused) return;
    if (from.node >= 0) {
      if (!nodes_.contains(from.node)) return;
      const event what = decode_event(message);
      if (const auto* const asked = std::get_if<clock_asked>(&what))
        return send(from.node, clock_told{asked->asked_ns, base::steady_ns()});
      return hear(from.node, what);
    }
    if (from.waits) return from.said.push_back(std::string(message));
    const hello who = decode_hello(message);
    if (!gathering_) return admit(from, who);
    from.waits = who;
    std::erase_if(elected_->others, [&who](const auto& each) { return each.id == who.id; });
    if (!waits_for_others()) gathered_.cancel();
  }

  void admit(pending_connection& from, hello who) {
    const bool too_late = !who.run.empty() && !gathering_;
    if (who.node < 0 && options_.elastic) who.node = coordinator_.free_number();
    // Node 0's answer may be a command to all nodes, so it has to be among them.
    from.node = who.node;
    const bool free = nodes_.try_emplace(who.node, &from).second;
    const std::optional<std::string> refusal =
        too_late ? "it was out of reach, and the others have gone on without its ranks"
                 : coordinator_.join(who);
    if (!refusal) {
      if (!coordinator_.joining()) join_deadline_.cancel();
      return resume_ranks(who);
    }
    from.node = -1;
    from.refused = true;
    if (free) nodes_.erase(who.node);
    node_.say(fmt::format("tutti-run: node {} turned a launcher away: {}\n", own(), *refusal));
    from.link->send(encode(command(
        job_over{refused_exit_code, fmt::format("tutti-run: node {} on {} turned this launcher away: {}\n",
                                                own(), node_.own.host, *refusal)})));
    from.link->finish();
  }

  void on_lost(pending_connection& who, const std::string& why, bool closed) {
    who.link->close();
    if (who.waits && !closed && !who.waits->run.empty()) {
      elected_->others.push_back({.id = who.waits->id,
                                  .is = bootstrap::launcher_entry::state::silent,
                                  .first_rank = who.waits->first_rank,
                                  .ranks = who.waits->ranks});
    }
    who.waits.reset();
    // From the loop: its link is the caller.
    later([this, &who] {
      connections_.remove_if([&who](const pending_connection& each) { return &each == &who; });
    });
    if (who.node < 0 && !who.refused && admits_nodes())
      node_.say(fmt::format("tutti-run: a launcher was turned away: {}\n", why));
    const auto known = nodes_.find(who.node);
    if (known == nodes_.end() || known->second != &who) return;
    nodes_.erase(known);
    has_told(who.node);
    if (elastic_) take_off(who.node, closed);
    if (elected_ && !closed) elected_->doubt();
    coordinator_.lost(who.node, why);
    look_whether_done();
    end_if_told();
  }

  void take_off(int node, bool closed) {
    if (closed) return elastic_->tell(&bootstrap::membership::node_ended, node);
    const int loss = elastic_->tell(&bootstrap::membership::node_lost, node);
    run_after(losses_.emplace_back(node_.loop), time_to_end_unheard(options_), [this, loss] {
      if (elastic_) elastic_->tell(&bootstrap::membership::overdue, loss);
    });
  }

  void unauthenticated(const std::string& from, const std::string& why) {
    // By address without the port: it calls repeatedly.
    const std::string address = from.substr(0, from.rfind(':'));
    if (!admits_nodes() || unauthenticated_.size() == most_unauthenticated ||
        !unauthenticated_.insert(address).second)
      return;
    node_.say(fmt::format("tutti-run: somebody who called at --master was not let in: {}\n", why));
  }

  bool admits_nodes() const { return coordinator_.joining() || (options_.elastic && !coordinator_.over()); }

  void join_overdue() {
    if (!coordinator_.joining()) return;
    const std::vector<int> missing = coordinator_.missing();
    if (options_.elastic)
      return coordinator_.abandon(
          join_failure_exit_code,
          fmt::format("tutti-run: {} of at least {} nodes came to {} within {} (--join-timeout): start "
                      "tutti-run with the same {}, --nnodes and secret on more of them\n",
                      options_.nodes - static_cast<int>(missing.size()), options_.least_nodes,
                      meeting_place(options_), base::duration_text(options_.join_timeout),
                      elected_ ? "TUTTI_STORE" : "--master"));
    coordinator_.abandon(
        join_failure_exit_code,
        fmt::format(
            "tutti-run: node{} {} did not come to {}:{} within {} (--join-timeout): start tutti-run there "
            "with --node-rank {} and the same --master, --nnodes {} and secret{}\n",
            missing.size() == 1 ? "" : "s", base::rank_list(missing), options_.master->host,
            options_.master->port, base::duration_text(options_.join_timeout),
            missing.size() == 1 ? std::to_string(missing.front()) : "of its own", options_.nodes,
            std::ranges::all_of(rendezvous_, bootstrap::is_loopback)
                ? ". That address is a loopback one, which no other machine can reach"
                : ""));
  }

  // ---- commands ----

  void send(int node, const command& what) {
    if (const auto* const start = std::get_if<start_ranks>(&what); start != nullptr && elastic_)
      for (int i = 0; i < coordinator_.ranks_of(node); ++i)
        elastic_->tell(&bootstrap::membership::started, node, start->first_rank + i, start->restart_count);
    if (node == own()) {
      if (std::holds_alternative<job_over>(what)) {
        // Last, so that no other launcher is left without an answer.
        last_command_ = what;
        run_after(end_deadline_, time_to_part, [this] { lose_patience(); });
        return later([this] { end_if_told(); });
      }
      return execute(what);
    }
    const auto known = nodes_.find(node);
    if (known == nodes_.end()) return;
    known->second->link->send(encode(what));
  }

  void end_if_told() {
    if (!last_command_ || !nodes_.empty()) return;
    end_deadline_.cancel();
    join_deadline_.cancel();
    execute(*std::exchange(last_command_, std::nullopt));
  }

  std::optional<seat> elected_;
  bool gathering_ = false;  // the others, to take over
  boost::asio::steady_timer gathered_{node_.loop};
  std::vector<event> told_meanwhile_;                 // here
  std::vector<boost::asio::ip::address> rendezvous_;  // where the other nodes come
  base::unique_fd store_;                             // listens for the next start
  base::unique_fd master_port_;                       // kept free for rank 0
  // Where nodes come and go.
  std::unique_ptr<tcp_store_server> server_;
  std::unique_ptr<bootstrap::elastic_store> elastic_;
  coordinator coordinator_;
  std::set<int> asked_;  // the nodes that have not sent all records
  std::vector<flight::rank_snapshot> records_;
  std::chrono::steady_clock::time_point explained_at_{};
  boost::asio::steady_timer answer_deadline_{node_.loop};
  boost::asio::steady_timer join_deadline_{node_.loop};
  boost::asio::steady_timer end_deadline_{node_.loop};
  std::list<boost::asio::steady_timer> losses_;  // of nodes that are silent
  std::optional<command> last_command_;          // for this node, once the others have theirs
  std::set<std::string> unauthenticated_;        // addresses that were reported
  std::list<pending_connection> connections_;
  std::map<int, pending_connection*> nodes_;  // those that have joined and not gone
  std::unique_ptr<bootstrap::acceptor> listener_;
  scope calls_;  // last: its task uses the others
};

}  // namespace

std::unique_ptr<coordination> coordination::make_head(place node, std::optional<seat> elected) {
  return std::make_unique<head_node>(std::move(node), std::move(elected));
}

}  // namespace tutti::launch
