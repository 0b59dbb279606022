// SPDX-License-Identifier: Apache-2.0
#include "launch/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "base/env.hpp"
#include "base/text.hpp"
#include "bootstrap/etcd_client.hpp"
#include "bootstrap/starters.hpp"

namespace tutti::launch {
namespace {

constexpr int most_nodes = 65536;
constexpr double longest_seconds = 1e9;
constexpr int usual_master_port = 29500;  // where no variable says which

constexpr const char* examples =
    "Examples:\n"
    "  tutti-run -n 4 ./hello                  four ranks on this machine\n"
    "  tutti-run -n 2 --log-dir logs ./train --epochs 3\n"
    "  tutti-run -n 4 --max-restarts 3 ./train starts all ranks again when one fails, three times\n"
    "  tutti-run -n 4 --on-failure restart ./train   only the one that has failed; the others rejoin()\n"
    "  export TUTTI_SECRET=...                 the same text on both machines, then on each:\n"
    "  tutti-run -n 8 --nnodes 2 --node-rank 0 --master 10.0.0.1:29500 ./train      (1 on the other)\n"
    "  tutti-run -n 8 --nnodes 1:4 --node-rank 0 --master 10.0.0.1:29500 ./train    nodes may come and go;\n"
    "                                          the others leave --node-rank out\n"
    "\n"
    "tutti-run --variables lists the environment variables that tutti reads.\n"
    "Nodes may have different numbers of ranks; --on-failure, --max-restarts and --grace are node 0's to "
    "say.\n"
    "Exit code: that of the first rank that failed, 128 + signal number for one that a signal ended;\n"
    "  1 when a node was lost; 124 after --timeout; 128 + signal number when tutti-run was told to end;\n"
    "  2 for a wrong command line.\n"
    "Rank 0 reads standard input unless that is a terminal; with -n 1 the program has the terminal to "
    "itself.";

std::string list_of_variables() {
  std::string list =
      "Environment variables (a list of values begins with the default, where there is one):\n";
  std::string_view title;
  for (const base::variable& v : base::variables()) {
    if (title != v.group) list += fmt::format("\n{}:\n", title = v.group);
    list += fmt::format("  {}{}{}\n      {}\n", v.name, v.values.empty() ? "" : "=", v.values, v.text);
  }
  return list;
}

// Throws usage_error where headers and libraries are not installed beside this program.
std::string installed_prefix() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path prefix = program.parent_path().parent_path();
  if (!std::filesystem::exists(prefix / "include" / "tutti" / "tutti.hpp"))
    throw usage_error(
        "--prefix: tutti's headers and libraries are not installed beside {}: ./run install, in a clone of "
        "tutti, or apt-get install libtutti-dev",
        program.string());
  return prefix.string() + "\n";
}

class help_format : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: tutti-run -n RANKS [options] program [arguments...]\n";
  }
};

host_and_port parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != host.npos)
    host.clear();  // an IPv6 address without its brackets: which colon ends it?
  const int port =
      colon == text.npos ? 0 : base::to_number<std::uint16_t>(text.substr(colon + 1)).value_or(0);
  if (host.empty() || port == 0)
    throw usage_error(
        "--master {}: give HOST:PORT with a port from 1 to 65535, for example 10.0.0.1:29500 "
        "or [fd00::1]:29500",
        text);
  return {host, port};
}

// "3", or "1:4" of a job whose nodes may come and go, into `o`. `from` is the option or the variable with its value.
void parse_nodes(std::string_view given, const std::string& from, options& o) {
  const std::size_t colon = given.find(':');
  o.elastic = colon != std::string_view::npos;
  const auto least = base::to_number<int>(given.substr(0, colon));
  const auto most = o.elastic ? base::to_number<int>(given.substr(colon + 1)) : least;
  if (!least || !most)
    throw usage_error("{}: give a number of nodes, or MIN:MAX where nodes may come and go", from);
  o.nodes = *most;
  if (!o.elastic) return;
  o.least_nodes = *least;
  if (o.least_nodes < 1 || o.least_nodes > o.nodes)
    throw usage_error("{}: MIN is 1 or more, and MAX no less", from);
}

