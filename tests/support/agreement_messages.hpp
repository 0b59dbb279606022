// SPDX-License-Identifier: Apache-2.0
// What members of a failed communicator tell each other, as comm::agreement encodes it: for ranks that lie.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tutti::test::agreed {

using list = std::vector<std::int32_t>;
struct joined {
  std::int32_t first, last;
  list lost;
};
struct settled {
  std::int32_t by;
  std::uint32_t id;
  list left_out;
  list failed;
};
struct join {
  std::int32_t first;
  bool whole;
  std::vector<joined> members;
  list absent;
  std::vector<settled> heard;
};
struct invite {};
struct refused {
  std::uint16_t why;
  std::string text;
};
struct give_up {
  std::uint16_t why;
  std::string text;
};
struct absent {};
struct failure_notice {
  std::int32_t dead;
  bool with_its_host;
};
struct astray {
  std::int32_t first;
};
using message = std::variant<join, invite, settled, refused, give_up, absent, astray, failure_notice>;

}  // namespace tutti::test::agreed
