// SPDX-License-Identifier: Apache-2.0
#include "ops/arguments.hpp"
#include "ops/backend.hpp"

#include <fmt/format.h>

#include <memory>
#include <tutti/prepared.hpp>

namespace tutti::detail {
namespace {

[[noreturn]] void refuse(const call& what, const std::string& why) {
  throw error(errc::invalid_argument, fmt::format("prepare of {}: {}", name_of(what.kind), why));
}

}  // namespace

prepared_call* make_prepared(const call& what) {
  if (!what.comm) refuse(what, ops::empty_text);
  const family of = row_of(what.kind).of;
  if (of == family::set_up || of == family::repair)
    refuse(what, "each call makes a communicator; call it each time");
  if (const std::string wrong = ops::bad_argument(*what.comm, what); !wrong.empty())
    refuse(what, fmt::format("{} on {}, rank {}: {}", name_of(what.kind), what.comm->name(),
                             what.comm->rank(), wrong));
  auto made = std::make_unique<prepared_call>(what);
  if (of == family::collective) made->what.prepared = made.get();
  return made.release();
}

const call& call_of(const prepared_call& prepared) noexcept { return prepared.what; }

call agreement_on(prepared_call& prepared) noexcept {
  call what(operation_kind::prepare, prepared.what.comm, prepared.what.where);
  what.wanted = prepared.what.wanted;
  what.prepared = &prepared;
  return what;
}

void drop_prepared(prepared_call* prepared) noexcept {
  if (prepared->in_use) {
    prepared->dropped = true;
  } else {
    delete prepared;
  }
}

}  // namespace tutti::detail
