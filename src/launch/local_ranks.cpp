// SPDX-License-Identifier: Apache-2.0
#include "launch/local_ranks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/cores.hpp"
#include "base/text.hpp"
#include "launch/run_after.hpp"

namespace tutti::launch {
namespace {

// A process that SIGKILL has not ended by then hangs in the kernel.
constexpr std::chrono::seconds time_to_die{5};
// After an exception has left its main, a rank tells the others for at most two seconds.
constexpr std::chrono::milliseconds time_for_its_end{2500};
constexpr std::size_t repeated_lines = 10;

// Makes room for the pipes of many ranks and, on node 0 of nodes that come and go, for the connections of all
// ranks to the store. Returns the old limit if it was changed.
std::optional<rlimit> raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return std::nullopt;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) != 0) return std::nullopt;
  return limit;
}

std::string_view cure_of_start(int error) {
  if (error == EMFILE) return ". Raise the limit of open files (ulimit -n), or start fewer ranks";
  if (error == ENFILE) return ". The whole system is out of open files: start fewer ranks";
  if (error == EAGAIN)
    return ". Raise the limit of processes (ulimit -u, or the container's pids limit), or start fewer ranks";
  return error == ENOMEM ? ". There is not enough memory: start fewer ranks" : "";
}

// ---- the terminal on standard input ----
//
// A single rank gets it as a job gets it from a shell: debuggers, prompts and Ctrl-C work in it as without the
// launcher. SIGTTOU is ignored meanwhile.

bool has_terminal_input() { return ::isatty(STDIN_FILENO) == 1; }
// Whether standard input is a terminal, and this process group may read from it.
bool in_terminal_foreground() { return has_terminal_input() && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }
// Does nothing if another process, such as the shell, has already taken the terminal from `group`.
void take_terminal_back_from(pid_t group) {
  if (::tcgetpgrp(STDIN_FILENO) == group) ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
}

// Columns of the terminal on standard output; 0: it is none.
int output_terminal_columns() {
  constexpr int usual_columns = 80;
  if (::isatty(STDOUT_FILENO) != 1) return 0;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual_columns;
}

// ---- the environment of a rank ----

// Variables that told this launcher its own place, as a rank of a starter, and that its ranks do not always get anew.
bool is_place_of_launcher(std::string_view name) {
  constexpr std::string_view names[] = {"ROLE_RANK",
                                        "ROLE_WORLD_SIZE",
                                        "TUTTI_STORE_FD",
                                        "TUTTI_STORE_FROM",
                                        "TUTTI_STORE_RELAY",
                                        "TUTTI_FLIGHT",
                                        "TUTTI_REJOIN",
                                        "TUTTI_ELASTIC",
                                        "TUTTI_MASTER_PORT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "OMPI_COMM_WORLD_NODE_RANK",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS"};
  return std::ranges::find(names, name) != std::end(names) || name.starts_with("TORCHELASTIC_");
}

