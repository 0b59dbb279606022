// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/peer_table.hpp"

#include "base/cores.hpp"
#include "base/env.hpp"
#include "base/process_state.hpp"
#include "base/throw_error.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/ip/host_name.hpp>
#include <fstream>
#include <map>
#include <stdexcept>
#include <tutti/error.hpp>
#include <unordered_map>
#include <utility>

namespace tutti::bootstrap {
namespace {

// What an endpoint record and a table begin with, in every version of tutti. `form` ends with a number, which changes with
// the form of what follows; if that is an endpoint_record, so do the others here and elastic_store's.
struct stamp {
  std::string form;
  std::string version = TUTTI_VERSION;
};
constexpr const char* record_form = "peer8";
constexpr const char* table_form = "world6";
constexpr const char* some_form = "records1";
constexpr const char* a_record = "a rank's endpoint record";
constexpr const char* a_table = "a world's peer table";
constexpr const char* some_records = "the records of some ranks";

// TUTTI_HOST_ID simulates another host. As a list by rank ("a,a,b,b") it simulates several hosts.
std::string pretended_host(int rank) {
  const auto said = base::env_string("TUTTI_HOST_ID");
  if (!said) return {};
  std::string_view rest = *said;
  for (; rank > 0 && rest.find(',') != rest.npos; --rank) rest.remove_prefix(rest.find(',') + 1);
  return std::string(rest.substr(0, rest.find(',')));
}

// This process's user outside of its user namespace: containers of one user have the same, whatever number each
// knows it by.
std::string user_of_host() {
  const auto inside = static_cast<std::uint64_t>(::geteuid());
  std::ifstream map("/proc/self/uid_map");
  for (std::uint64_t first = 0, outside = 0, count = 0; map >> first >> outside >> count;)
    if (inside >= first && inside - first < count) return std::to_string(outside + (inside - first));
  return std::to_string(inside);
}

std::string malformed_text(const char* what) {
  return fmt::format(
      "the store holds {} that this version of tutti does not write: build all ranks with the same tutti, "
      "and "
      "let no other program use the store",
      what);
}

// Throws errc::protocol, naming both versions, if another version of tutti has written what `theirs` begins: `kind`, of
// any form.
void check_version(const stamp& theirs, std::string_view kind, const std::string& who) {
  constexpr std::size_t longest = 40;
  if (!theirs.form.starts_with(kind) || theirs.version.size() > longest || theirs.version == TUTTI_VERSION)
    return;
  base::throw_error(
      errc::protocol,
      "{} has tutti {}, and this process has tutti " TUTTI_VERSION
      ": all ranks need the same version; `tutti-run --version` tells that of a node, and a program has "
      "that of the library it was built with",
      who, theirs.version);
}

// Without the port, and without what one loopback or network address differs from another.
std::string kind_of_endpoint(const std::string& endpoint) {
  if (endpoint.empty()) return {};
  return core::is_loopback(endpoint) ? "127.0.0.1:1" : "0.0.0.0:1";
}

// What decides which transports reach a rank of another host.
core::endpoint_record kind_of(const core::endpoint_record& of) {
  core::endpoint_record kind;
  kind.tcp_endpoint = kind_of_endpoint(of.tcp_endpoint);
  kind.ucx_endpoint = kind_of_endpoint(of.ucx_endpoint);
  // Only within its host does a loopback address mean this rank.
  if (core::is_loopback(kind.tcp_endpoint) || core::is_loopback(kind.ucx_endpoint))
    kind.host_id = of.host_id.substr(0, of.host_id.find(':', of.host_id.find(':') + 1)) + ':';
  return kind;
}

}  // namespace

void throw_malformed(const char* what) { throw error(errc::protocol, malformed_text(what)); }

std::string encode_endpoint_record(const core::endpoint_record& record) {
  return base::to_bytes(stamp{record_form}) + base::to_bytes(record);
}

std::vector<core::endpoint_record> decode_endpoint_records(std::string_view bytes) {
  const std::string malformed = malformed_text(a_record);
  std::vector<core::endpoint_record> records;
  for (base::field_reader reader(bytes, malformed.c_str()); !reader.rest().empty();) {
    stamp theirs;
    int rank = -1;
    reader.field(theirs);
    base::field_reader(reader).field(rank);  // the first field of every form
    check_version(theirs, "peer", fmt::format("rank {}", rank));
    reader.field(records.emplace_back());
    if (theirs.form != record_form || rank < 0) throw error(errc::protocol, malformed);
  }
  return records;
}

core::endpoint_record local_endpoint_record(int rank) {
  core::endpoint_record record;
  record.rank = rank;
  record.number = rank;
  boost::system::error_code failed;
  record.host = boost::asio::ip::host_name(failed);
  if (record.host.empty()) record.host = "unknown";
  record.pid = ::getpid();
  record.pid_space = base::namespace_of("pid");
  // Equal for processes that see each other's abstract sockets (one kernel, one network namespace) and trust each
  // other there (one user).
  std::string kernel;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> kernel;
  record.host_id =
      core::host_identity(kernel.empty() ? record.host : kernel, std::to_string(base::namespace_of("net")),
                          user_of_host(), pretended_host(rank));
  record.cpus = base::cpu_mask();
  record.cache = base::cache_of(record.cpus);
  return record;
}

peer_table make_table(std::uint64_t id, std::vector<core::endpoint_record> records, int most_records) {
  peer_table table;
  table.id = id;
  std::unordered_map<std::string_view, int> numbers;
  std::vector<int> hosts;
  std::map<std::string, int> kinds;
  for (const core::endpoint_record& each : records) {
    hosts.push_back(numbers.try_emplace(each.host_id, static_cast<int>(numbers.size())).first->second);
    core::endpoint_record kind = kind_of(each);
    const auto [at, is_new] = kinds.try_emplace(base::to_bytes(kind), static_cast<int>(kinds.size()));
    if (is_new) table.kinds.push_back(std::move(kind));
    if (table.kind_of.empty() || table.kind_of.back().kind != at->second)
      table.kind_of.push_back({0, at->second});
    ++table.kind_of.back().ranks;
  }
  table.hosts = core::host_map(hosts).runs();
  if (std::cmp_less_equal(records.size(), most_records)) table.records = std::move(records);
  return table;
}

std::string encode_table(const peer_table& table) {
  return base::to_bytes(stamp{table_form}) + base::to_bytes(table);
}

void check_table(const peer_table& table, int size) {
  bool good = table.records.empty() || std::cmp_equal(table.records.size(), size);
  for (int rank = 0; good && std::cmp_less(rank, table.records.size()); ++rank)
    good = table.records[static_cast<std::size_t>(rank)].rank == rank;
  std::int64_t ranks = 0;
  for (const auto& run : table.kind_of) {
    good = good && run.ranks > 0 && run.kind >= 0 && std::cmp_less(run.kind, table.kinds.size());
    ranks += run.ranks;
  }
  good = good && ranks == size;
  try {
    if (good) static_cast<void>(core::host_map(table.hosts, size));
  } catch (const std::invalid_argument&) {
    good = false;
  }
  if (!good) throw_malformed(a_table);
}

peer_table decode_table(std::string_view bytes, int size) {
  const std::string malformed = malformed_text(a_table);
  base::field_reader reader(bytes, malformed.c_str());
  stamp theirs;
  peer_table table;
  reader.field(theirs);
  check_version(theirs, "world", "the rank that made this world");
  reader.field(table);
  reader.end();
  if (theirs.form != table_form) throw error(errc::protocol, malformed);
  check_table(table, size);
  return table;
}

std::string encode_records(const world_records& some) {
  return base::to_bytes(stamp{some_form}) + base::to_bytes(some);
}

world_records decode_records(std::string_view bytes) {
  const std::string malformed = malformed_text(some_records);
  base::field_reader reader(bytes, malformed.c_str());
  stamp theirs;
  world_records some;
  reader.field(theirs);
  check_version(theirs, "records", "the process that made this world");
  reader.field(some);
  reader.end();
  if (theirs.form != some_form) throw error(errc::protocol, malformed);
  return some;
}

}  // namespace tutti::bootstrap
