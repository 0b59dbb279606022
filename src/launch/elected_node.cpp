// SPDX-License-Identifier: Apache-2.0
// elected_node: a node of a job whose launchers meet in etcd. The oldest launcher coordinates; when it dies, the next
// oldest one takes its place. What that one needs is in etcd, and with the launchers that are left.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <tutti/as_result.hpp>
#include <tutti/scope.hpp>

#include "base/hmac.hpp"
#include "base/text.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/election.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/etcd_client.hpp"
#include "launch/coordination.hpp"
#include "launch/coordinator.hpp"
#include "launch/outcome.hpp"

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t id_bytes = 8;
constexpr std::chrono::milliseconds between_looks{200};
constexpr std::chrono::milliseconds time_to_answer{2000};  // for a launcher that may be about to take over
constexpr std::chrono::milliseconds time_to_leave{2000};

using clock = std::chrono::steady_clock;

std::chrono::milliseconds time_left(clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

// Where others reach this host: the address from which packets to a member of etcd leave, or, if that is here, those to
// other hosts. Members whose names do not resolve may have gone.
task<boost::asio::ip::address> address_of_host(boost::asio::any_io_executor executor,
                                               std::vector<bootstrap::etcd_member> members) {
  for (const bootstrap::etcd_member& each : members) {
    const bootstrap::name_answer at =
        co_await bootstrap::ask_system(executor, each.host, each.port, clock::now() + time_to_answer);
    if (at.code || at.found.empty()) continue;
    const auto mine = bootstrap::source_address_towards(at.found.front().address());
    if (!mine.is_unspecified() && !mine.is_loopback()) co_return mine;
  }
  const auto outward = bootstrap::source_address_by_default();
  if (outward.is_unspecified()) co_return boost::asio::ip::address_v4::loopback();
  co_return outward;
}

class elected_node final : public coordination {
 public:
  explicit elected_node(place at) : coordination(std::move(at)), of_job_(options_) {
    own_.id = base::random_hex(id_bytes);
    own_.node = -1;
    calls_.spawn(join());
  }

  void tell(const event& what) override {
    note(what);
    if (leaves_ && leaves_to_others(what)) return;
    if (inner_) return inner_->tell(what);
    if (end_ || leaves_) end_alone({});
  }

  void lose_patience() override {
    if (inner_ && !hands_over_) return inner_->lose_patience();
    end_alone("not waited for any longer");
  }

 private:
  // ---- what the next coordinator has to know ----

  void note(const event& what) {
    if (const auto* const ended = std::get_if<process_ended>(&what); ended != nullptr && !own_.run.empty()) {
      rank_state& rank = own_.run.at(static_cast<std::size_t>(ended->rank - own_.first_rank));
      if (ended->again)
        rank = {.start = ended->start + 1};
      else
        rank = {.start = ended->start, .runs = false, .well = ended->well};
    }
    if (!leaves_) leaves_ = departure_by(what, of_job_.on_failure);
    if (std::holds_alternative<ranks_ended>(what)) ranks_run_ = false;
    const auto* const failed = std::get_if<rank_failed>(&what);
    if ((failed != nullptr && failed->restart == 0) || std::holds_alternative<ranks_ended>(what))
      repeated_.push_back(what);
  }

  void on_command(const command& what) {
    if (const auto* const start = std::get_if<start_ranks>(&what)) {
      own_.node = start->node;
      own_.first_rank = start->first_rank;
      own_.run.assign(static_cast<std::size_t>(own_.ranks), {.start = start->restart_count});
      // What the first coordinator has said holds for the job.
      of_job_.least_nodes = start->least_nodes;
      of_job_.quorum = start->quorum;
      of_job_.on_failure = start->on_failure;
      of_job_.max_restarts = start->max_restarts;
      of_job_.grace = start->grace;
      ranks_run_ = true;
      repeated_.clear();
      calls_.spawn(keep_runs());
    }
    if (const auto* const end = std::get_if<job_over>(&what)) return over(*end);
    node_.execute(what);
  }

  task<> keep_runs() {
    const auto kept = co_await as_result(
        election_->runs(run_, own_.first_rank, own_.ranks, clock::now() + of_job_.join_timeout));
    if (kept.error)
      node_.say(fmt::format("tutti-run: this launcher cannot take over later: {}\n", kept.message));
  }

  // ---- the end ----

  void over(job_over how) {
    if (std::exchange(over_, true)) return;
    listening_.reset();
    calls_.spawn(leave(std::move(how)));
  }

  task<> leave(job_over how) {
    const clock::time_point deadline = clock::now() + time_to_leave;
    if (election_) {
      // Otherwise the others notice that it has gone.
      const auto left = co_await as_result(election_->leave(deadline));
      if (!left.error) co_await as_result(store_->erase(election_->life_key(), time_left(deadline)));
    }
    node_.execute(how);
  }

  // No other launcher will say how the job ends; once the ranks have ended. `why` counts if this one does not leave.
  void end_alone(const std::string& why) {
    if (over_) return;
    if (!end_) {
      retire();
      if (leaves_)
        end_ = job_over{leaves_->exit_code,
                        fmt::format("tutti-run: this node has left the job: {}\n", leaves_->why)};
      else
        end_ = job_over{1, fmt::format("tutti-run: {}{}\n", why, ranks_run_ ? "; the job is stopped" : "")};
      if (ranks_run_) execute(stop_ranks{SIGTERM});
    }
    if (!ranks_run_) over(*end_);
  }

  // Its ranks may take their time to end. The others know them, but do not wait for this launcher to take over.
  void retire() {
    if (election_ && !std::exchange(retired_, true)) calls_.spawn(let_key_go());
  }

  task<> let_key_go() { co_await as_result(store_->erase(election_->life_key(), time_to_leave)); }

  // One that others do without coordinates until its ranks have ended. Returns whether the coordinator is not to hear of
  // this event.
  bool leaves_to_others(const event& what) {
    const role mine = inner_ ? inner_->is() : role::attends;
    if (mine == role::attends) retire();
    if (mine == role::gathers) {
      without_inner([this] { end_alone({}); });
      return true;
    }
    if (mine == role::leads && !std::exchange(hands_over_, true))
      node_.say(fmt::format("tutti-run: node {} leaves: {}; the others go on\n", own_.node, leaves_->why));
    if (!hands_over_) return false;
    if (!ranks_run_)
      without_inner([this] {
        over({leaves_->exit_code,
              fmt::format("tutti-run: this node has left the job: {}; the others go on\n", leaves_->why)});
      });
    return std::holds_alternative<stop_wanted>(what) || std::holds_alternative<ranks_ended>(what) ||
           std::holds_alternative<kill_wanted>(what) || std::holds_alternative<rank_failed>(what);
  }

  // From the loop: `inner_` may be the caller.
  template <class F>
  void without_inner(F f) {
    later([this, f = std::move(f)] {
      inner_.reset();
      f();
    });
  }

  // ---- who coordinates ----

  task<> join() {
    std::string why;
    try {
      const boost::asio::any_io_executor executor = node_.loop.get_executor();
      const clock::time_point deadline = clock::now() + options_.join_timeout;
      tls_ = bootstrap::launcher_tls_of_etcd(options_.store);
      store_ = co_await etcd_store::connect(executor, options_.store, time_left(deadline), tls_);
      bootstrap::etcd_place etcd = bootstrap::parse_etcd_url(options_.store);
      const boost::asio::ip::address host = co_await address_of_host(executor, std::move(etcd.members));
      listening_ = bootstrap::listen_at({host, 0});
      const auto at = bootstrap::local_endpoint(listening_.get());
      if (!at) throw error(errc::system, "no port is free here for other launchers to come to");
      election_.emplace(*store_, bootstrap::launcher_entry{own_.id, at->address().to_string(), at->port()});
      const std::string life = election_->life_key();
      const auto lifetime = std::chrono::ceil<std::chrono::seconds>(options_.node_timeout);
      co_await store_->hold(life, node_.own.host, lifetime);
      co_await search(deadline);
      co_return;
    } catch (const std::exception& e) {
      why = e.what();
    }
    end_alone(fmt::format("this launcher cannot join the job in etcd: {}", why));
  }

  // The coordinator has gone.
  void lost(const std::string& why) {
    without_inner([this, why] {
      lost_ = fmt::format("the launcher that coordinates was lost: {}", why);
      if (end_ || leaves_) return end_alone({});
      calls_.spawn(search_again());
    });
  }

  task<> search_again() {
    std::string why;
    try {
      co_await search(clock::now() + of_job_.node_timeout);
      co_return;
    } catch (const std::exception& e) {
      why = e.what();
    }
    end_alone(fmt::format("{}, and no other one can be found in etcd: {}", lost_, why));
  }

  // This launcher coordinates, and another one has fallen silent. If this one is replaced, or can reach etcd no more, its
  // ranks have to end: the others go on without them.
  task<> confirm() {
    std::string why = "another one has taken its place";
    try {
      const bootstrap::launcher_list all = co_await election_->look({}, clock::now() + of_job_.node_timeout);
      if (all.coordinator == own_.id) co_return;
    } catch (const error& e) {
      why = e.what();
    }
    if (over_ || end_ || hands_over_) co_return;
    inner_.reset();
    end_alone(fmt::format("this launcher, which coordinates, is out of reach: {}", why));
  }

  // Until this launcher coordinates, or has come to the one that does.
  task<> search(clock::time_point deadline) {
    std::set<std::string> dead;
    boost::asio::steady_timer pause(node_.loop);
    std::string trouble;
    while (!over_ && !end_) {
      bootstrap::launcher_list all = co_await election_->look(dead, deadline);
      if (ranks_run_ && all.run != run_)
        throw error(errc::join_failed, "this launcher was out of reach, and the others have begun anew");
      const bootstrap::launcher_entry next = all.next();
      if (next.id == own_.id) {
        const bool any_died = co_await find_dead(all, &dead);
        if (any_died) continue;
        co_return co_await coordinate(all, deadline);
      }
      const bootstrap::control_target to{next.host,
                                         next.port,
                                         node_.secret,
                                         node_.tls,
                                         of_job_.node_timeout,
                                         own_.node,
                                         std::min(time_left(deadline), time_to_answer)};
      std::unique_ptr<bootstrap::control_link> link;
      bool refused = false;
      try {
        link =
            co_await bootstrap::call_launcher(node_.loop.get_executor(), to, bootstrap::listener::has_come);
        refused = link == nullptr;
      } catch (const error& e) {
        if (e.code() != errc::join_failed) throw;
        trouble = e.what();
      }
      if (link) {
        // It has become the coordinator meanwhile, if it was not.
        if (all.coordinator != next.id) all = co_await election_->look(dead, deadline);
        co_await draw_numbers(all.run, deadline);
        if (!over_ && !end_) attend(std::move(link));
        co_return;
      }
      if (refused) dead.insert(next.id);
      if (clock::now() >= deadline)
        throw error(errc::join_failed,
                    fmt::format("{}:{} does not answer ({})", next.host, next.port, trouble));
      if (refused) continue;
      pause.expires_at(std::min(deadline, clock::now() + between_looks));
      co_await pause.async_wait(boost::asio::as_tuple(boost::asio::deferred));
    }
  }

  // Adds launchers that are waited for in vain, as their keys are there for a while.
  task<bool> find_dead(bootstrap::launcher_list all, std::set<std::string>* dead) {
    const std::size_t before = dead->size();
    for (const bootstrap::launcher_entry& each : all.launchers) {
      if (!each.lives() || !each.runs() || each.id == own_.id) continue;
      const bool listens =
          co_await bootstrap::may_listen(node_.loop.get_executor(), each.host, each.port, between_looks);
      if (!listens) dead->insert(each.id);
    }
    co_return dead->size() > before;
  }

  // Numbers that no other rank of this run has, or has had.
  task<> draw_numbers(std::string run, clock::time_point deadline) {
    if (ranks_run_ || run_ == run) co_return;
    const std::string key = "ranks/" + run;
    const std::int64_t all = co_await store_->add(key, own_.ranks, time_left(deadline));
    own_.first_rank = static_cast<int>(all) - own_.ranks;
    own_.node = -1;
    own_.run.clear();
    run_ = run;
  }

  place part() {
    return {node_.loop, of_job_, node_.secret,
            node_.tls,  own_,    [this](const command& what) { on_command(what); },
            node_.say};
  }

  task<> coordinate(bootstrap::launcher_list all, clock::time_point deadline) {
    co_await draw_numbers(all.run, deadline);
    seat mine;
    mine.run = all.run;
    mine.why = lost_;
    mine.doubt = [this] { later([this] { calls_.spawn(confirm()); }); };  // that may end the caller
    mine.of_run = co_await etcd_store::connect(node_.loop.get_executor(), store_of_run(options_, all.run),
                                               time_left(deadline), tls_);
    for (const bootstrap::launcher_entry& each : all.launchers)
      if (each.runs() && each.id != own_.id) mine.others.push_back(each);
    if (over_ || end_) co_return;
    // The others take a launcher that does not listen for dead, and its ranks with it.
    mine.listening.reset(::fcntl(listening_.get(), F_DUPFD_CLOEXEC, 0));
    if (!mine.listening) throw error(errc::system, "a launcher that coordinates needs another descriptor");
    if (own_.run.empty()) own_.node = 0;
    inner_ = make_head(part(), std::move(mine));
    for (const event& what : repeated_) inner_->tell(what);
  }

  void attend(std::unique_ptr<bootstrap::control_link> link) {
    inner_ = make_member(part(), {.link = std::move(link),
                                  .repeated = repeated_,
                                  .ranks_run = ranks_run_,
                                  .grace = of_job_.grace,
                                  .lost = [this](const std::string& why) { lost(why); }});
  }

  options of_job_;  // those of this launcher, with what counts for all nodes
  hello own_ = node_.own;
  std::string run_;  // for which the numbers are
  bool ranks_run_ = false;
  std::optional<departure> leaves_;  // told to end, for example
  bool retired_ = false;             // it is not to take over any more
  bool hands_over_ = false;          // it coordinates until its ranks have ended
  std::vector<event> repeated_;      // to the next coordinator
  std::optional<job_over> end_;      // how it ends here without one
  bool over_ = false;
  std::string lost_;  // why the last coordinator was
  tls_identity tls_;
  base::unique_fd listening_;
  std::unique_ptr<etcd_store> store_;
  std::optional<bootstrap::election> election_;
  std::unique_ptr<coordination> inner_;
  scope calls_;  // last: they use the others
};

}  // namespace

std::unique_ptr<coordination> coordination::make_elected(place node) {
  return std::make_unique<elected_node>(std::move(node));
}

}  // namespace tutti::launch