template <class T>
T parse_number(const std::string& option, const std::string& given) {
  T number{};
  const auto [end, code] = std::from_chars(given.data(), given.data() + given.size(), number);
  if (code != std::errc{} || end != given.data() + given.size())
    throw usage_error("{} {}: give a number{}", option, given,
                      code == std::errc::result_out_of_range ? " that is not so large" : "");
  return number;
}

// An option that takes a number; other values are rejected under the name that the examples use.
void add_number(CLI::App& app, const std::string& names, int& into, const char* type,
                const std::string& text) {
  const std::string name = names.substr(0, names.find(','));
  const auto take = [&into, name](const std::string& given) { into = parse_number<int>(name, given); };
  app.add_option_function<std::string>(names, take, text)->type_name(type);
}

void add_seconds(CLI::App& app, const std::string& name, std::chrono::milliseconds& into,
                 const std::string& text) {
  const auto take = [&into, name](const std::string& given) {
    const auto seconds = parse_number<double>(name, given);
    if (!(seconds >= 0) || seconds > longest_seconds)
      throw usage_error("{} {}: give a number of seconds, 0 or more", name, seconds);
    into = std::chrono::milliseconds(static_cast<long long>(std::ceil(seconds * 1000)));
  };
  app.add_option_function<std::string>(name, take, text)->type_name("SECONDS");
}

// An option that takes one of the names in `all`.
template <class T>
void add_choice(CLI::App& app, const std::string& name, T& into, const std::map<std::string, T>& all,
                const char* type, const std::string& text) {
  const auto take = [&into, &all](const std::string& given) { into = all.at(given); };
  app.add_option_function<std::string>(name, take, text)->check(CLI::IsMember(all))->type_name(type);
}

void check_elastic(options& o, bool node_rank_given, bool policy_given) {
  if (!policy_given) o.on_failure = failure_policy::restart_rank;
  if (o.on_failure == failure_policy::restart_all)
    throw usage_error(
        "--on-failure restart-all contradicts --nnodes MIN:MAX, where ranks go on when others have gone: "
        "leave it out");
  if (const auto store = base::env_string("TUTTI_STORE"); store && bootstrap::is_etcd_url(*store)) try {
      bootstrap::parse_etcd_url(*store);
      o.store = *store;
    } catch (const error& e) {
      throw usage_error("TUTTI_STORE: {}", e.what());
    }
  const bool others_may_come = o.master || !o.store.empty();
  if (others_may_come && !node_rank_given) o.node_rank = -1;
  if (!others_may_come && o.least_nodes == 1 && o.node_rank == 0) o.nodes = 1;
}

void check_nodes(const options& o, bool node_rank_given) {
  if (o.nodes < 1 || o.nodes > most_nodes)
    throw usage_error("--nnodes {}: give a number from 1 to {}", o.nodes, most_nodes);
  if (o.nodes > 1 && !node_rank_given && !o.elastic)
    throw usage_error("--nnodes {0} needs --node-rank: which of the {0} nodes is this one, 0 to {1}?",
                      o.nodes, o.nodes - 1);
  if (o.nodes > 1 && !o.master && o.store.empty())
    throw usage_error(
        "--nnodes {} needs --master HOST:PORT: an address of node 0 that all nodes reach, and a "
        "free port there",
        o.elastic ? "MIN:MAX" : std::to_string(o.nodes));
  if ((o.node_rank < 0 && node_rank_given) || o.node_rank >= o.nodes)
    throw usage_error(
        o.nodes == 1
            ? fmt::format("--node-rank {} makes no sense on one node: give --nnodes as well", o.node_rank)
            : fmt::format("--node-rank {} is not one of the {} nodes: give 0 to {}", o.node_rank, o.nodes,
                          o.nodes - 1));
}

// A number of restarts requests them.
void check_restarts(options& o, bool policy_given, bool number_given) {
  constexpr int usual_restarts = 3;
  constexpr int most_restarts = 1000000;
  if (number_given && (o.max_restarts < 0 || o.max_restarts > most_restarts))
    throw usage_error("--max-restarts {}: give a number from 0 to {}", o.max_restarts, most_restarts);
  if (number_given && !policy_given && o.max_restarts > 0) o.on_failure = failure_policy::restart_all;
  const bool restarts =
      o.on_failure == failure_policy::restart_all || o.on_failure == failure_policy::restart_rank;
  if (number_given && policy_given && !restarts && o.max_restarts > 0)
    throw usage_error("--max-restarts {} contradicts --on-failure {}: leave one of them out", o.max_restarts,
                      o.on_failure == failure_policy::stop ? "stop" : "continue");
  if (!number_given && restarts) o.max_restarts = usual_restarts;
}

