// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/peer_table.hpp"

#include "base/env.hpp"
#include "base/hmac.hpp"
#include "base/little_endian.hpp"
#include "base/throw_error.hpp"
#include "core/spin_policy.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <tutti/error.hpp>

namespace tutti::bootstrap {
namespace {

constexpr std::string_view record_head = "peer3";
constexpr std::string_view table_head = "world1";
constexpr std::string_view empty_word = "~";
constexpr std::size_t longest_word = 4096;
constexpr std::size_t most_endpoints = 64;

[[noreturn]] void malformed(const char* what) {
  base::throw_error(errc::protocol,
                    "the store holds {} that this version of tutti does not write: build all ranks "
                    "with the same tutti, and let no other program use the store",
                    what);
}

core::endpoint_record decode_endpoint_record(std::string_view line) {
  word_reader words(line, "a rank's endpoint record");
  words.expect(record_head);
  core::endpoint_record record;
  record.rank = words.number<int>();
  record.number = words.number<int>();
  record.pid = words.number<std::int64_t>();
  record.pid_space = words.number<std::uint64_t>();
  record.host = words.word();
  record.host_id = words.word();
  record.shm_address = words.word();
  record.cpus = words.word();
  const auto endpoints = words.number<std::size_t>();
  if (record.rank < 0 || endpoints > most_endpoints) words.refuse();
  for (std::size_t i = 0; i < endpoints; ++i) record.tcp_endpoints.push_back(words.word());
  words.expect_end();
  return record;
}

bool plain(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-_.:,/[]@").find(c) != std::string_view::npos;
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string encode_word(std::string_view word) {
  if (word.size() > longest_word)
    base::throw_error(errc::invalid_argument, "'{}…' is too long to be published ({} bytes; {} are allowed)",
                      word.substr(0, 40), word.size(), longest_word);
  if (word.empty()) return std::string(empty_word);
  std::string text;
  for (const char c : word) {
    if (plain(c)) {
      text.push_back(c);
    } else {
      text += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return text;
}

std::string decode_word(std::string_view text) {
  if (text.size() > 3 * longest_word || text.empty()) malformed("a word");
  if (text == empty_word) return {};
  std::string word;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!plain(text[i])) malformed("a word");
      word.push_back(text[i]);
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) malformed("a word");
    word.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return word;
}

std::string_view word_reader::next() {
  if (!more_) refuse();
  const std::size_t end = rest_.find(' ');
  const std::string_view piece = rest_.substr(0, end);
  more_ = end != std::string_view::npos;
  rest_.remove_prefix(more_ ? end + 1 : rest_.size());
  return piece;
}

void word_reader::refuse() const { malformed(what_); }

std::string encode_endpoint_record(const core::endpoint_record& record) {
  if (record.tcp_endpoints.size() > most_endpoints)
    base::throw_error(errc::invalid_argument, "rank {} has {} addresses to publish; {} are allowed",
                      record.rank, record.tcp_endpoints.size(), most_endpoints);
  std::string line =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", record_head, record.rank, record.number, record.pid,
                  record.pid_space, encode_word(record.host), encode_word(record.host_id),
                  encode_word(record.shm_address), encode_word(record.cpus), record.tcp_endpoints.size());
  for (const std::string& endpoint : record.tcp_endpoints) line += ' ' + encode_word(endpoint);
  return line + '\n';
}

std::vector<core::endpoint_record> decode_endpoint_records(std::string_view text) {
  std::vector<core::endpoint_record> records;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) malformed("a rank's endpoint record");
    records.push_back(decode_endpoint_record(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  return records;
}

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

// Equal for processes that see each other's abstract sockets: one kernel, one network namespace.
// TUTTI_HOST_ID simulates another host. As a list by rank ("a,a,b,b") it simulates several hosts.
std::string pretended_host(int rank) {
  const auto said = base::env_string("TUTTI_HOST_ID");
  if (!said) return {};
  std::string_view rest = *said;
  if (rest.find(',') == rest.npos) return *said;
  for (; rank > 0 && rest.find(',') != rest.npos; --rank) rest.remove_prefix(rest.find(',') + 1);
  return std::string(rest.substr(0, rest.find(',')));
}

std::string own_host_identity(const std::string& host, int rank) {
  std::string kernel;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> kernel;
  if (kernel.empty()) kernel = host;
  struct stat space = {};
  const bool known = ::stat("/proc/self/ns/net", &space) == 0;
  return core::host_identity(kernel, known ? std::to_string(space.st_ino) : "0", pretended_host(rank));
}

std::uint64_t pid_space() {
  struct stat space = {};
  return ::stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

}  // namespace

core::endpoint_record local_endpoint_record(int rank) {
  core::endpoint_record record;
  record.rank = rank;
  record.number = rank;
  record.host = host_name();
  record.pid = ::getpid();
  record.pid_space = pid_space();
  record.host_id = own_host_identity(record.host, rank);
  record.cpus = core::cpu_mask();
  return record;
}

std::uint64_t random_world_id() {
  std::array<std::uint8_t, 8> random{};
  base::fill_random(random);
  return std::max<std::uint64_t>(1, base::get_little_endian<std::uint64_t>(random.data()));
}

std::string encode_table(const peer_table& table) {
  std::string text = fmt::format("{} {:x} {}\n", table_head, table.id, table.records.size());
  for (const core::endpoint_record& record : table.records) text += encode_endpoint_record(record);
  return text;
}

peer_table decode_table(std::string_view text, int size) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) malformed("a world's peer table");
  word_reader words(text.substr(0, end), "a world's peer table");
  words.expect(table_head);
  peer_table table;
  table.id = words.number<std::uint64_t>(16);
  const auto ranks = words.number<std::size_t>();
  words.expect_end();
  if (ranks != static_cast<std::size_t>(size)) words.refuse();
  table.records = decode_endpoint_records(text.substr(end + 1));
  if (table.records.size() != ranks) words.refuse();
  for (int rank = 0; rank < size; ++rank)
    if (table.records[static_cast<std::size_t>(rank)].rank != rank) words.refuse();
  return table;
}

}  // namespace tutti::bootstrap
