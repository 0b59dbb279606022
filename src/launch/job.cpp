// SPDX-License-Identifier: Apache-2.0
#include "launch/job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "launch/signals.hpp"
#include "launch/terminal.hpp"

namespace tutti::launch {
namespace {

constexpr int timeout_exit_code = 124;  // as timeout(1) has it
constexpr std::size_t repeated_lines = 10;
constexpr std::chrono::seconds time_to_die{
    5};  // a process that SIGKILL has not ended by then hangs in the kernel
constexpr rlim_t descriptors_per_rank = 5;  // two pipes, two log files, its death
constexpr rlim_t own_descriptors = 64;

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

// Makes room for the pipes of many ranks. Returns the limit as it was when it has been changed.
std::optional<rlimit> raise_descriptor_limit(int ranks) {
  rlimit limit{};
  const rlim_t wanted = own_descriptors + descriptors_per_rank * static_cast<rlim_t>(ranks);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return std::nullopt;
  const rlimit raised{std::min(wanted, limit.rlim_max), limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) != 0) return std::nullopt;
  return limit;
}

std::string_view cure(int error) {
  switch (error) {
    case EMFILE:
      return ". Raise the limit of open files (ulimit -n), or lower -n";
    case ENFILE:
      return ". The whole system is out of open files: lower -n";
    case EAGAIN:
      return ". Raise the limit of processes (ulimit -u, or the container's pids limit), or lower -n";
    case ENOMEM:
      return ". There is not enough memory: lower -n";
    default:
      return "";
  }
}

}  // namespace

job::job(const options& o, std::string path)
    : options_(o),
      path_(std::move(path)),
      descriptor_limit_(raise_descriptor_limit(o.ranks)),
      children_(loop_,
                {[this](outcome end) { on_rank_end(std::move(end)); }, [this] { on_children_changed(); }}),
      store_(o.node_rank == 0 ? open_store_socket(o.master) : store_socket{{}, *o.master}),
      environment_(o, store_.address),
      output_(loop_, o, [this] { stop(reason::reader_gone, SIGTERM); }),
      signals_(loop_),
      timeout_(loop_),
      deadline_(loop_),
      direct_(o.ranks == 1 && o.log_dir.empty() && o.tag_output != tag_policy::always),
      lends_terminal_(o.ranks == 1 && has_terminal_input()) {
  if (const int columns = output_terminal_columns(); columns > 0) environment_.show_terminal(columns);
}

int job::run() {
  for (const int signal : forwarded_signals()) signals_.add(signal);
  if (!ignored(SIGTSTP)) signals_.add(SIGTSTP);
  signals_.add(SIGCHLD);
  listen();
  start_ranks();
  if (options_.timeout.count() > 0) {
    timeout_.expires_after(options_.timeout);
    timeout_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) stop(reason::timeout, SIGTERM);
    });
  }
  loop_.run();
  if (lends_terminal_) take_terminal_back_from(children_.only_group());
  return exit_code();
}

void job::start_ranks() {
  const base::unique_fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) throw std::system_error(errno, std::generic_category(), "/dev/null");
  for (int local_rank = 0; local_rank < options_.ranks; ++local_rank) {
    try {
      start_rank(local_rank, null);
    } catch (const std::system_error& e) {
      throw std::runtime_error(fmt::format("cannot start rank {} of {}: {}{}",
                                           options_.first_rank() + local_rank, options_.world_size(),
                                           e.what(), cure(e.code().value())));
    }
  }
}

void job::start_rank(int local_rank, const base::unique_fd& null) {
  const int rank = options_.first_rank() + local_rank;
  const bool serves_store = rank == 0;
  process_spec spec;
  spec.path = path_;
  spec.arguments = options_.program;
  spec.environment = environment_.of_rank(local_rank, serves_store ? store_.fd.get() : -1);
  spec.inherited = serves_store ? store_.fd.get() : -1;
  spec.in_foreground = lends_terminal_ && in_terminal_foreground();
  spec.descriptor_limit = descriptor_limit_;
  // A terminal cannot be shared with rank 0 while its group is in the background: a read would stop it
  // without a word.
  const bool reads_input = options_.ranks == 1 || (rank == 0 && !has_terminal_input());
  if (!reads_input) spec.input = null.get();
  job_output::rank_pipes pipes;
  if (!direct_) {
    pipes = output_.connect(rank);
    spec.output = pipes.output.get();
    spec.error = pipes.error.get();
  }
  children_.start(rank, spec);
  if (serves_store) store_.fd.reset();  // when rank 0 dies, its store is to be gone
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
    if (lends_terminal_ && children_.only_one_stopped()) suspend();
    return children_.reap();
  }
  if (signal == SIGTSTP) {
    children_.signal_all(SIGTSTP);
    return suspend();
  }
  if (!ends_job(signal)) return children_.signal_all(signal);
  if (phase_ == phase::draining)
    return loop_.stop();  // the ranks are gone, and so is whoever should read their output
  if (signal == SIGINT && ++interrupts_ == 2) return kill();
  if (phase_ == phase::running) return stop(reason::signal, signal);
  children_.signal_all(signal);
}