// "NAME=value" for each variable of a rank: the launcher's own, and the rank's place in the job.
std::vector<std::string> environment_of_rank(const options& o, const start_ranks& p,
                                             const std::string& secret, int local_rank, int threads) {
  std::map<std::string, std::string> all;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (name.size() < text.size() && !is_place_of_launcher(name))
      all.try_emplace(std::string(name), text.substr(name.size() + 1));
  }
  all["WORLD_SIZE"] = std::to_string(p.world_size);
  all["LOCAL_WORLD_SIZE"] = std::to_string(o.ranks);
  // torchrun has two names for each.
  all["NODE_RANK"] = all["GROUP_RANK"] = std::to_string(p.node);
  all["NNODES"] = all["GROUP_WORLD_SIZE"] = std::to_string(o.nodes);
  if (o.store.empty()) {
    // As this node knows node 0: hosts may have another name on another network.
    all["MASTER_ADDR"] = o.master ? o.master->host : "127.0.0.1";
    all["MASTER_PORT"] = std::to_string(p.ports.master);
    all["TUTTI_STORE_PORT"] = fmt::format("{}:{}", p.ports.master, p.ports.store);
    // The launcher of node 0 has opened it, and keeps it as long as rank 0 may come.
    all["TUTTI_STORE_LISTENS"] = std::to_string(p.ports.store);
  } else {
    all["TUTTI_STORE"] = store_of_run(o, p.job_id);
  }
  all["TUTTI_JOB_ID"] = p.job_id;
  all["TUTTI_RESTART_COUNT"] = std::to_string(p.restart_count);
  all["TUTTI_MAX_RESTARTS"] = std::to_string(p.max_restarts);
  if (o.elastic) {
    all["TUTTI_ELASTIC"] = p.newcomer ? "newcomer" : "first";
  } else if (p.on_failure == failure_policy::restart_rank) {
    all["TUTTI_REJOIN"] = "1";
  }
  all["TUTTI_SECRET"] = secret;
  // OpenMP and what uses it would start a thread for every core on each rank.
  if (o.ranks > 1) all.try_emplace("OMP_NUM_THREADS", std::to_string(threads));
  // The program may draw for a terminal of this width, although it writes into a pipe.
  const std::string rank = std::to_string(p.first_rank + local_rank);
  if (const int columns = output_terminal_columns(); columns > 0) {
    const bool tagged =
        o.tag_output == tag_policy::always || (o.tag_output == tag_policy::automatic && p.world_size > 1);
    const auto tag = static_cast<int>(tagged ? std::string_view("[] ").size() + rank.size() : 0);
    all["TUTTI_TTY"] = "1";
    all["COLUMNS"] = std::to_string(std::max(columns - tag, 1));
  }
  all["RANK"] = rank;
  all["LOCAL_RANK"] = std::to_string(local_rank);
  std::vector<std::string> variables;
  for (const auto& [name, value] : all) variables.push_back(fmt::format("{}={}", name, value));
  return variables;
}

}  // namespace

local_ranks::local_ranks(boost::asio::io_context& loop, const options& o, std::string path,
                         std::string secret, job_output& output, std::function<void(const event&)> tell)
    : options_(o),
      path_(std::move(path)),
      secret_(std::move(secret)),
      tell_(std::move(tell)),
      descriptor_limit_(raise_descriptor_limit()),
      children_(loop,
                {[this](outcome end) { on_rank_end(std::move(end)); }, [this] { on_children_changed(); }}),
      places_(places_of_ranks(o.bind, o.ranks, base::cpu_mask())),
      records_(o.ranks, flight::wanted_operations(!o.trace.empty()), o.elastic),
      output_(output),
      deadline_(loop),
      spared_(loop),
      // With several nodes, node 0 gets the last lines of each rank, and Ctrl-C is for all of them.
      direct_(o.nodes == 1 && o.ranks == 1 && o.log_dir.empty() && o.tag_output != tag_policy::always),
      lends_terminal_(o.nodes == 1 && o.ranks == 1 && has_terminal_input()),
      handover_(loop, store_) {}

void local_ranks::start(const start_ranks& p, base::unique_fd store, int store_relay) {
  plan_ = p;
  phase_ = phase::running;
  asked_rest_ = false;
  ends_.clear();
  restarts_.assign(static_cast<std::size_t>(options_.ranks), 0);
  store_ = std::move(store);
  store_relay_ = store_relay;
  children_.clear();
  output_.begin_start();
  records_.begin_start(p.first_rank);
  int local_rank = 0;
  try {
    for (; local_rank < options_.ranks; ++local_rank) start_rank(local_rank);
  } catch (const std::runtime_error& e) {
    kill();
    // If none was started, none will be seen to end.
    boost::asio::post(deadline_.get_executor(), [this] { on_children_changed(); });
    const auto* const by_system = dynamic_cast<const std::system_error*>(&e);
    throw std::runtime_error(
        fmt::format("cannot start rank {} of {}: {}{}", p.first_rank + local_rank, p.world_size, e.what(),
                    by_system != nullptr ? cure_of_start(by_system->code().value()) : ""));
  }
}

