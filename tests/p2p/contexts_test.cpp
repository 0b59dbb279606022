// SPDX-License-Identifier: Apache-2.0
// Which communicators are open, and who of their members may still send.
#include "p2p/contexts.hpp"
#include "p2p/memory_links.hpp"

#include <doctest/doctest.h>
#include <string>

using namespace tutti;
using namespace tutti::test::memory_links;

namespace {

struct members final : p2p::context_owner {
  bool admit(int, std::uint32_t, const p2p::fingerprint&) noexcept override { return admits; }
  std::string mismatch_text(int, std::uint32_t, const p2p::fingerprint&,
                            const p2p::fingerprint&) const override {
    return {};
  }
  void failed_remotely(int, const p2p::failure_message&) noexcept override {}
  void peer_closed(int, errc, const std::string&) noexcept override {}
  std::string closed_text(int peer) const override { return "closed by " + std::to_string(peer); }
  bool has_member(int rank) const noexcept override { return rank < 3; }
  bool admits = true;
};

// Rank 0 of a world of 4; ranks 0 to 2 are members of the context.
struct fixture {
  fixture() { contexts.open(context, owner); }
  route routes;
  p2p::peers peers{routes, 0, 4};
  p2p::contexts contexts{peers};
  members owner;
};

}  // namespace

TEST_CASE("contexts: a context is new, open or closed") {
  fixture f;
  CHECK(f.contexts.owner_of(context) == &f.owner);
  CHECK_FALSE(f.contexts.was_closed(context));
  f.contexts.close(context);
  CHECK(f.contexts.owner_of(context) == nullptr);
  CHECK(f.contexts.was_closed(context));
  CHECK_FALSE(f.contexts.was_closed(context + 2));
  f.contexts.close(context + 2);  // never opened, and never will be
  CHECK(f.contexts.was_closed(context + 2));
  f.contexts.open(context, f.owner);  // the number is used again
  CHECK_FALSE(f.contexts.was_closed(context));
}

TEST_CASE("contexts: a member that closes the context is gone there, and only there") {
  fixture f;
  members other;
  f.contexts.open(context + 1, other);
  CHECK(f.contexts.close_by(context, 1));
  CHECK_FALSE(f.contexts.close_by(context, 1));
  CHECK_FALSE(f.contexts.close_by(context + 5, 1));  // not open
  CHECK(f.contexts.any_closed_by_peers());
  CHECK(f.contexts.gone(context, 1));
  CHECK_FALSE(f.contexts.gone(context, 2));
  CHECK_FALSE(f.contexts.gone(context + 1, 1));
  CHECK(f.contexts.gone_source(context, 1) == 1);
  CHECK(f.contexts.gone_source(context, any_source) == -1);  // rank 2 may send
  CHECK(f.contexts.departure_of(context, 1).code == errc::peer_left);
  CHECK(f.contexts.departure_of(context, 1).text == "closed by 1");
  f.contexts.close(context);
  CHECK_FALSE(f.contexts.any_closed_by_peers());
}

TEST_CASE("contexts: a receive from any source waits for nobody when all other members have gone") {
  fixture f;
  f.contexts.close_by(context, 1);
  CHECK_FALSE(f.contexts.nobody_left(context));
  CHECK(f.peers.close(2, errc::peer_left, "rank 2 has left"));
  CHECK(f.contexts.nobody_left(context));  // rank 3 is no member
  CHECK(f.contexts.gone_source(context, any_source) == 2);
  CHECK(f.contexts.departure_of(context, 2).text == "rank 2 has left");
  f.peers[0].in_touch = true;  // this rank sends to itself
  CHECK_FALSE(f.contexts.nobody_left(context));
}

TEST_CASE("contexts: one receive from any source reports a failed member") {
  fixture f;
  f.peers.close(1, errc::peer_failed, "rank 1 has died");
  f.contexts.report_failed(context, 1);
  CHECK(f.contexts.gone_source(context, any_source) == 1);
  CHECK(f.contexts.gone_source(context, any_source) == -1);
}

TEST_CASE("contexts: so does the first one in a context that was opened after the death") {
  fixture f;
  f.peers.close(1, errc::peer_failed, "rank 1 has died");
  f.peers.close(3, errc::peer_failed, "rank 3, no member, has died");
  f.contexts.open(context + 2, f.owner);
  CHECK(f.contexts.gone_source(context + 2, any_source) == 1);
  CHECK(f.contexts.gone_source(context + 2, any_source) == -1);
}

TEST_CASE("contexts: the owner judges frames of collectives, and no others") {
  fixture f;
  f.owner.admits = false;
  frame head;
  head.context = context;
  CHECK(f.contexts.admits(1, head));
  head.fingerprint[0] = std::byte{1};
  CHECK_FALSE(f.contexts.admits(1, head));
  head.context = context + 1;  // not open: judged when it is
  CHECK(f.contexts.admits(1, head));
}
