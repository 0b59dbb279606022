// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/environment.hpp"

#include "base/env.hpp"
#include "base/hmac.hpp"
#include "base/text.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/etcd_client.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/starters.hpp"
#include "bootstrap/store_handover.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <ranges>
#include <span>
#include <string_view>
#include <tutti/error.hpp>

namespace tutti {

init_options::init_options()
    : timeout(std::chrono::minutes(10)),
      silence_limit(std::chrono::seconds(3)),
      suspect_grace(std::chrono::seconds(30)) {}

namespace bootstrap {
namespace {

using namespace std::chrono_literals;

// Returns the option if there is one and it does not contradict the environment.
setting agree(const setting& environment, int option, const char* name) {
  if (option == -1) return environment;
  if (environment.value && *environment.value != option)
    refuse(
        "init_options::{} is {}, but the environment has {}: leave the option at -1, or start the "
        "program without that variable",
        name, option, environment.from);
  return {option, fmt::format("init_options::{}={}", name, option)};
}

place place_of(const init_options& options) {
  place found = find_place();
  if (options.rank < -1) refuse("init_options::rank is {}: it is 0 or more, or -1 for RANK", options.rank);
  if (options.world_size == 0 || options.world_size < -1)
    refuse("init_options::world_size is {}: it is 1 or more, or -1 for WORLD_SIZE", options.world_size);
  found.rank = agree(found.rank, options.rank, "rank");
  found.size = agree(found.size, options.world_size, "world_size");
  return found;
}

void take_place(const place& found, job& j) {
  if (!found.rank.value && !found.size.value) {
    j.alone = true;
    return;
  }
  if (!found.size.value)
    refuse(
        "{} is set, but not how many ranks there are: set WORLD_SIZE to the same number on all ranks, or "
        "start the program with tutti-run -n N",
        found.rank.from);
  if (!found.rank.value)
    refuse(
        "{} is set, but not which of them this process is: set RANK to a different number from 0 to {} "
        "in each process, or start the program with tutti-run -n {}",
        found.size.from, *found.size.value - 1, *found.size.value);
  j.rank = *found.rank.value;
  j.world_size = *found.size.value;
  if (j.rank >= j.world_size)
    refuse("{} does not fit {}: ranks go from 0 to {}; set both right, or start the program with tutti-run",
           found.rank.from, found.size.from, j.world_size - 1);
  const int local_size = found.local_size.value.value_or(-1);
  if (local_size > j.world_size)
    refuse("{} is more than {}: a host cannot have more ranks than the world", found.local_size.from,
           found.size.from);
  if (local_size > 0 && found.local_rank.value.value_or(-1) >= local_size)
    refuse("{} does not fit {}: local ranks go from 0 to {}; set both right, or neither",
           found.local_rank.from, found.local_size.from, local_size - 1);
}

std::uint16_t parse_port(std::string_view text, std::string_view where) {
  const std::uint16_t port = base::to_number<std::uint16_t>(text).value_or(0);
  if (port == 0)
    refuse("{}: '{}' is not a port; give a number from 1 to 65535 that is free on rank 0's host", where,
           text);
  return port;
}

// "host:port" or "[v6]:port", as in "tcp://host:port".
void parse_master_url(const std::string& url, job& j) {
  std::string_view rest = std::string_view(url).substr(std::string_view("tcp://").size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0)
    refuse(
        "init_method '{}' lacks a host or a port: write tcp://host:port, with the host that rank 0 runs "
        "on (an IPv6 address in brackets)",
        url);
  std::string_view host = rest.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:/ ") != std::string_view::npos) {
    refuse("init_method '{}': '{}' is no host; write tcp://host:port, an IPv6 address in brackets", url,
           host);
  }
  j.master_host = host;
  j.master_port = parse_port(rest.substr(colon + 1), fmt::format("init_method '{}'", url));
}

// At a file of this user on this host. Its name is the job's, no longer than a file name may be.
void meet_in_private(const place& found, job& j) {
  const std::string& text = found.job_on_host;
  const base::digest name =
      base::hmac_sha256("rendezvous", {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  j.rendezvous_file =
      fmt::format("{}/rendezvous-{}", private_directory(), base::to_hex(std::span(name).first(12)));
  j.private_rendezvous = true;
}

// torchrun's agents keep their own store at MASTER_PORT.
void meet_beside_torchrun(const place& found, const std::string& address, std::uint16_t port, job& j) {
  const auto chosen = base::env_string("TUTTI_MASTER_PORT");
  if (!chosen && found.one_host) return meet_in_private(found, j);
  if (!chosen && port == 65535)
    refuse(
        "torchrun's own store has MASTER_PORT=65535, and there is no port after it: set "
        "TUTTI_MASTER_PORT to one that is free on rank 0's host, the same on all ranks");
  j.master_host = address;
  j.master_port = chosen ? parse_port(*chosen, "TUTTI_MASTER_PORT") : static_cast<std::uint16_t>(port + 1);
}

// tutti-run leaves the MASTER_PORT that it sets to the program, and has its own store beside it. Ranks with another
// MASTER_PORT meet there: they are of another job, or the user has chosen it.
std::uint16_t port_of_store(std::uint16_t master_port) {
  const std::string ports = base::env_string("TUTTI_STORE_PORT").value_or("");
  const std::string in_its_place = fmt::format("{}:", master_port);
  if (!ports.starts_with(in_its_place)) return master_port;
  return parse_port(ports.substr(in_its_place.size()), "TUTTI_STORE_PORT");
}

void read_master(const place& found, job& j) {
  const auto address = base::env_string("MASTER_ADDR");
  const auto port = base::env_string("MASTER_PORT");
  if (j.alone) {
    // Every process would form a world of its own, and nobody would notice.
    if (address || port)
      refuse(
          "MASTER_ADDR or MASTER_PORT is set, but neither RANK nor WORLD_SIZE: set all four on every "
          "rank, or start the program with tutti-run; to run alone, unset MASTER_ADDR and MASTER_PORT");
    return;
  }
  if (j.world_size == 1 && !j.elastic) return;  // nobody to meet
  if (address && port) {
    const std::uint16_t number = parse_port(*port, "MASTER_PORT");
    if (found.master_port_taken) return meet_beside_torchrun(found, *address, number, j);
    j.master_host = *address;
    j.master_port = port_of_store(number);
    return;
  }
  if (!address && !port && found.one_host && !found.job_on_host.empty()) return meet_in_private(found, j);
  const char* const missing = address ? "MASTER_PORT is"
                              : port  ? "MASTER_ADDR is"
                                      : "MASTER_ADDR and MASTER_PORT are";
  refuse(
      "{}, {}{}, but {} not set: set MASTER_ADDR to the host that rank 0 runs on and MASTER_PORT to a "
      "port that is free there, the same on all ranks{}, or start the program with tutti-run",
      found.rank.from, found.size.from, found.several_hosts ? " on several hosts" : "", missing,
      found.pass_variables.empty() ? "" : fmt::format(" ({})", found.pass_variables));
}

// The path of "file:///shared/path".
std::string parse_file_url(const std::string& url) {
  std::string path = url.substr(std::string_view("file://").size());
  if (!path.starts_with('/') || path.ends_with('/'))
    refuse(
        "init_method '{}' names no file: write file:///directory/name, with a name that all ranks see, "
        "and that nothing else uses",
        url);
  return path;
}

// The number of the launcher's socket, if this is rank 0. The variable is unset whether or not the socket is used: the
// number means nothing to any other process.
std::optional<int> take_store_fd() {
  const auto fd = base::env_integer("TUTTI_STORE_FD", 0, INT_MAX);
  if (!fd) return std::nullopt;
  ::unsetenv("TUTTI_STORE_FD");
  return static_cast<int>(*fd);
}

bool listens(int fd, std::uint16_t port) {
  int listening = 0;
  socklen_t length = sizeof listening;
  const auto at = local_endpoint(fd);
  return at && at->port() == port && ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 &&
         listening != 0;
}

// Returns the launcher's socket, if it listens at the port of this job; -1: rank 0 has to listen by itself. A program on
// the way here may have closed the `inherited` one, and another file may have its number. For a second world of this
// process it is passed again.
int launchers_socket(const job& j, std::optional<int> inherited) {
  const auto from = base::env_string("TUTTI_STORE_FROM");
  if (!inherited && !from) return -1;
  if (inherited && listens(*inherited, j.master_port)) {
    ::fcntl(*inherited, F_SETFD, FD_CLOEXEC);
    return *inherited;
  }
  base::unique_fd passed = take_over_store(from.value_or(""));
  if (!passed && inherited && j.store_listens)
    refuse(
        "a program between tutti-run and rank 0 has closed descriptor {}, the socket of the store, and "
        "tutti-run does not pass it again: {}; let that program keep descriptors open (Python's subprocess: "
        "close_fds=False), user and network as they are, or set MASTER_PORT to a free port on all ranks",
        *inherited, base::errno_text(errno));
  return listens(passed.get(), j.master_port) ? passed.release() : -1;
}

// The port where the store already listens, or 0. Only for the first world of this process: rank 0 has to
// listen anew for another one.
std::int64_t take_listening_port() {
  const std::int64_t port = base::env_integer("TUTTI_STORE_LISTENS", 1, 65535).value_or(0);
  ::unsetenv("TUTTI_STORE_LISTENS");
  return port;
}

// Longer times count as this, which the clock can add up.
constexpr double most_seconds = 1e9;
constexpr std::chrono::milliseconds longest{static_cast<std::int64_t>(most_seconds * 1000)};

// Reads a time that a variable, in seconds, overrides. It is `least` or more; a limit may also be zero or "off".
std::chrono::milliseconds read_time(const char* variable, const char* option, std::chrono::milliseconds set,
                                    std::chrono::milliseconds least, bool is_limit) {
  const auto text = base::env_string(variable);
  if (!text) {
    if (set < least && !(is_limit && set.count() == 0))
      refuse("init_options::{} is {}: give at least {}{}", option, base::duration_text(set),
             base::duration_text(least), is_limit ? ", or zero for none" : "");
    return std::min(set, longest);
  }
  if (is_limit && (*text == "off" || *text == "0")) return {};
  const double time = std::ceil(base::to_number<double>(*text).value_or(-1) * 1000);
  if (!(time >= static_cast<double>(least.count()) && time <= most_seconds * 1000))
    refuse("{}='{}' is not a time in seconds from {} up: set it to a number such as 60{}", variable, *text,
           base::duration_text(least), is_limit ? ", or to off" : "");
  return std::chrono::milliseconds(static_cast<std::int64_t>(time));
}

void check_transports(const std::set<std::string>& names, const char* where) {
  for (const std::string& name : names)
    if (name != "shm" && name != "tcp" && name != "ucx")
      refuse(
          "{} asks for the transport '{}'; there are shm, ucx and tcp, and without a choice all that work "
          "are used, ucx between hosts with RDMA devices",
          where, name);
}

std::set<std::string> read_transports(const init_options& options) {
  const std::set<std::string> chosen(options.transports.begin(), options.transports.end());
  check_transports(chosen, "init_options::transports");
  const auto text = base::env_string("TUTTI_TRANSPORTS");
  if (!text) return chosen;
  std::set<std::string> named;
  for (const auto part : std::views::split(*text, ',')) named.emplace(part.begin(), part.end());
  check_transports(named, "TUTTI_TRANSPORTS");
  if (!chosen.empty() && chosen != named)
    refuse(
        "TUTTI_TRANSPORTS={} contradicts init_options::transports ({}): unset the variable, or leave the "
        "option empty",
        *text, fmt::join(chosen, ","));
  return named;
}

void check_backend(const std::string& name, const char* where) {
  if (name != "native" && name != "mpi") refuse("{} is '{}'; there are \"native\" and \"mpi\"", where, name);
}

bool read_over_mpi(const init_options& options) {
  check_backend(options.backend, "init_options::backend");
  const std::string said = base::env_string("TUTTI_BACKEND").value_or(options.backend);
  check_backend(said, "TUTTI_BACKEND");
  if (options.backend == "mpi" && said != "mpi")
    refuse("TUTTI_BACKEND=native contradicts init_options::backend, which is \"mpi\": unset the variable");
  return said == "mpi";
}

bool read_switch(const char* variable, bool option, const char* option_name) {
  const auto said = base::env_integer(variable, 0, 1);
  if (said == 0 && option)
    refuse("{}=0 contradicts init_options::{}, which is true: unset the variable", variable, option_name);
  return said == 1 || option;
}

void read_elastic(job& j) {
  const auto said = base::env_string("TUTTI_ELASTIC");
  if (!said) return;
  if (*said != "first" && *said != "newcomer")
    refuse("TUTTI_ELASTIC is '{}': tutti-run sets it to first or newcomer; unset it", *said);
  j.elastic = true;
  j.store_relay = static_cast<std::uint16_t>(base::env_integer("TUTTI_STORE_RELAY", 1, 65535).value_or(0));
  j.newcomer = *said == "newcomer" || j.restarts > 0;
}

std::string read_file_name(const char* variable, const std::string& option, const std::string& owner) {
  std::string name = option.empty() ? base::env_string(variable).value_or("") : option;
  const std::size_t at = name.find("%r");
  if (at != std::string::npos) name.replace(at, 2, owner);
  return name;
}

// `owner` of the certificate: what %r stands for.
tls_identity read_tls(const init_options& options, const std::string& owner) {
  if (!read_switch("TUTTI_TLS", options.tls, "tls")) return nullptr;
  return make_tls_identity(read_file_name("TUTTI_TLS_CERTIFICATE", options.tls_certificate, owner),
                           read_file_name("TUTTI_TLS_KEY", options.tls_key, owner),
                           read_file_name("TUTTI_TLS_AUTHORITY", options.tls_authority, owner));
}

// Null if the members of this etcd speak no TLS.
tls_identity read_tls_of_etcd(const std::string& url, const init_options& options, const std::string& owner) {
  if (!parse_etcd_url(url).tls) return nullptr;
  const auto file = [&owner, &url](const char* variable, const std::string& option) {
    std::string name = read_file_name(variable, option, owner);
    if (name.empty())
      refuse("'{}' asks for TLS, which needs certificates: set {}, or write etcd:// for an etcd without TLS",
             url, variable);
    return name;
  };
  const std::string certificate = file("TUTTI_TLS_CERTIFICATE", options.tls_certificate);
  const std::string key = file("TUTTI_TLS_KEY", options.tls_key);
  return make_tls_identity(certificate, key, file("TUTTI_TLS_AUTHORITY", options.tls_authority));
}

void read_common(const init_options& options, job& j) {
  j.timeout = read_time("TUTTI_TIMEOUT", "timeout", options.timeout, 1ms, false);
  j.silence_limit = read_time("TUTTI_SILENCE_LIMIT", "silence_limit", options.silence_limit, 500ms, true);
  j.suspect_grace = read_time("TUTTI_SUSPECT_GRACE", "suspect_grace", options.suspect_grace, 1ms, true);
  j.transports = read_transports(options);
  j.checksums = read_switch("TUTTI_CHECKSUMS", options.checksums, "checksums");
  j.tcp_connections =
      static_cast<std::size_t>(base::env_integer("TUTTI_TCP_CONNECTIONS", 1, core::most_tcp_connections)
                                   .value_or(core::usual_tcp_connections));
  j.secret = options.secret.empty() ? base::env_string("TUTTI_SECRET").value_or("") : options.secret;
}

}  // namespace

job resolve(const init_options& options) {
  job j;
  read_common(options, j);
  j.over_mpi = read_over_mpi(options);
  if (j.over_mpi) {
    if (!j.transports.empty())
      refuse(
          "the backend \"mpi\" has no choice of transports: unset TUTTI_TRANSPORTS, or leave "
          "init_options::transports empty (here: {})",
          fmt::join(j.transports, ","));
    const place found = place_of(options);
    j.rank = found.rank.value.value_or(-1);
    j.world_size = found.size.value.value_or(-1);
    return j;
  }
  std::string method = options.init_method;
  if (method == "env://") method = base::env_string("TUTTI_STORE").value_or(method);
  const bool at_address = method.starts_with("tcp://"), at_file = method.starts_with("file://");
  const bool in_etcd = is_etcd_url(method);
  if (method != "env://" && !at_address && !at_file && !in_etcd)
    refuse(
        "init_method (or TUTTI_STORE) '{}' is not known: there are env:// (MASTER_ADDR and MASTER_PORT say "
        "where rank 0 is), tcp://host:port, file:///path and etcd://host:port/JOB",
        method);
  const place found = place_of(options);
  take_place(found, j);
  j.tls = read_tls(options, std::to_string(j.rank));
  j.job_id = found.job;
  j.comes_again = base::env_integer("TUTTI_REJOIN", 0, 1).value_or(0) == 1;
  j.restarts = static_cast<int>(base::env_integer("TUTTI_RESTART_COUNT", 0, INT_MAX).value_or(0));
  read_elastic(j);
  const std::optional<int> store_fd = take_store_fd();
  const std::int64_t listening_port = take_listening_port();
  if (at_address) parse_master_url(method, j);
  if (at_file) j.rendezvous_file = parse_file_url(method);
  if (in_etcd) {
    if (j.elastic && method == options.init_method)
      refuse(
          "ranks whose nodes come and go meet where tutti-run has them meet, not at '{}': leave init_method "
          "at env://, and set TUTTI_STORE to that text where tutti-run starts",
          method);
    j.etcd = method;
    j.tls_of_etcd = read_tls_of_etcd(method, options, std::to_string(j.rank));
  }
  if ((at_address || at_file || in_etcd) && j.alone)
    refuse(
        "init_method (or TUTTI_STORE) '{}' needs to know which rank this is: set init_options::rank and "
        "world_size, or "
        "RANK and WORLD_SIZE",
        method);
  if (at_address) j.records_at_once = most_records_of_rank_0;
  if (at_address || at_file || in_etcd) return j;
  read_master(found, j);
  if (!j.master_host.empty() && !j.elastic) j.records_at_once = most_records_of_rank_0;
  // An address other than the launcher's has another listener.
  j.store_listens = !j.master_host.empty() && j.master_port == listening_port;
  if (j.rank == 0 && !j.master_host.empty()) j.store_fd = launchers_socket(j, store_fd);
  return j;
}

job resolve_at_store(const init_options& options) {
  job j;
  if (read_over_mpi(options))
    throw error(errc::not_supported,
                "the backend \"mpi\" has ranks of its own, which meet in no store: leave "
                "init_options::backend at \"native\", or call init without a store");
  read_common(options, j);
  j.at_store = true;
  j.records_at_once = INT_MAX;  // the store may go when there is a world
  if (options.rank >= 0 && options.world_size >= 0) {
    if (options.rank >= options.world_size)
      refuse("init_options::rank is {} of {}: ranks are 0 to {}", options.rank, options.world_size,
             options.world_size - 1);
    j.rank = options.rank;
    j.world_size = options.world_size;
  } else {
    const place found = place_of(options);
    take_place(found, j);
    j.job_id = found.job;
    if (j.alone)
      refuse(
          "init with a store needs to know which rank this is: set init_options::rank and world_size, or "
          "RANK and WORLD_SIZE");
  }
  j.tls = read_tls(options, std::to_string(j.rank));
  return j;
}

tls_identity launcher_tls() { return read_tls(init_options(), "launcher"); }
tls_identity launcher_tls_of_etcd(const std::string& url) {
  return read_tls_of_etcd(url, init_options(), "launcher");
}

job local_job(int rank, int ranks, const init_options& options) {
  job j;
  check_backend(options.backend, "init_options::backend");
  if (options.backend == "mpi")
    throw error(errc::not_supported,
                "the ranks of run_local are threads of one process, those of MPI are processes: leave "
                "init_options::backend at \"native\", or use tutti::run under mpirun");
  read_common(options, j);
  j.rank = rank;
  j.records_at_once = INT_MAX;
  j.tls = read_tls(options, std::to_string(j.rank));
  j.world_size = ranks;
  j.alone = ranks == 1;
  return j;
}

}  // namespace bootstrap
}  // namespace tutti