// Stops as the job does, so that a shell sees it, and goes on with it.
void job::suspend() {
  if (lends_terminal_) take_terminal_back_from(children_.only_group());
  // The default action and not SIGSTOP: the kernel omits it where no shell is there to continue us.
  signals_.remove(SIGTSTP);
  ::raise(SIGTSTP);
  if (!ignored(SIGTSTP)) signals_.add(SIGTSTP);
  if (lends_terminal_ && in_terminal_foreground()) give_terminal_to(children_.only_group());
  children_.signal_all(SIGCONT);
}

void job::on_rank_end(outcome end) {
  ends_.push_back(end);
  if (!end.failed() || phase_ != phase::running) return;
  if (options_.on_failure == failure_policy::stop || end.exec_error != 0)
    stop(reason::failure, SIGTERM);
  else if (!children_.running().empty())
    output_.say(failure_notice(end));
}

void job::on_children_changed() {
  if (phase_ == phase::draining || !children_.all_ended()) return;
  if (children_.all_gone()) return finish();
  // What the ranks left behind: none of the job's business once that is over, but while it is being stopped
  // it may still have something to save. A shell starts what runs in its background deaf to SIGINT.
  if (phase_ == phase::running)
    kill();
  else if (phase_ == phase::stopping && !std::exchange(asked_rest_, true))
    children_.signal_all(SIGTERM);
}

void job::stop(reason why, int signal) {
  if (phase_ != phase::running) return;
  phase_ = phase::stopping;
  reason_ = why;
  stop_signal_ = signal;
  children_.signal_all(signal);
  children_.signal_all(SIGCONT);  // one that was stopped could not act on it
  deadline_.expires_after(options_.grace);
  deadline_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) kill();
  });
}

void job::kill() {
  if (phase_ == phase::killing || phase_ == phase::draining) return;
  phase_ = phase::killing;
  children_.signal_all(SIGKILL);
  deadline_.expires_after(time_to_die);
  deadline_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) give_up();
  });
}

void job::give_up() {
  if (phase_ == phase::draining) return;
  if (const std::vector<int> ranks = children_.running(); !ranks.empty())
    output_.say(fmt::format(
        "tutti-run: SIGKILL does not end rank {}: it hangs in the kernel (a dead file server or a "
        "driver; `ps -o pid,stat,wchan` shows where)\n",
        rank_list(ranks)));
  finish();
}

void job::finish() {
  phase_ = phase::draining;
  timeout_.cancel();
  deadline_.cancel();
  output_.finish([this] {
    if (const std::string text = report() + output_.losses(); !text.empty()) output_.say(text);
    output_.drain([this] { loop_.stop(); });
  });
}

std::string job::report() const {
  std::string text;
  std::vector<int> killed;
  for (const outcome& end : ends_)
    if (end.killed && end.signal == SIGKILL) killed.push_back(end.rank);
  const std::string last_resort =
      killed.empty() ? "" : fmt::format("tutti-run: rank {} had to be killed\n", rank_list(killed));
  switch (reason_) {
    case reason::signal:
      return fmt::format("tutti-run: the job was stopped by {}\n{}", signal_name(stop_signal_), last_resort);
    case reason::timeout:
      return fmt::format("tutti-run: the job was stopped: it ran longer than --timeout {:g}\n{}",
                         static_cast<double>(options_.timeout.count()) / 1000, last_resort);
    case reason::reader_gone:
      return "";
    default:
      break;
  }
  const outcome* cause = first_cause(ends_);
  if (cause == nullptr) return "";
  // What a shell says nothing about when it happens to a program that it started itself.
  if (direct_ && (cause->signal == SIGPIPE || (lends_terminal_ && cause->signal == SIGINT))) return "";
  failure_context context{options_, host_name(), {}};
  if (output_.mixed()) context.last_lines = output_.last_error_lines(cause->rank, repeated_lines);
  return failure_report(*cause, ends_, context);
}

int job::exit_code() const {
  switch (reason_) {
    case reason::signal:
      return 128 + stop_signal_;
    case reason::timeout:
      return timeout_exit_code;
    case reason::reader_gone:
      return 128 + SIGPIPE;
    default:
      break;
  }
  if (const outcome* cause = first_cause(ends_)) return cause->shell_code();
  return output_.losses().empty() ? 0 : 1;
}

}  // namespace tutti::launch