const std::map<std::string, failure_policy> policies = {{"stop", failure_policy::stop},
                                                        {"continue", failure_policy::go_on},
                                                        {"restart", failure_policy::restart_rank},
                                                        {"restart-all", failure_policy::restart_all}};
const std::map<std::string, tag_policy> tags = {
    {"auto", tag_policy::automatic}, {"always", tag_policy::always}, {"never", tag_policy::never}};
const std::map<std::string, binding> bindings = {
    {"none", binding::none}, {"core", binding::core}, {"cache", binding::cache}, {"numa", binding::numa}};
const std::map<std::string, bootstrap::quorum> quorums = {{"none", bootstrap::quorum::none},
                                                          {"majority", bootstrap::quorum::majority}};

void add_options(CLI::App& app, options& o) {
  add_number(app, "-n,--np,--nproc-per-node", o.ranks, "RANKS", "ranks to start on this node");
  app.add_option_function<std::string>(
         "--nnodes", [&o](const std::string& given) { parse_nodes(given, "--nnodes " + given, o); },
         "nodes of the job; tutti-run is started once on each. MIN:MAX: nodes may come and go")
      ->type_name("NODES");
  add_number(app, "--node-rank", o.node_rank, "R",
             "this node, 0 to NODES-1; with MIN:MAX only node 0 needs to say so");
  app.add_option_function<std::string>(
         "--master",
         [&o](const std::string& given) {
           if (!given.empty()) o.master = parse_address(given);
         },
         "where the nodes meet: an address of node 0 and a free port there")
      ->type_name("HOST:PORT");
  add_choice(
      app, "--on-failure", o.on_failure, policies, "WHAT",
      "what a failing rank does to the others: stop (the default); continue; restart: it alone is started "
      "anew, and joins the others when they rejoin; restart-all: all stop and are started again");
  add_choice(app, "--quorum", o.quorum, quorums, "WHAT",
             "with MIN:MAX, what the ranks that rejoin need when nodes are out of reach: none (the "
             "default); majority: more ranks of the last world than may still run on those nodes");
  add_number(app, "--max-restarts", o.max_restarts, "K",
             "restarts before giving up (default 3), with restart of each rank; without --on-failure, "
             "restart-all is meant");
  add_choice(
      app, "--bind", o.bind, bindings, "WHAT",
      "the cores that a rank may use: none, all of them (the default); core, one of its own; cache or "
      "numa, those of a last-level cache or a memory node, over which the ranks are spread in their order");
  app.add_option("--log-dir", o.log_dir,
                 "also write each rank's output to DIR/rank-<r>.out and .err, after a restart to "
                 "DIR/rank-<r>.restart-<k>.out and .err")
      ->type_name("DIR");
  app.add_flag("--check", o.check,
               "start nothing: say where this node and node 0 are, and what would stop a job, with its cure");
  app.add_flag(
      "--status", o.status,
      "start nothing: say who waits for whom in the jobs that run on this node, or in those of the processes "
      "that are named: tutti-run --status 4711");
  app.add_flag("--quiet", o.quiet, "print no output of the ranks: it is in --log-dir");
  add_choice(
      app, "--tag-output", o.tag_output, tags, "WHEN",
      "begin output lines with [rank]: always, never, or auto (the default: once a second rank speaks)");
  app.add_option("--trace", o.trace,
                 "write a time line of all ranks' operations, computations and spans, for Perfetto or "
                 "chrome://tracing; node K of several writes FILE.node-K")
      ->type_name("FILE");
  add_seconds(app, "--explain-after", o.explain_after,
              "say who waits for whom when no rank has begun or ended an operation for so long (default 0: "
              "only at Ctrl-\\, that is SIGQUIT)");
  add_seconds(app, "--timeout", o.timeout, "stop the job after so many seconds (default 0: never)");
  add_seconds(app, "--grace", o.grace, "time between asking a rank to end and killing it (default 5)");
  add_seconds(app, "--join-timeout", o.join_timeout, "for all nodes to come together (default 600)");
  add_seconds(app, "--node-timeout", o.node_timeout,
              "how long another node may be out of reach before it counts as lost (default 10)");
  add_number(app, "--secret-fd", o.secret_fd, "FD",
             "read the secret from this descriptor, not from TUTTI_SECRET");
  app.add_flag_callback(
      "--variables", [] { throw help_request{list_of_variables()}; },
      "list the environment variables that tutti reads, and end");
  app.add_flag_callback(
      "--prefix", [] { throw help_request{installed_prefix()}; },
      "print the folder in which tutti is installed, for CMAKE_PREFIX_PATH, and end");
  app.add_flag_callback(
      "--version", [] { throw help_request{"tutti " TUTTI_VERSION "\n"}; }, "print the version, and end");
}