void local_ranks::start_rank(int local_rank) {
  const int rank = plan_.first_rank + local_rank;
  start_ranks plan = plan_;
  plan.restart_count += restarts_[static_cast<std::size_t>(local_rank)];
  const bool serves_store = rank == 0;
  process_spec spec;
  spec.path = path_;
  spec.arguments = options_.program;
  const rank_place& place = places_[static_cast<std::size_t>(local_rank)];
  spec.environment = environment_of_rank(options_, plan, secret_, local_rank, place.threads);
  spec.cores = place.cores;
  if (serves_store && store_) {
    spec.inherited = store_.get();
    spec.environment.push_back(fmt::format("TUTTI_STORE_FD={}", store_.get()));
    spec.environment.push_back("TUTTI_STORE_FROM=" + handover_.name());
  }
  if (store_relay_ > 0) spec.environment.push_back(fmt::format("TUTTI_STORE_RELAY={}", store_relay_));
  if (const flight::recordings* const all = records_.memory()) {
    spec.records = all->descriptor();
    spec.environment.push_back(flight::variable_for(*all, local_rank));
  }
  spec.in_foreground = lends_terminal_ && in_terminal_foreground();
  spec.descriptor_limit = descriptor_limit_;
  // No terminal is shared with rank 0 while its group is in the background: a read would stop it.
  const bool alone = options_.nodes == 1 && options_.ranks == 1;
  const bool reads_input = alone || (rank == 0 && !has_terminal_input());
  base::unique_fd null;
  if (!reads_input) {
    null.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) throw std::system_error(errno, std::generic_category(), "/dev/null");
    spec.input = null.get();
  }
  job_output::rank_pipes pipes;
  if (!direct_) {
    pipes = output_.connect(rank, plan.restart_count);
    spec.output = pipes.output.get();
    spec.error = pipes.error.get();
  }
  records_.starting(local_rank);
  records_.started(local_rank, children_.start(rank, spec));
}

bool local_ranks::child_changed() {
  children_.reap();
  if (options_.nodes == 1 && !lends_terminal_) return false;
  bool stopped = false;
  for (const rank_stopped& each : children_.halts()) {
    stopped = lends_terminal_ && each.stopped;
    if (options_.nodes > 1) tell_(each);
  }
  return stopped;
}

bool local_ranks::seen_to_end() const {
  const outcome* const cause = first_cause(ends_);
  return direct_ && cause != nullptr &&
         (cause->signal == SIGPIPE || (lends_terminal_ && cause->signal == SIGINT));
}

void local_ranks::suspend(const std::function<void()>& stop_self) {
  if (lends_terminal_) take_terminal_back_from(children_.only_group());
  stop_self();
  if (lends_terminal_ && in_terminal_foreground() && phase_ != phase::idle)
    ::tcsetpgrp(STDIN_FILENO, children_.only_group());
  children_.signal_all(SIGCONT);
}

bool local_ranks::comes_again(const outcome& end) const {
  if (plan_.on_failure != failure_policy::restart_rank || phase_ != phase::running || !end.failed() ||
      end.exec_error != 0)
    return false;
  // If one has finished, the others can never be complete again. The coordinator knows of other nodes.
  const auto finished = [](const outcome& other) { return !other.failed(); };
  const bool one_has_finished = !options_.elastic && std::ranges::any_of(ends_, finished);
  return !one_has_finished &&
         restarts_[static_cast<std::size_t>(end.rank - plan_.first_rank)] < plan_.max_restarts;
}

void local_ranks::start_again(const outcome& before) {
  --to_come_again_;
  if (phase_ != phase::running) {
    ends_.push_back(before);
    return on_children_changed();
  }
  try {
    start_rank(before.rank - plan_.first_rank);
  } catch (const std::runtime_error& e) {
    output_.say(fmt::format("tutti-run: cannot start rank {} anew: {}\n", before.rank, e.what()));
    ends_.push_back(before);
    stop(SIGTERM);
    tell_(rank_failed{before, !children_.running().empty(), 0});
    on_children_changed();
  }
}

