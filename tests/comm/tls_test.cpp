// SPDX-License-Identifier: Apache-2.0
// TLS does not change any result: messages of all lengths, collectives, cancellation, leaving.
#include "support/skip.hpp"

#include <doctest/doctest.h>

#ifdef TUTTI_HAVE_TLS

#include "support/certificates.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"

#include <algorithm>
#include <tutti/counters.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

init_options secured() {
  init_options o = over("tcp");
  o.secret = "s";
  o.tls = true;
  return o;
}

task<> exchange(communicator world, std::size_t bytes) {
  const int other = 1 - world.rank();
  const std::vector<std::byte> mine = filled(bytes, static_cast<std::uint64_t>(world.rank()) * 1000 + bytes);
  std::vector<std::byte> theirs(bytes);
  request sending = world.isend(mine, other);
  co_await world.recv(theirs, other);
  co_await sending;
  TUTTI_EXPECT(theirs == filled(bytes, static_cast<std::uint64_t>(other) * 1000 + bytes));
}

task<> program(communicator world) {
  if (world.rank() < 2)
    for (const std::size_t bytes : {0UL, 1UL, 7UL, 4096UL, 65'536UL, 65'537UL, 300'000UL, 5'000'000UL})
      co_await exchange(world, bytes);
  for (const std::size_t count : {1UL, 1000UL, 300'000UL}) {
    std::vector<float> x(count, static_cast<float>(world.rank() + 1));
    co_await world.all_reduce(x, sum);
    TUTTI_EXPECT(x.front() == 10.0F && x.back() == 10.0F);
    std::vector<float> all(count * 4);
    co_await world.all_gather(x, all);
    TUTTI_EXPECT(all.back() == 10.0F);
    co_await world.broadcast(x, 2);
  }
  co_await world.barrier();
}

// A receive without a message ends at once, and the connection stays open.
task<> cancel_and_go_on(communicator world) {
  // Cancelled sends may have sent their rts, which must not match the receives of any tag below.
  const communicator another = co_await world.duplicate();
  co_await world.barrier();
  if (world.rank() == 0) {
    int never = 0;
    request waiting = world.irecv(never, 1, 7);
    waiting.cancel();
    const failure f = co_await failure_awaiting(&waiting);
    TUTTI_EXPECT(f.code == errc::cancelled);
  } else {
    std::vector<std::byte> large(std::size_t{4} << 20);
    request sending = world.isend(large, 0, 8);
    sending.cancel();
    const failure f = co_await failure_awaiting(&sending);
    TUTTI_EXPECT(f.code == errc::cancelled || f.code == errc::success);
  }
  co_await exchange(another, 100'000);
}

}  // namespace

TEST_CASE("tls: messages of all lengths and collectives") {
  TUTTI_NEEDS_TLS();
  run_local(4, secured(), program);
}

TEST_CASE("tls: with checksums as well") {
  TUTTI_NEEDS_TLS();
  init_options o = secured();
  o.checksums = true;
  run_local(4, o, program);
}

TEST_CASE("tls: a cancelled operation ends, and the connection stays open") {
  TUTTI_NEEDS_TLS();
  run_local(2, secured(), cancel_and_go_on);
}

TEST_CASE("tls: certificates of each rank, by files") {
  TUTTI_NEEDS_TLS();
  const scratch_directory files;
  const authority ours(files.path().string(), "authority");
  for (int rank = 0; rank < 4; ++rank)
    ours.issue("rank" + std::to_string(rank), "URI:tutti:rank:" + std::to_string(rank));
  init_options o = secured();
  o.tls_certificate = (files.path() / "rank%r.pem").string();
  o.tls_key = (files.path() / "rank%r.key").string();
  o.tls_authority = ours.file();
  run_local(4, o, program);

  // Rank 3 presents a certificate for rank 2.
  ours.issue("rank3", "URI:tutti:rank:2");
  o.timeout = 10s;
  const auto failures = failures_of(4, o, program);
  CHECK(std::any_of(failures.begin(), failures.end(), [](const failure& f) {
    return f.code == errc::unauthorized || f.says("for other ranks");
  }));
}

#else

TEST_CASE("tls: sessions, certificates, and a man in the middle") {
  TUTTI_SKIP("built without OpenSSL; for it: apt-get install libssl-dev");
}

#endif
