// SPDX-License-Identifier: Apache-2.0
// Entries of the flight recorder, as a model that runs in every way that weak memory allows: a reader in another process gets
// an entry whole, or not at all, while its rank writes another one in its place. communicator_entry is written and read so, too.
#include "support/weak_memory.hpp"

#include <doctest/doctest.h>
#include <string>

using namespace tutti::test::weak;

namespace {

constexpr auto relaxed = order::relaxed;

struct entry_orders {
  bool writer_clears = true, writer_fences = true;
  order writer_marks = order::release, reader_looks = order::acquire;
  bool reader_fences = true, reader_looks_again = true;
};
struct entry {
  word mark, first, second;
};

thread writes_entries(machine& m, entry e, entry_orders with) {
  for (value n = 1; n <= 2; ++n) {
    if (with.writer_clears) co_await m.store(e.mark, 0, relaxed);
    if (with.writer_fences) co_await m.fence(order::release);
    co_await m.store(e.first, n, relaxed);
    co_await m.store(e.second, n, relaxed);
    co_await m.store(e.mark, n, with.writer_marks);
  }
}
thread reads_entry(machine& m, entry e, entry_orders with) {
  const value mark = co_await m.load(e.mark, with.reader_looks);
  if (mark == 0) co_return;
  const value first = co_await m.load(e.first, relaxed);
  const value second = co_await m.load(e.second, relaxed);
  if (with.reader_fences) co_await m.fence(order::acquire);
  if (with.reader_looks_again) {
    const value now = co_await m.load(e.mark, relaxed);
    if (now != mark) co_return;
  }
  m.check(first == mark && second == mark, "half of another entry");
}
std::string entries(entry_orders with) {
  return explore([=](machine& m) {
           const entry e{m.make(0), m.make(0), m.make(0)};
           m.start(writes_entries(m, e, with));
           m.start(reads_entry(m, e, with));
         })
      .wrong;
}

}  // namespace

TEST_CASE("recorder weak memory: an entry is read whole or not at all") {
  CHECK(entries({}) == "");
  for (const entry_orders& mistake :
       {entry_orders{.writer_clears = false}, entry_orders{.writer_fences = false},
        entry_orders{.writer_marks = relaxed}, entry_orders{.reader_looks = relaxed},
        entry_orders{.reader_fences = false}, entry_orders{.reader_looks_again = false}})
    CHECK(entries(mistake) == "half of another entry");
}
