// SPDX-License-Identifier: Apache-2.0
// member_node: a node that does what the launcher says that coordinates.
#include <fmt/format.h>

#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <optional>
#include <tutti/scope.hpp>
#include <utility>

#include "base/cycles.hpp"
#include "launch/coordination.hpp"
#include "launch/run_after.hpp"

namespace tutti::launch {
namespace {

constexpr int node_lost_exit_code = 1;
constexpr int enough_clock_answers = 8;
// For node 0, beyond the grace period, to hear from all nodes and to say how the job ended: longer than it
// needs to count a silent node as lost.
constexpr std::chrono::seconds time_to_tell{30};

class member_node final : public coordination {
 public:
  explicit member_node(place at) : coordination(std::move(at)) { calls_.spawn(join()); }
  member_node(place at, attendance to)
      : coordination(std::move(at)), lost_(std::move(to.lost)), grace_(to.grace), ranks_run_(to.ranks_run) {
    begin(std::move(to.link));
    for (const event& what : to.repeated) tell(what);
  }

  void tell(const event& what) override {
    if (const auto* const failed = std::get_if<rank_failed>(&what);
        failed != nullptr && failed->restart == 0 && !first_failure_)
      first_failure_ = failed->end;
    if (const auto* const wanted = std::get_if<stop_wanted>(&what)) {
      stop_wanted_ = stopping_ = true;
      if (wanted->why == stop_wanted::reason::signal) asked_signal_ = wanted->signal;
      if (!link_ && wanted->why == stop_wanted::reason::timeout)
        return end_alone(124, "tutti-run: the job was stopped before it had begun: --timeout\n");
      if (!link_)
        return end_alone(128 + (asked_signal_ != 0 ? asked_signal_ : SIGPIPE),
                         asked_signal_ == 0
                             ? ""
                             : fmt::format("tutti-run: stopped by {} before the job had begun\n",
                                           signal_name(asked_signal_)));
      if (!ranks_run_) expect_end();
    }
    if (std::holds_alternative<ranks_ended>(what)) {
      ranks_run_ = false;
      if (stopping_) expect_end();
    }
    if (link_) link_->send(encode(what));
    end_if_ranks_have();
  }

  void lose_patience() override {
    if (!over_) on_lost("not waited for any longer");
  }

 private:
  task<> join() {
    const bootstrap::control_target to{
        options_.master->host, static_cast<std::uint16_t>(options_.master->port),
        node_.secret,          node_.tls,
        options_.node_timeout, options_.node_rank,
        options_.join_timeout};
    try {
      std::unique_ptr<bootstrap::control_link> link =
          co_await bootstrap::call_launcher(node_.loop.get_executor(), to);
      if (over_) co_return;
      begin(std::move(link));
    } catch (const std::exception& e) {
      end_alone(node_lost_exit_code,
                fmt::format("tutti-run: cannot join node 0 at {}:{}: {}. Start tutti-run --node-rank 0 "
                            "there, with the same --master and secret\n",
                            options_.master->host, options_.master->port, e.what()));
    }
  }

  void begin(std::unique_ptr<bootstrap::control_link> link) {
    link_ = std::move(link);
    link_->start({[this](std::string_view message) { on_message(message); },
                  [this](const std::string& lost_why, bool) { on_lost(lost_why); }});
    link_->send(encode(node_.own));
    if (!options_.trace.empty() && !ranks_run_) ask_clock();
  }

  void expect_end() {
    run_after(patience_, grace_ + time_to_tell,
              [this] { on_lost("it does not tell how the job has ended"); });
  }

  void ask_clock() { link_->send(encode(event(clock_asked{base::steady_ns()}))); }

  void on_message(std::string_view message) {
    if (over_) return;
    const command what = decode_command(message);
    if (const auto* const told = std::get_if<clock_told>(&what)) {
      const std::int64_t now = base::steady_ns();
      const std::int64_t round_trip = now - told->asked_ns;
      if (clock_answers_++ == 0 || round_trip < best_round_trip_ns_) {
        best_round_trip_ns_ = round_trip;
        clock_offset_ns_ = told->clock_ns - (told->asked_ns + round_trip / 2);
      }
      if (clock_answers_ < enough_clock_answers) ask_clock();
      return execute(clock_told{told->asked_ns, told->asked_ns + clock_offset_ns_});
    }
    if (const auto* const start = std::get_if<start_ranks>(&what)) {
      grace_ = start->grace;
      ranks_run_ = true;
      stopping_ = stop_wanted_;
      first_failure_.reset();
      patience_.cancel();
    } else if (const auto* const end = std::get_if<job_over>(&what)) {
      link_->finish();  // and the other side closes
      if (ranks_run_) return end_alone(end->exit_code, end->report);
      over_ = true;
      patience_.cancel();
    } else if (!std::holds_alternative<tell_records>(what) && !std::holds_alternative<rank_stopped>(what)) {
      stopping_ = true;
    }
    execute(what);
  }

  void on_lost(const std::string& why) {
    if (lost_) {
      patience_.cancel();
      if (!std::exchange(over_, true)) lost_(why);
      return;
    }
    if (asked_signal_ != 0)
      return end_alone(128 + asked_signal_,
                       fmt::format("tutti-run: the job was stopped by {}\n", signal_name(asked_signal_)));
    std::string report =
        fmt::format("tutti-run: node 0 at {} was lost: {}; the job is stopped{}\n", meeting_place(options_),
                    why, options_.elastic ? " (where TUTTI_STORE names an etcd, it would go on)" : "");
    if (first_failure_) report += fmt::format("tutti-run: here, {}\n", describe_rank(*first_failure_));
    end_alone(first_failure_ ? first_failure_->shell_code() : node_lost_exit_code, report);
  }

  // No other node will say how the job ends.
  void end_alone(int exit_code, const std::string& report) {
    if (std::exchange(over_, true)) return;
    patience_.cancel();
    alone_ = job_over{exit_code, report};
    if (ranks_run_) execute(stop_ranks{SIGTERM});
    end_if_ranks_have();
  }

  void end_if_ranks_have() {
    if (!ranks_run_ && alone_) execute(*std::exchange(alone_, std::nullopt));
  }

  const std::function<void(const std::string& why)> lost_;  // empty: the job ends with node 0
  boost::asio::steady_timer patience_{node_.loop};
  std::chrono::milliseconds grace_{0};  // as node 0 has said
  // The quickest answer is the most accurate.
  int clock_answers_ = 0;
  std::int64_t best_round_trip_ns_ = 0;
  std::int64_t clock_offset_ns_ = 0;
  bool ranks_run_ = false;
  bool stop_wanted_ = false;  // here
  bool stopping_ = false;
  bool over_ = false;                     // node 0 has said so, or has gone
  int asked_signal_ = 0;                  // by which the user here asked for an end; 0: none
  std::optional<outcome> first_failure_;  // here, in case only this node can report it
  // How it ends here without node 0, once the ranks have ended.
  std::optional<job_over> alone_;
  // To the end: where it closes, node 0 takes the ranks here for ended.
  std::unique_ptr<bootstrap::control_link> link_;
  scope calls_;  // last: its task uses the others
};

}  // namespace

std::unique_ptr<coordination> coordination::make_member(place node) {
  return std::make_unique<member_node>(std::move(node));
}

std::unique_ptr<coordination> coordination::make_member(place node, attendance to) {
  return std::make_unique<member_node>(std::move(node), std::move(to));
}

}  // namespace tutti::launch
