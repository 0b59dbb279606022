// SPDX-License-Identifier: Apache-2.0
#include "coll/conformance/worlds.hpp"

#include "comm/host_segments.hpp"
#include "comm/topology.hpp"
#include "support/instrumented.hpp"
#include "support/second_loop.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <malloc.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace tutti::test {
namespace {

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> all(1);
  for (const char c : list) {
    if (c == ',') {
      all.emplace_back();
    } else {
      all.back().push_back(c);
    }
  }
  return all;
}

// Thousands of vectors of megabytes come and go: freed memory stays, instead of being mapped and cleared again.
[[maybe_unused]] const bool keeps_memory =
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20) != 0 && ::mallopt(M_TRIM_THRESHOLD, 512 << 20) != 0;

std::string description_of(const attempt& what) {
  return std::string(coll::name_of(what.kind)) + " of " + std::to_string(what.count) + " " +
         std::string(what.elements) + " by " + tutti::name_of(what.with) + ", root " +
         std::to_string(what.root) + (what.in_place ? ", in place" : "") + ", on rank " +
         std::to_string(what.rank);
}

}  // namespace

coll::situation setting::situation_of(coll::operation_kind kind, bool even_blocks) const {
  coll::situation s;
  s.kind = kind;
  s.ranks = ranks;
  s.even_blocks = even_blocks;
  const std::vector<std::string> names = words(hosts);
  std::vector<int> by_rank;
  for (const std::string& name : names)
    by_rank.push_back(static_cast<int>(std::ranges::find(names, name) - names.begin()));
  if (hosts.empty()) by_rank.assign(static_cast<std::size_t>(ranks), 0);
  const comm::topology places(by_rank, 0);
  s.one_host = places.hosts() == 1;
  s.neighbours = transport == "shm";
  s.hierarchy = places.hierarchy();
  s.even_hosts = places.even;
  s.shared_memory = transport == "shm" && ranks > 1;
  s.one_segment = s.shared_memory && !two_levels && ranks <= comm::host_segments::most_flat_ranks();
  return s;
}

std::vector<algorithm> setting::algorithms(coll::operation_kind kind, bool even_blocks) const {
  const coll::situation here = situation_of(kind, even_blocks);
  std::vector<algorithm> all = {algorithm::automatic};
  for (const algorithm a : all_algorithms())
    if (coll::fits(a, here)) all.push_back(a);
  return all;
}

const std::vector<setting>& settings() {
  static const std::vector<setting> all = [] {
    std::vector<setting> made;
    if (const char* ranks = std::getenv("TUTTI_TEST_MPI_RANKS")) {
      const char* const hosts = std::getenv("TUTTI_HOST_ID");
      made.push_back({"mpi", std::atoi(ranks), hosts != nullptr ? hosts : ""});
      return made;
    }
    const bool few = instrumented || is_second_loop();
    for (const std::string& transport : transports)
      for (const int ranks : {1, 2, 3, 4, 5, 8})
        if (!few || ranks == 3 || ranks == 4) made.push_back({transport, ranks, ""});
    made.push_back({"shm", 5, "", true});  // groups of three and of two
    made.push_back({"mixed", 4, "a,a,b,b"});
    made.push_back({"mixed", 5, "a,b,a,c,b"});  // no neighbours on one host, uneven hosts
    if (few) return made;
    made.push_back({"shm", 8, "", true});
    made.push_back({"mixed", 3, "a,b,c"});
    made.push_back({"mixed", 8, "a,b,b,a,a,b,b,a"});
    return made;
  }();
  return all;
}

scoped_variable::scoped_variable(const char* name, const std::string& value) : name_(name) {
  if (const char* before = std::getenv(name)) {
    before_ = before;
    was_set_ = true;
  }
  if (value.empty()) {
    ::unsetenv(name);
  } else {
    ::setenv(name, value.c_str(), 1);
  }
}

scoped_variable::~scoped_variable() {
  if (was_set_) {
    ::setenv(name_, before_.c_str(), 1);
  } else {
    ::unsetenv(name_);
  }
}

std::string outside_address() {
  if (const char* chosen = std::getenv("TUTTI_ADDRESS")) return chosen;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, ::freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* const address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) return text.data();
  }
  return {};
}

init_options options_for(const setting& where) {
  init_options o;
  if (where.transport == "mpi") {
    o.backend = "mpi";
    o.timeout = patience;
    return o;
  }
  if (where.transport != "mixed") return over(where.transport);
  o.transports = {"shm", "tcp"};
  o.timeout = patience;
  o.secret = "known to these threads only";
  return o;
}

void run_over_mpi(init_options options, detail::any_main main) {
  runtime rt;
  if (detail::run_rank(rt, std::move(options), main) != 0)
    throw std::runtime_error("main has returned an error");
}

void expect_equal(std::span<const std::byte> got, std::span<const std::byte> wanted, const attempt& what) {
  if (got.size() == wanted.size() && (got.empty() || std::memcmp(got.data(), wanted.data(), got.size()) == 0))
    return;
  std::size_t at = 0;
  while (at < got.size() && at < wanted.size() && got[at] == wanted[at]) ++at;
  throw std::runtime_error(description_of(what) + ": differs from the serial answer at byte " +
                           std::to_string(at) + " of " + std::to_string(wanted.size()));
}

void field::expect_margins(const attempt& what) const {
  for (std::size_t i = 0; i < margin; ++i)
    if (memory_[i] != untouched || memory_[memory_.size() - 1 - i] != untouched)
      throw std::runtime_error(description_of(what) + ": wrote outside its buffer");
}

void add_around(std::vector<std::size_t>& counts, std::size_t total_bytes, std::size_t element_bytes) {
  const std::size_t at = total_bytes / element_bytes;
  if (at > 0) counts.push_back(at - 1);
  counts.push_back(at);
  counts.push_back(at + 1);
}

void tidy(std::vector<std::size_t>& counts) {
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
}

}  // namespace tutti::test
