// SPDX-License-Identifier: Apache-2.0
// side_channel: communicators that an extension makes without communication, what it keeps with one, and which ranks
// it has. Call these functions on the loop thread, of a communicator that is not empty and whose runtime still runs.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/extend/version.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::extend::inline v1 {

// Makes a communicator of the same ranks, beside `c`, for what an extension says among them. It is made from
// `c`, so that communicator::abort() of `c` ends it. Its operations have twice the timeout of `c`: what uses them ends by
// the timeout of `c`. `number` is 0 to 6, the same on all ranks, and used once for each communicator. `use`, such as
// "devices", is for error texts.
communicator side_channel(const communicator& c, int number, std::string_view use);
// The number of the one for the rts headers of messages that executors move. A receive that times out says whether its
// message waits there.
inline constexpr int rts_channel = 1;

// What an extension keeps with a communicator, or with its world, under a key of its own: the address of an object that
// lives as long as the program. Null until it is set. Destroyed with the communicator, or the world.
std::shared_ptr<void>& attribute_of(const communicator& c, const void* key);
std::shared_ptr<void>& world_attribute_of(const communicator& c, const void* key);

// The ranks of the world that are the ranks 0, 1, ... of `c`.
const std::vector<int>& world_ranks_of(const communicator& c) noexcept;

// Where a rank runs. Empty and 0: a rank of another host, in a world of hundreds, that this rank has not connected to.
struct place {
  std::string host;
  std::int64_t pid = 0;
};
// Identifies a communicator among all that ever existed: the same on all its ranks, but for `rank`.
struct identity {
  std::uint64_t world = 0;         // random, different for every world
  std::uint32_t communicator = 0;  // number within the world
  std::string name;
  int rank = 0;
  std::vector<place> places = {};  // by rank
};
identity identity_of(const communicator& c);

// ---- communicators by a number that the ranks agree on by other means, such as a store ----

// Returns a number that no other call on any rank of this world returns. One rank draws it and tells the others.
std::uint32_t draw_number(const communicator& c);
// Makes communicator `number` of these ranks of `c`, which become its ranks 0, 1, ... Each of them calls it. It does not
// fail with `c`.
// Errors: throws errc::peer_left if one of the ranks has ended. errc::protocol for a number that was not drawn.
communicator make_numbered(const communicator& c, std::uint32_t number, std::string name,
                           const std::vector<int>& ranks);
// Makes communicator `number` of all ranks of `c`. It is made from `c`, as a side channel.
communicator duplicate_numbered(const communicator& c, std::uint32_t number, std::string name);

// The name that error texts use.
void set_name(const communicator& c, std::string name);
// The timeout of operations that are started from now on.
void set_timeout(const communicator& c, std::chrono::milliseconds timeout);

}  // namespace tutti::extend::inline v1