void parse(CLI::App& app, int argc, const char* const* argv, options& o) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw help_request{app.help()};
  } catch (const CLI::ArgumentMismatch& e) {
    // CLI11 names the first long form of an option.
    if (std::string_view(e.what()).starts_with("--np:"))
      throw usage_error("-n: give the number of ranks, for example: tutti-run -n 4 ./program");
    throw usage_error(e.what());
  } catch (const CLI::ParseError& e) {
    throw usage_error(e.what());
  }

  o.program = app.remaining();
  if (!o.program.empty() && o.program.front() == "--")
    o.program.erase(o.program.begin());
  else if (!o.program.empty() && o.program.front().starts_with('-'))
    throw usage_error("there is no option {}", o.program.front());
}

// ---- variables that replace options ----

// Options that the command line has set.
struct given_options {
  bool ranks = false;
  bool nodes = false;
  bool node_rank = false;
};

struct found_variable {
  const node_variable* row;
  std::string text;   // as it is set
  std::string value;  // what it means for the field
};

int number_of(const found_variable& v, int low, const char* option) {
  const auto number = base::to_number<int>(v.value);
  if (!number || *number < low)
    throw usage_error("{}={} is not a number from {} on: set it to one, or give {}", v.row->name, v.text, low,
                      option);
  return *number;
}

// srun has started one task on each node, or none. A batch script and a shell in an allocation also have
// Slurm's variables, but are no step.
bool is_slurm_step() {
  return (base::env_string("SLURM_STEP_ID") || base::env_string("SLURM_STEPID")) &&
         base::env_string("SLURM_STEP_NUM_NODES");
}

// Finds the variable for a field; several must agree.
std::optional<found_variable> find_variable(node_field field, const char* option) {
  std::optional<found_variable> found;
  for (const node_variable& row : node_variables) {
    if (row.field != field) continue;
    const std::string_view starter = row.starter;
    if (starter == "Slurm" && !is_slurm_step()) continue;
    const auto text = base::env_string(row.name);
    if (!text) continue;
    const bool is_list = starter == "Slurm" && field == node_field::master_host;
    const found_variable next{&row, *text, is_list ? bootstrap::first_host(*text) : *text};
    if (found && found->value != next.value)
      throw usage_error(
          "{}={} ({}) and {}={} ({}) contradict each other: unset the one that is not meant, or give {}",
          found->row->name, found->text, found->row->starter, row.name, next.text, starter, option);
    if (!found) found = next;
  }
  return found;
}

// The same for a number, which goes to `into`.
std::optional<found_variable> take_number(node_field field, int low, const char* option, int& into) {
  std::optional<found_variable> found = find_variable(field, option);
  if (found) into = number_of(*found, low, option);
  return found;
}

void refuse_several_launchers_on_a_node(int nodes) {
  const auto tasks = base::env_string("SLURM_STEP_NUM_TASKS");
  if (!is_slurm_step() || !tasks || *tasks == std::to_string(nodes)) return;
  throw usage_error(
      "SLURM_STEP_NUM_TASKS={} on SLURM_STEP_NUM_NODES={}: tutti-run is to be started once on each node, by "
      "srun --ntasks-per-node=1; for a job of its own in each task give --nnodes 1",
      *tasks, nodes);
}

