// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/peer_table.hpp"

#include "base/fields.hpp"
#include "bootstrap/rendezvous.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tutti/error.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::bootstrap;

namespace {

core::endpoint_record sample(int rank) {
  core::endpoint_record record;
  record.rank = rank;
  record.number = rank + 7;
  record.host = std::string("a host\nwith \xff strange name\0 %41 ~", 33);
  record.pid = 1234567890123;
  record.pid_space = 4026531836;
  record.host_id = "~";
  record.shm_address = "tutti-\x01";
  record.tcp_endpoint = "[fe80::1]:4711";
  record.ucx_endpoint = "10.0.0.1:4712";
  record.cpus = "ff00";
  record.cache = "8";
  record.arrival = 0xfedcba9876543211;
  return record;
}

core::endpoint_record nobody() {
  core::endpoint_record record;
  record.rank = 0;
  return record;
}

void check_equal(const core::endpoint_record& a, const core::endpoint_record& b) {
  CHECK(a.rank == b.rank);
  CHECK(a.number == b.number);
  CHECK(a.host == b.host);
  CHECK(a.pid == b.pid);
  CHECK(a.pid_space == b.pid_space);
  CHECK(a.host_id == b.host_id);
  CHECK(a.shm_address == b.shm_address);
  CHECK(a.tcp_endpoint == b.tcp_endpoint);
  CHECK(a.ucx_endpoint == b.ucx_endpoint);
  CHECK(a.cpus == b.cpus);
  CHECK(a.cache == b.cache);
  CHECK(a.arrival == b.arrival);
}

}  // namespace

TEST_CASE("endpoint records survive the round trip with any contents") {
  const std::string bytes = encode_endpoint_record(sample(1)) + encode_endpoint_record(nobody());
  const auto records = decode_endpoint_records(bytes);
  REQUIRE(records.size() == 2);
  check_equal(records[0], sample(1));
  check_equal(records[1], nobody());
  CHECK(decode_endpoint_records("").empty());
  for (std::size_t length = 1; length < encode_endpoint_record(nobody()).size(); ++length)
    CHECK_THROWS_AS(decode_endpoint_records(bytes.substr(0, length)), error);
}

TEST_CASE("tables survive the round trip, and are complete") {
  peer_table table = make_table(0xfedcba9876543210, {sample(0), sample(1), sample(2)}, 3);
  const std::string text = encode_table(table);
  const peer_table back = decode_table(text, 3);
  CHECK(back.id == table.id);
  REQUIRE(back.records.size() == 3);
  for (int rank = 0; rank < 3; ++rank)
    check_equal(back.records[static_cast<std::size_t>(rank)], sample(rank));

  CHECK_THROWS_AS(decode_table(text, 2), error);
  CHECK_THROWS_AS(decode_table(text, 4), error);
  for (std::size_t length = 0; length < text.size(); ++length)
    CHECK_THROWS_AS(decode_table(text.substr(0, length), 3), error);
  table.records[2].rank = 1;  // twice
  CHECK_THROWS_AS(decode_table(encode_table(table), 3), error);
  CHECK_THROWS_AS(decode_table("world2" + text.substr(6), 3), error);
}

TEST_CASE(
    "the table of a large world says where ranks are, and which transports reach them, in a few bytes") {
  std::vector<core::endpoint_record> all;
  for (int rank = 0; rank < 4096; ++rank) {
    core::endpoint_record record = sample(rank);
    record.host_id = "kernel" + std::to_string(rank / 8) + ":net:user";
    record.tcp_endpoint = "10.0.0." + std::to_string(rank / 8 % 256) + ":" + std::to_string(5000 + rank);
    if (rank == 77) record.ucx_endpoint = "";
    all.push_back(record);
  }
  const std::string text = encode_table(make_table(1, all, 4095));
  CHECK(text.size() < 400);
  const core::world_info info = world_of({}, 4096, decode_table(text, 4096));
  CHECK(info.peers.size() == 0);
  CHECK(info.describe(9) == "rank 9");
  CHECK(info.hosts.hosts() == 512);
  for (const int rank : {0, 7, 8, 76, 77, 78, 4095}) {
    CHECK(info.hosts.host_of(rank) == rank / 8);
    const core::endpoint_record& kind = info.record(rank);
    CHECK(kind.rank == -1);
    CHECK(kind.shm_address.empty());
    CHECK_FALSE(core::is_loopback(kind.tcp_endpoint));
    CHECK(kind.ucx_endpoint.empty() == (rank == 77));
  }

  // Over loopback only the ranks of one machine reach each other.
  all[5].tcp_endpoint = "127.0.0.1:5005";
  const core::world_info mixed = world_of({}, 4096, make_table(1, all, 0));
  CHECK(core::is_loopback(mixed.record(5).tcp_endpoint));
  CHECK(core::share_loopback(mixed.record(5).host_id, all[5].host_id));
  CHECK_FALSE(core::share_loopback(mixed.record(5).host_id, all[8].host_id));

  peer_table wrong = make_table(1, all, 0);
  wrong.kind_of.back().kind = 100;
  CHECK_THROWS_AS(decode_table(encode_table(wrong), 4096), error);
  wrong = make_table(1, all, 0);
  wrong.hosts.front().step = 10;
  CHECK_THROWS_AS(decode_table(encode_table(wrong), 4096), error);
}

