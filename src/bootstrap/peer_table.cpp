// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/peer_table.hpp"

#include "base/cores.hpp"
#include "base/env.hpp"
#include "base/process_state.hpp"
#include "base/throw_error.hpp"

#include <unistd.h>

#include <boost/asio/ip/host_name.hpp>
#include <fstream>
#include <tutti/error.hpp>

namespace tutti::bootstrap {
namespace {

// They change with the form of what follows; if that is an endpoint_record, so does elastic_store's.
constexpr std::string_view record_head = "peer6";
constexpr std::string_view table_head = "world4";
constexpr const char* a_record = "a rank's endpoint record";
constexpr const char* a_table = "a world's peer table";

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

}  // namespace

void throw_malformed(const char* what) {
  base::throw_error(errc::protocol,
                    "the store holds {} that this version of tutti does not write: build all ranks "
                    "with the same tutti, and let no other program use the store",
                    what);
}

std::string encode_endpoint_record(const core::endpoint_record& record) {
  return base::to_bytes(std::string(record_head)) + base::to_bytes(record);
}

std::vector<core::endpoint_record> decode_endpoint_records(std::string_view bytes) try {
  std::vector<core::endpoint_record> records;
  for (base::field_reader reader(bytes, ""); !reader.rest().empty();) {
    std::string head;
    reader.field(head);
    reader.field(records.emplace_back());
    if (head != record_head || records.back().rank < 0) throw error(errc::protocol, "");
  }
  return records;
} catch (const error&) {
  throw_malformed(a_record);
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

std::string encode_table(const peer_table& table) { return std::string(table_head) + base::to_bytes(table); }

peer_table decode_table(std::string_view bytes, int size) {
  if (!bytes.starts_with(table_head)) throw_malformed(a_table);
  auto table = from_store<peer_table>(bytes.substr(table_head.size()), a_table);
  if (table.records.size() != static_cast<std::size_t>(size)) throw_malformed(a_table);
  for (int rank = 0; rank < size; ++rank)
    if (table.records[static_cast<std::size_t>(rank)].rank != rank) throw_malformed(a_table);
  return table;
}

}  // namespace tutti::bootstrap