// Sets in `o` what `given` lacks, and the master if `o` has none, from the variables; in `given`, the ranks and
// the node's rank that were found. Variables of a single node, and inside a rank of another job, change
// nothing.
void take_node_variables(options& o, given_options& given) {
  // Ranks inherit the variables of the launcher above them.
  if (base::env_string("TUTTI_JOB_ID")) return;

  if (!given.ranks) given.ranks = take_number(node_field::ranks, 1, "-n", o.ranks).has_value();
  if (!given.nodes) {
    const auto v = find_variable(node_field::nodes, "--nnodes");
    if (!v) return;
    if (v->value.find(':') != std::string::npos) {
      parse_nodes(v->value, fmt::format("{}={}", v->row->name, v->text), o);
    } else {
      const int nodes = number_of(*v, 1, "--nnodes");
      if (nodes == 1) return;
      if (std::string_view(v->row->starter) == "Slurm") refuse_several_launchers_on_a_node(nodes);
      o.nodes = nodes;
    }
  }
  if (o.nodes == 1) return;
  if (!given.node_rank)
    if (const auto v = take_number(node_field::node_rank, 0, "--node-rank", o.node_rank)) {
      given.node_rank = true;
      if (o.node_rank >= o.nodes)
        throw usage_error(
            "{}={} ({}) is not one of the {} nodes, 0 to {}: correct it or the number of "
            "nodes, or give --nnodes and --node-rank",
            v->row->name, v->text, v->row->starter, o.nodes, o.nodes - 1);
    }
  if (o.master) return;
  const auto host = find_variable(node_field::master_host, "--master");
  if (!host) return;
  o.master = host_and_port{host->value, usual_master_port};
  const auto port = take_number(node_field::master_port, 1, "--master", o.master->port);
  if (port && o.master->port > 65535)
    throw usage_error("{}={}: a port is a number from 1 to 65535", port->row->name, port->text);
}

}  // namespace

options parse_options(int argc, const char* const* argv) {
  options o;
  CLI::App app(
      "Starts N copies of a program, the ranks of one tutti job, and looks after them until all have ended.",
      "tutti-run");
  app.formatter(std::make_shared<help_format>());
  app.footer(examples);
  app.prefix_command();  // whatever follows the program's name belongs to the program
  add_options(app, o);
  parse(app, argc, argv, o);

  given_options given{app.count("-n") > 0, app.count("--nnodes") > 0, app.count("--node-rank") > 0};
  take_node_variables(o, given);
  const bool starts = !o.check && !o.status;
  if (!starts && !given.ranks) o.ranks = 1;
  if (starts && !given.ranks)
    throw usage_error("how many ranks? Give -n, for example: tutti-run -n 4 ./program");
  if (o.ranks < 1 || o.ranks > most_ranks_per_node)
    throw usage_error("-n {}: give a number of ranks from 1 to {}", o.ranks, most_ranks_per_node);
  if (starts && (o.program.empty() || o.program.front().empty()))
    throw usage_error(
        "which program? Give its name after the options, for example: tutti-run -n 4 ./program");
  if (app.count("--quorum") > 0 && !o.elastic)
    throw usage_error("--quorum is for nodes that come and go: give --nnodes MIN:MAX, or leave it out");
  if (o.elastic) check_elastic(o, given.node_rank, app.count("--on-failure") > 0);
  check_nodes(o, given.node_rank);
  check_restarts(o, o.elastic || app.count("--on-failure") > 0, app.count("--max-restarts") > 0);
  if (o.quiet && o.log_dir.empty())
    throw usage_error("--quiet would lose the output of the ranks: add --log-dir DIR, or use >/dev/null");
  if (app.count("--secret-fd") > 0 && o.secret_fd < 0)
    throw usage_error(
        "--secret-fd: give the number of an open descriptor, as in --secret-fd 3 3<secret-file");
  if (o.node_timeout < std::chrono::seconds(1) || o.node_timeout > std::chrono::hours(1))
    throw usage_error("--node-timeout {:g}: give from 1 to 3600 seconds",
                      static_cast<double>(o.node_timeout.count()) / 1000);
  if (o.trace.empty()) o.trace = base::env_string("TUTTI_TRACE").value_or("");
  if (!o.trace.empty() && o.node_rank < 0)
    throw usage_error("--trace names the file by the node: give --node-rank as well");
  return o;
}

}  // namespace tutti::launch