TEST_CASE("some records survive the round trip") {
  const std::string text = encode_records({7, {sample(3), sample(5)}});
  const world_records back = decode_records(text);
  CHECK(back.world == 7);
  REQUIRE(back.records.size() == 2);
  check_equal(back.records[1], sample(5));
  for (std::size_t length = 0; length < text.size(); ++length)
    CHECK_THROWS_AS(decode_records(text.substr(0, length)), error);
}

TEST_CASE("damaged text is an error, never a crash") {
  const std::string text = encode_table(make_table(1, {sample(0)}, 1));
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const char c : {' ', '\n', '%', '9', '-', '\0', '\xff'}) {
      std::string wrong = text;
      wrong[at] = c;
      std::size_t records = 1;
      std::error_code code = errc::protocol;
      try {
        records = std::max<std::size_t>(1, decode_table(wrong, 1).records.size());
      } catch (const error& e) {
        code = e.code();
      }
      CHECK(records == 1);
      CHECK(code == errc::protocol);
    }
}

TEST_CASE("the endpoint record of this process") {
  ::unsetenv("TUTTI_HOST_ID");
  const core::endpoint_record record = local_endpoint_record(3);
  CHECK(record.rank == 3);
  CHECK(record.number == 3);
  CHECK(record.pid == ::getpid());
  CHECK_FALSE(record.host.empty());
  CHECK(record.host_id == local_endpoint_record(0).host_id);
  cpu_set_t mask;
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  int cores = 0;
  for (const char digit : record.cpus)
    cores += __builtin_popcount(static_cast<unsigned>(std::stoi(std::string(1, digit), nullptr, 16)));
  CHECK(cores == CPU_COUNT(&mask));
  CHECK(record.cpus.find_first_not_of('0') == 0);

  ::setenv("TUTTI_HOST_ID", "b", 1);
  const core::endpoint_record pretended = local_endpoint_record(3);
  ::unsetenv("TUTTI_HOST_ID");
  CHECK(pretended.host_id != record.host_id);
  // The loopback interface belongs to the real host.
  CHECK(core::share_loopback(pretended.host_id, record.host_id));
  CHECK_FALSE(core::share_loopback("kernel:1", "kernel:2"));
  CHECK_FALSE(core::share_loopback("kernel:1:b", "other:1:b"));
  CHECK(core::share_pids(pretended, record));
  core::endpoint_record elsewhere = record;
  elsewhere.host_id = "another kernel:1";  // whose first namespaces have the same numbers
  CHECK_FALSE(core::share_pids(elsewhere, record));
  const std::string user = std::to_string(::geteuid());
  CHECK_MESSAGE(record.host_id.ends_with(":" + user), record.host_id);
}

TEST_CASE("ranks of two versions are told both") {
  const std::string version = base::to_bytes(std::string(TUTTI_VERSION));
  const auto of_another = [&](std::string encoded) {
    return encoded.replace(encoded.find(version), version.size(), base::to_bytes(std::string("9.8.7")));
  };
  const auto said = [](auto decodes) {
    try {
      decodes();
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  const std::string records = of_another(encode_endpoint_record(sample(3)));
  std::string text = said([&] { decode_endpoint_records(encode_endpoint_record(nobody()) + records); });
  CHECK_MESSAGE(text.starts_with("rank 3 has tutti 9.8.7, and this process has tutti " TUTTI_VERSION), text);
  // Whatever form that one's record has.
  text = said([&] { decode_endpoint_records(records.substr(0, records.size() - 10)); });
  CHECK_MESSAGE(text.starts_with("rank 3 has tutti 9.8.7"), text);

  const std::string table = of_another(encode_table(make_table(7, {sample(0)}, 1)));
  text = said([&] { decode_table(table, 1); });
  CHECK_MESSAGE(text.starts_with("the rank that made this world has tutti 9.8.7"), text);
  text = said([&] { decode_records(of_another(encode_records({7, {sample(0)}}))); });
  CHECK_MESSAGE(text.starts_with("the process that made this world has tutti 9.8.7"), text);
}