void local_ranks::on_rank_end(outcome end) {
  records_.ended(end);
  const bool again = comes_again(end);
  int& starts = restarts_[static_cast<std::size_t>(end.rank - plan_.first_rank)];
  if (options_.elastic || plan_.on_failure == failure_policy::restart_rank)
    tell_(process_ended{end.rank, plan_.restart_count + starts, !end.failed(), again});
  if (again) {
    const int restart = ++starts;
    ++to_come_again_;
    children_.signal_one(end.pid, SIGKILL);  // what it has left behind
    tell_(rank_failed{end, true, restart});
    // From the loop: the caller is iterating over the list of children.
    return boost::asio::post(deadline_.get_executor(), [this, end] { start_again(end); });
  }
  ends_.push_back(end);
  // Its store must be gone: ranks that wait for admission there must not wait for ever.
  if (end.rank == 0) store_.reset();
  if (!end.failed() || phase_ != phase::running) return;
  const bool others_run = !children_.running().empty();
  if (plan_.on_failure != failure_policy::go_on || end.exec_error != 0) stop(SIGTERM);
  tell_(rank_failed{end, others_run, 0});
}

void local_ranks::on_children_changed() {
  if (phase_ == phase::idle || phase_ == phase::draining || to_come_again_ > 0 ||
      !children_.running().empty())
    return;
  if (children_.all_gone()) return finish();
  // Processes left by the ranks: not the job's business once that is over, but while it is being stopped they
  // may have something to save. A shell starts its background processes with SIGINT ignored.
  if (phase_ == phase::running)
    kill();
  else if (phase_ == phase::stopping && !std::exchange(asked_rest_, true))
    children_.signal_all(SIGTERM);
}

void local_ranks::stop(int signal) {
  if (phase_ == phase::stopping) return children_.signal_all(signal);
  if (phase_ != phase::running) return;
  phase_ = phase::stopping;
  const auto patience = std::min<std::chrono::milliseconds>(time_for_its_end, plan_.grace / 2);
  const pid_t thrower = records_.ends_by_exception(patience);
  children_.signal_all(signal, thrower);
  children_.signal_all(SIGCONT);  // a stopped process could not act on it
  if (thrower > 0)
    run_after(spared_, patience, [this, thrower, signal] {
      if (phase_ == phase::stopping) children_.signal_one(thrower, signal);
    });
  run_after(deadline_, plan_.grace, [this] { kill(); });
}

void local_ranks::kill() {
  if (phase_ != phase::running && phase_ != phase::stopping) return;
  phase_ = phase::killing;
  children_.signal_all(SIGKILL);
  run_after(deadline_, time_to_die, [this] {
    if (phase_ != phase::killing) return;
    if (const std::vector<int> ranks = children_.running(); !ranks.empty())
      output_.say(fmt::format(
          "tutti-run: SIGKILL does not end rank {}: it hangs in the kernel (a dead file server or a "
          "driver; `ps -o pid,stat,wchan` shows where)\n",
          base::rank_list(ranks)));
    finish();
  });
}

void local_ranks::finish() {
  phase_ = phase::draining;
  deadline_.cancel();
  spared_.cancel();
  if (lends_terminal_) take_terminal_back_from(children_.only_group());
  output_.finish([this] {
    phase_ = phase::idle;
    ranks_ended what{ends_, {}, {}};
    if (const outcome* const cause = first_cause(ends_)) {
      if (options_.nodes > 1 || output_.hard_to_find())
        what.last_lines = output_.last_error_lines(cause->rank, repeated_lines);
      what.last_operations = records_.last_operations(cause->rank);
    }
    tell_(what);
  });
}

}  // namespace tutti::launch
