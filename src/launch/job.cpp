// SPDX-License-Identifier: Apache-2.0
#include "launch/job.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>
#include <utility>

#include "launch/head_node.hpp"
#include "launch/member_node.hpp"
#include "launch/rank_environment.hpp"
#include "launch/signals.hpp"

namespace tutti::launch {
namespace {

constexpr std::size_t repeated_lines = 10;
constexpr int killing_interrupt = 2;  // the second Ctrl-C kills, further ones wait for nobody

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

}  // namespace

job::job(const options& o, std::string path)
    : options_(o),
      secret_(job_secret(o)),
      ranks_(loop_, o, std::move(path), secret_,
             {[this](const outcome& end, bool others_run, int restart) {
                above_->tell(rank_failed{end, others_run, restart});
              },
              [this] { on_ranks_ended(); }}),
      output_(loop_, o, [this] { stop_all(stop_wanted::reason::reader_gone, SIGTERM); }),
      signals_(loop_),
      timeout_(loop_) {
  ranks_.write_to(output_);
  const hello own{o.nodes, o.node_rank, o.ranks, host_name(), ::getpid()};
  if (o.node_rank == 0)
    above_ = std::make_unique<head_node>(
        loop_, o, secret_, own,
        head_node::outlets{[this](const command& what) { execute(what); },
                           [this](std::string_view lines) { output_.say(lines); }});
  else
    above_ =
        std::make_unique<member_node>(loop_, o, secret_, own, [this](const command& what) { execute(what); });
}

int job::run() {
  for (const int signal : forwarded_signals()) signals_.add(signal);
  if (!ignored(SIGTSTP)) signals_.add(SIGTSTP);
  signals_.add(SIGCHLD);
  listen();
  if (options_.timeout.count() > 0) {
    timeout_.expires_after(options_.timeout);
    timeout_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) stop_all(stop_wanted::reason::timeout, SIGTERM);
    });
  }
  above_->begin();
  loop_.run();
  return exit_code_;
}

// ---- from above ----

void job::execute(const command& what) {
  if (over_) return;
  std::visit([this](const auto& w) { execute_one(w); }, what);
}

void job::execute_one(const start_ranks& what) {
  if (!what.what.notice.empty()) output_.say(what.what.notice);
  try {
    ranks_.start(what.what, above_->take_store());
  } catch (const std::runtime_error& e) {
    stop_wanted wanted;
    wanted.why = stop_wanted::reason::cannot_start;
    wanted.text = e.what();
    above_->tell(wanted);
  }
}

void job::execute_one(const job_over& what) {
  over_ = true;
  timeout_.cancel();
  exit_code_ = what.exit_code == 0 && output_.incomplete() ? 1 : what.exit_code;
  std::string text = needs_no_words() ? "" : what.report;
  text += output_.losses();
  if (!text.empty()) output_.say(text);
  output_.drain([this] { loop_.stop(); });
}

bool job::needs_no_words() const {
  const outcome* const cause = first_cause(ranks_.ends());
  return ranks_.direct() && cause != nullptr &&
         (cause->signal == SIGPIPE || (ranks_.lends_terminal() && cause->signal == SIGINT));
}

// ---- from here ----

void job::on_ranks_ended() {
  ranks_ended what;
  what.ends = ranks_.ends();
  const outcome* const cause = first_cause(what.ends);
  if (cause != nullptr && (options_.nodes > 1 || output_.hard_to_find()))
    what.last_lines = output_.last_error_lines(cause->rank, repeated_lines);
  above_->tell(what);
}

void job::stop_all(stop_wanted::reason why, int signal) {
  if (over_) return;
  ranks_.stop(signal);
  stop_wanted wanted;
  wanted.why = why;
  wanted.signal = signal;
  above_->tell(wanted);
}

void job::listen() {
  signals_.async_wait([this](const boost::system::error_code& cancelled, int signal) {
    if (cancelled) return;
    on_signal(signal);
    listen();
  });
}

void job::on_signal(int signal) {
  if (signal == SIGCHLD) {
    if (!ranks_.stopped_by_terminal()) return ranks_.child_changed();
    signal = SIGTSTP;
  } else if (signal == SIGTSTP) {
    ranks_.pass_on(SIGTSTP);
  }
  if (signal == SIGTSTP)
    return ranks_.suspend([this] {
      // The default action and not SIGSTOP: the kernel omits it where no shell is there to continue us.
      signals_.remove(SIGTSTP);
      ::raise(SIGTSTP);
      if (!ignored(SIGTSTP)) signals_.add(SIGTSTP);
    });
  if (!ends_job(signal)) return ranks_.pass_on(signal);
  if (over_) return loop_.stop();  // the ranks are gone, and so is whoever should read their output
  if (signal == SIGINT) ++interrupts_;
  if (signal == SIGINT && interrupts_ >= killing_interrupt) {
    ranks_.kill();
    above_->tell(kill_wanted{});
    if (interrupts_ > killing_interrupt) above_->lose_patience();
    return;
  }
  stop_all(stop_wanted::reason::signal, signal);
}

}  // namespace tutti::launch
