// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/cards.hpp"

#include "bootstrap/rendezvous.hpp"
#include "core/host_identity.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tutti/error.hpp>

using namespace tutti;
using namespace tutti::bootstrap;

namespace {

core::peer_card sample(int rank) {
  core::peer_card card;
  card.rank = rank;
  card.host = "a host\nwith \xff strange name %41 ~";
  card.pid = 1234567890123;
  card.pid_space = 4026531836;
  card.host_id = "~";
  card.shm_address = "tutti-\x01";
  card.tcp_endpoints = {"10.0.0.1:4711", "[fe80::1]:4711", ""};
  card.cpus = "ff00";
  return card;
}

core::peer_card nobody() {
  core::peer_card card;
  card.rank = 0;
  return card;
}

void check_equal(const core::peer_card& a, const core::peer_card& b) {
  CHECK(a.rank == b.rank);
  CHECK(a.host == b.host);
  CHECK(a.pid == b.pid);
  CHECK(a.pid_space == b.pid_space);
  CHECK(a.host_id == b.host_id);
  CHECK(a.shm_address == b.shm_address);
  CHECK(a.tcp_endpoints == b.tcp_endpoints);
  CHECK(a.cpus == b.cpus);
}

}  // namespace

TEST_CASE("cards come back as they were, whatever they hold") {
  const std::string lines = encode_card(sample(1)) + encode_card(nobody());
  const auto cards = decode_cards(lines);
  REQUIRE(cards.size() == 2);
  check_equal(cards[0], sample(1));
  check_equal(cards[1], nobody());
  CHECK(decode_cards("").empty());
}

TEST_CASE("words come back as they were") {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (const std::string& word :
       {std::string(), std::string("~"), std::string("%"), std::string("%41"), all}) {
    const std::string text = encode_word(word);
    CHECK(text.find_first_of(" \n") == std::string::npos);
    CHECK(decode_word(text) == word);
  }
  for (const char* wrong : {"", "%", "%4", "%4g", "%ff", "a b", "\n", "a~"})
    CHECK_THROWS_AS(decode_word(wrong), error);
  CHECK_THROWS_AS(encode_word(std::string(5000, 'x')), error);
}

TEST_CASE("tables come back as they were, and only whole") {
  world_table table;
  table.id = 0xfedcba9876543210;
  for (int rank = 0; rank < 3; ++rank) table.cards.push_back(sample(rank));
  const std::string text = encode_table(table);
  const world_table back = decode_table(text, 3);
  CHECK(back.id == table.id);
  REQUIRE(back.cards.size() == 3);
  for (int rank = 0; rank < 3; ++rank) check_equal(back.cards[static_cast<std::size_t>(rank)], sample(rank));

  CHECK_THROWS_AS(decode_table(text, 2), error);
  CHECK_THROWS_AS(decode_table(text, 4), error);
  for (std::size_t length = 0; length < text.size(); ++length)
    CHECK_THROWS_AS(decode_table(text.substr(0, length), 3), error);
  table.cards[2].rank = 1;  // twice
  CHECK_THROWS_AS(decode_table(encode_table(table), 3), error);
  CHECK_THROWS_AS(decode_table("world2" + text.substr(6), 3), error);
}

TEST_CASE("damaged text is an error, never a crash") {
  world_table table;
  table.id = 1;
  table.cards.push_back(sample(0));
  const std::string text = encode_table(table);
  for (std::size_t at = 0; at < text.size(); ++at)
    for (const char c : {' ', '\n', '%', '9', '-', '\0', '\xff'}) {
      std::string wrong = text;
      wrong[at] = c;
      std::size_t cards = 1;
      std::error_code code = errc::protocol;
      try {
        cards = decode_table(wrong, 1).cards.size();
      } catch (const error& e) {
        code = e.code();
      }
      CHECK(cards == 1);
      CHECK(code == errc::protocol);
    }
}

TEST_CASE("the card of this process") {
  ::unsetenv("TUTTI_HOST_ID");
  const core::peer_card card = local_card(3);
  CHECK(card.rank == 3);
  CHECK(card.pid == ::getpid());
  CHECK_FALSE(card.host.empty());
  CHECK(card.host_id == local_card(0).host_id);
  cpu_set_t mask;
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  int cores = 0;
  for (const char digit : card.cpus)
    cores += __builtin_popcount(static_cast<unsigned>(std::stoi(std::string(1, digit), nullptr, 16)));
  CHECK(cores == CPU_COUNT(&mask));
  CHECK(card.cpus.find_first_not_of('0') == 0);

  ::setenv("TUTTI_HOST_ID", "b", 1);
  const core::peer_card pretended = local_card(3);
  ::unsetenv("TUTTI_HOST_ID");
  CHECK(pretended.host_id != card.host_id);
  // The loopback interface is that of the real host.
  CHECK(core::share_loopback(pretended.host_id, card.host_id));
  CHECK_FALSE(core::share_loopback("kernel:1", "kernel:2"));
  CHECK_FALSE(core::share_loopback("kernel:1:b", "other:1:b"));
}
