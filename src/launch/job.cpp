// SPDX-License-Identifier: Apache-2.0
#include "launch/options.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/env.hpp"
#include "base/hmac.hpp"
#include "bootstrap/environment.hpp"
#include "launch/coordination.hpp"
#include "launch/job_output.hpp"
#include "launch/local_ranks.hpp"
#include "launch/run_after.hpp"
#include "launch/store_relay.hpp"

namespace tutti::launch {
namespace {

// For the reader of the output to take something, after a stop and after a kill.
constexpr std::chrono::milliseconds time_to_read{5000};
constexpr std::chrono::milliseconds time_to_read_at_kill{500};
constexpr int killing_interrupt = 2;  // the second Ctrl-C kills, further ones wait for nothing

constexpr std::size_t secret_bytes = 32;
constexpr std::size_t longest_secret = 4096;

using boost::asio::ip::host_name;

std::string read_secret(int fd) {
  std::string text(longest_secret + 1, '\0');
  // Closed again: the ranks must not inherit it.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> source(::fdopen(fd, "r"), std::fclose);
  text.resize(source ? std::fread(text.data(), 1, text.size(), source.get()) : 0);
  if (!source || std::ferror(source.get()) != 0)
    throw usage_error("--secret-fd {}: {}; open it for reading, as in --secret-fd 3 3<secret-file", fd,
                      std::strerror(errno));
  if (text.size() > longest_secret)
    throw usage_error("--secret-fd {}: a secret has at most {} bytes", fd, longest_secret);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() || text.find('\0') != std::string::npos)
    throw usage_error("--secret-fd {}: a line of text is needed, for example of `openssl rand -hex 32`", fd);
  return text;
}

// From --secret-fd or TUTTI_SECRET, or a random one for one node. Throws usage_error if several nodes share none.
std::string job_secret(const options& o) {
  if (o.secret_fd >= 0) return read_secret(o.secret_fd);
  if (auto given = base::env_string("TUTTI_SECRET")) return *given;
  if (o.nodes > 1)
    throw usage_error(
        "a job over several nodes needs a secret that all its launchers know: make one, for example with "
        "`openssl rand -hex 32`, and set TUTTI_SECRET to it on every node, or give it by --secret-fd");
  return base::random_hex(secret_bytes);
}

// A closed stream would give its number to the next descriptor opened, and its output would go there.
void fill_closed_streams() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::dup(fd))
    if (fd > STDERR_FILENO) {
      ::close(fd);
      break;
    }
}

// As the launcher of one node sees it: its ranks, its output, the user's signals, and the coordination of all nodes
// (also on a single node).
class job {
 public:
  job(const options& o, std::string path)
      : options_(o),
        secret_(job_secret(o)),
        ranks_(loop_, o, std::move(path), secret_, output_,
               [this](const event& what) {
                 if (!over_) above_->tell(what);
               }),
        output_(loop_, o, [this] { stop_all(stop_wanted::reason::reader_gone, SIGTERM); }) {
    if (!o.trace.empty()) {
      if (ranks_.records().memory() == nullptr)
        throw std::runtime_error(
            "--trace: there is no memory that ranks could share: a limit of file sizes (ulimit -f) may be "
            "too low");
      trace_ = std::make_unique<job_trace>(o, *ranks_.records().memory(), host_name());
    }
    const tls_identity tls = o.nodes > 1 || o.elastic ? bootstrap::launcher_tls() : nullptr;
    relay_ = std::make_unique<store_relay>(loop_, o, secret_, tls);
    above_ = coordination::make({.loop = loop_,
                                 .o = o,
                                 .secret = secret_,
                                 .tls = tls,
                                 .own = {.nodes = o.nodes,
                                         .node = o.node_rank,
                                         .ranks = o.ranks,
                                         .host = host_name(),
                                         .pid = ::getpid()},
                                 .execute = [this](const command& what) { execute(what); },
                                 .say = [this](std::string_view lines) { output_.say(lines); }});
  }

