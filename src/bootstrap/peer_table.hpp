// SPDX-License-Identifier: Apache-2.0
// peer_table: what ranks publish about themselves in a store, as bytes with a version in front.
#pragma once

#include "base/fields.hpp"
#include "core/world_info.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <vector>

namespace tutti::bootstrap {

// Describes this process, without addresses. TUTTI_HOST_ID simulates another host: ranks whose values differ
// do not share memory.
core::endpoint_record local_endpoint_record(int rank);
std::string encode_endpoint_record(const core::endpoint_record& record);
// All endpoint records that encode_endpoint_record() made, in order. Throws errc::protocol for anything else.
std::vector<core::endpoint_record> decode_endpoint_records(std::string_view bytes);

// What each rank of a world learns of all ranks: the world's id, on which host each rank is, of which kind it is, and in a
// small world the endpoint records of all ranks, in order. In a large one they are asked for.
struct peer_table {
  std::uint64_t id = 0;  // 0: no world
  std::vector<core::host_map::run> hosts = {};
  std::vector<core::endpoint_record> kinds = {};
  std::vector<core::peer_records::kind_run> kind_of = {};
  std::vector<core::endpoint_record> records = {};

  bool is_complete() const noexcept { return !records.empty(); }
};
// Of these ranks, in order. It has the records if there are `most_records` at most.
peer_table make_table(std::uint64_t id, std::vector<core::endpoint_record> records, int most_records);
std::string encode_table(const peer_table& table);
// Throws errc::protocol unless it is a table of `size` ranks, each once.
peer_table decode_table(std::string_view bytes, int size);
// The same for a table that has been part of something else.
void check_table(const peer_table& table, int size);

// The records of some ranks of a world, as they are asked for.
struct world_records {
  std::uint64_t world = 0;
  std::vector<core::endpoint_record> records = {};
};
std::string encode_records(const world_records& some);
// Throws errc::protocol for anything else.
world_records decode_records(std::string_view bytes);

// Throws errc::protocol for a value in a store that no rank writes; `what` names it.
[[noreturn]] void throw_malformed(const char* what);
// The value that base::to_bytes() made these bytes of. Throws errc::protocol for anything else.
template <class T>
T from_store(std::string_view bytes, const char* what) {
  try {
    return base::from_bytes<T>(bytes, "");
  } catch (const error&) {
    throw_malformed(what);
  }
}

}  // namespace tutti::bootstrap
