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
#include <tutti/error.hpp>

namespace tutti::bootstrap {
namespace {

// What an endpoint record and a table begin with, in every version of tutti. `form` ends with a number, which changes with
// the form of what follows; if that is an endpoint_record, so does elastic_store's.
struct stamp {
  std::string form;
  std::string version = TUTTI_VERSION;
};
const stamp of_record{"peer7"};
const stamp of_table{"world5"};

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
      "and let no "
      "other program use the store",
      what);
}
const std::string malformed_record = malformed_text("a rank's endpoint record");
const std::string malformed_table = malformed_text("a world's peer table");

void check_version(const std::string& theirs, const std::string& who) {
  if (theirs == TUTTI_VERSION) return;
  base::throw_error(errc::protocol,
                    "{} has tutti {}, and this process has tutti " TUTTI_VERSION
                    ": all ranks need the same version; `tutti-run --version` tells that of a node, and a "
                    "program has that of "
                    "the library it was built with",
                    who, theirs);
}

}  // namespace

void throw_malformed(const char* what) { throw error(errc::protocol, malformed_text(what)); }

std::string encode_endpoint_record(const core::endpoint_record& record) {
  return base::to_bytes(of_record) + base::to_bytes(record);
}

std::vector<core::endpoint_record> decode_endpoint_records(std::string_view bytes) {
  std::vector<core::endpoint_record> records;
  for (base::field_reader reader(bytes, malformed_record.c_str()); !reader.rest().empty();) {
    stamp theirs;
    int rank = -1;
    reader.field(theirs);
    base::field_reader(reader).field(rank);  // the first field of every form
    if (theirs.form.starts_with("peer") && theirs.version.size() < 40)
      check_version(theirs.version, fmt::format("rank {}", rank));
    reader.field(records.emplace_back());
    if (theirs.form != of_record.form || rank < 0) throw error(errc::protocol, malformed_record);
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

std::string encode_table(const peer_table& table) { return base::to_bytes(of_table) + base::to_bytes(table); }

peer_table decode_table(std::string_view bytes, int size) {
  base::field_reader reader(bytes, malformed_table.c_str());
  stamp theirs;
  peer_table table;
  reader.field(theirs);
  if (theirs.form.starts_with("world") && theirs.version.size() < 40)
    check_version(theirs.version, "the rank that made this world");
  reader.field(table);
  reader.end();
  bool complete = theirs.form == of_table.form && table.records.size() == static_cast<std::size_t>(size);
  for (int rank = 0; complete && rank < size; ++rank)
    complete = table.records[static_cast<std::size_t>(rank)].rank == rank;
  if (!complete) throw error(errc::protocol, malformed_table);
  return table;
}

}  // namespace tutti::bootstrap