  int run() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP})
      if (!ignored(signal)) signals_.add(signal);
    signals_.add(SIGCHLD);
    // Also if a shell has put tutti-run into its background: SIGQUIT does not end anything.
    signals_.add(SIGQUIT);
    listen();
    if (options_.timeout.count() > 0)
      run_after(timeout_, options_.timeout, [this] { stop_all(stop_wanted::reason::timeout, SIGTERM); });
    if (options_.explain_after.count() > 0) watch_for_silence();
    loop_.run();
    return exit_code_;
  }

 private:
  // ---- commands ----

  void execute(const command& what) {
    if (over_) return;
    std::visit([this](const auto& w) { execute_one(w); }, what);
  }

  void execute_one(const start_ranks& what) {
    // Node 0 has sent it before it heard of the stop.
    if (stop_wanted_) return above_->tell(ranks_ended{});
    if (!what.notice.empty()) output_.say(what.notice);
    if (trace_ != nullptr) trace_->begin(what.first_rank);
    try {
      ranks_.start(what, above_->take_store(), relay_->open(what));
    } catch (const std::runtime_error& e) {
      above_->tell(stop_wanted{stop_wanted::reason::cannot_start, 0, e.what()});
    }
  }

  void execute_one(const stop_ranks& what) { ranks_.stop(what.signal); }

  void execute_one(const kill_ranks&) {
    ranks_.kill();
    output_.give_up_after(time_to_read_at_kill);
  }

  void execute_one(const job_over& what) {
    over_ = true;
    timeout_.cancel();
    silence_.cancel();
    exit_code_ = what.exit_code == 0 && output_.incomplete() ? 1 : what.exit_code;
    std::string text = ranks_.seen_to_end() ? "" : what.report;
    text += output_.losses();
    if (trace_ != nullptr) text += trace_->finish();
    if (!text.empty()) output_.say(text);
    output_.drain([this] { loop_.stop(); });
  }

  void execute_one(const tell_records&) {
    std::vector<flight::rank_snapshot> ranks = ranks_.records().read();
    for (flight::rank_snapshot& each : ranks) {
      if (options_.nodes > 1) each.host = host_name();
      above_->tell(records_told{{each}, &each == &ranks.back()});
    }
  }

  void execute_one(const rank_stopped& what) {
    if (flight::recordings* const all = ranks_.records().memory())
      all->set_stopped(what.rank, what.pid, what.stopped);
  }

  // Also after the ranks have started: the last node to come is told to start before it is told the time.
  void execute_one(const clock_told& what) {
    if (trace_ != nullptr) trace_->set_clock_offset(what.clock_ns - what.asked_ns);
  }

  // ---- reports ----

  // Says who waits for whom if for this long no rank has started or ended an operation, and some wait.
  void watch_for_silence() {
    const auto now = std::chrono::steady_clock::now();
    const auto [progress, any_pending] = ranks_.records().operations();
    if (progress != progress_) {
      progress_ = progress;
      progress_at_ = now;
      silence_said_ = false;
    } else if (!silence_said_ && now - progress_at_ >= options_.explain_after && any_pending) {
      silence_said_ = true;
      above_->tell(explanation_wanted{});
    }
    const auto pause = std::clamp<std::chrono::milliseconds>(
        options_.explain_after / 4, std::chrono::milliseconds(50), std::chrono::milliseconds(1000));
    run_after(silence_, pause, [this] {
      if (!over_) watch_for_silence();
    });
  }

  void stop_all(stop_wanted::reason why, int signal) {
    if (over_) return;
    stop_wanted_ = true;
    output_.give_up_after(time_to_read);
    ranks_.stop(signal);
    above_->tell(stop_wanted{why, signal, {}});
  }

  void listen() {
    signals_.async_wait([this](const boost::system::error_code& cancelled, int signal) {
      if (cancelled) return;
      on_signal(signal);
      listen();
    });
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) {
      if (!ranks_.child_changed()) return;
      signal = SIGTSTP;
    } else if (signal == SIGTSTP) {
      ranks_.pass_on(SIGTSTP);
    }
    if (signal == SIGTSTP)
      return ranks_.suspend([this] {
        // The default action rather than SIGSTOP: the kernel omits it if no shell can continue this process.
        signals_.remove(SIGTSTP);
        ::raise(SIGTSTP);
        if (!ignored(SIGTSTP)) signals_.add(SIGTSTP);
      });
    if (signal == SIGQUIT && ranks_.records().memory() != nullptr) {
      if (!over_) above_->tell(explanation_wanted{});
      return;
    }
    if (!ends_job(signal)) return ranks_.pass_on(signal);
    if (over_) return loop_.stop();  // the ranks are gone, and so is the reader of their output
    if (signal == SIGINT) ++interrupts_;
    if (signal == SIGINT && interrupts_ >= killing_interrupt) {
      execute_one(kill_ranks{});
      above_->tell(kill_wanted{});
      if (interrupts_ > killing_interrupt) above_->lose_patience();
      return;
    }
    stop_all(stop_wanted::reason::signal, signal);
  }

  const options& options_;
  std::string secret_;
  boost::asio::io_context loop_{1};
  local_ranks ranks_;
  job_output output_;
  std::unique_ptr<job_trace> trace_;
  boost::asio::signal_set signals_{loop_};
  boost::asio::steady_timer timeout_{loop_};
  boost::asio::steady_timer silence_{loop_};  // until the ranks are checked again
  std::uint64_t progress_ = 0;                // as of the last check
  std::chrono::steady_clock::time_point progress_at_{};
  bool silence_said_ = false;
  std::unique_ptr<store_relay> relay_;
  std::unique_ptr<coordination> above_;
  int interrupts_ = 0;
  bool stop_wanted_ = false;  // by this node: no further start begins here
  bool over_ = false;
  int exit_code_ = 0;
};

}  // namespace

int run_job(const options& o, const std::string& path) {
  fill_closed_streams();
  const signals_of_writing_ignored during;
  return job(o, path).run();
}

}  // namespace tutti::launch
