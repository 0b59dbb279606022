// SPDX-License-Identifier: Apache-2.0
// The limits that must fit each other across layers, and what must hold between them. Sizes are in bytes. Each layer
// sees its own by a using-directive. Limits that concern one file only stand there.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti::limits {

// No buffer is longer: there is not so much memory.
inline constexpr std::uint64_t longest_buffer_bytes = std::uint64_t{1} << 48;

// What a link moves in one go before the loop gets its turn: bounds the delay of everything else.
inline constexpr std::size_t bytes_per_turn = std::size_t{1024} * 1024;

namespace messages {

// The cost of a message in the window of eager ones, besides its bytes: its node.
inline constexpr std::uint64_t node_cost = 256;
// Limit of what one peer may have sent eagerly without credit; bounds the memory of unexpected messages. Credit comes
// back for a ring's piece at a time. It comes behind the data that the peer sends meanwhile: a ring that has eight
// pieces on their way needs as much again until their credit is here.
inline constexpr std::uint64_t credit_at_once = 256 * 1024 + node_cost;
inline constexpr std::uint64_t eager_window = 16 * credit_at_once;
// Limits of what else one peer may make this rank keep. An honest peer reaches neither unless its program starts
// that many sends before any of them is received, or this rank answers so much while that peer reads nothing.
inline constexpr std::size_t most_waiting_messages = std::size_t{1} << 20;
inline constexpr std::size_t most_control_bytes = std::size_t{256} << 20;

}  // namespace messages

namespace tcp {

inline constexpr std::size_t header_bytes = 64;
inline constexpr std::size_t fields_bytes = 48;  // of those, the frame's own
inline constexpr std::size_t eager_limit_bytes = std::size_t{256} * 1024;
// Longer data frames leave as several, between which other frames may pass.
inline constexpr std::size_t slice_bytes = std::size_t{256} * 1024;
// The most that one call of the kernel gets. With one more slice, sender and receiver of a 1 MiB message on
// loopback keep each other waiting: 165-200 us, against 131-150 (perf/NOTES.md).
inline constexpr std::size_t bytes_per_call = 3 * slice_bytes;
inline constexpr std::size_t fail_text_limit_bytes = std::size_t{64} * 1024;
// Names each rank of a world twice at most, in 4 bytes.
inline constexpr std::size_t agree_limit_bytes = std::size_t{1024} * 1024;

}  // namespace tcp

namespace shm {

inline constexpr std::size_t page_bytes = 4096;
inline constexpr std::size_t line_bytes = 64;
inline constexpr std::size_t lines_per_channel = 128;
inline constexpr std::size_t slice_bytes = 64 * 1024;  // at most, of a long message in the ring
inline constexpr std::size_t least_slice_bytes = 16 * 1024;
inline constexpr std::size_t least_ring_bytes = 4 * slice_bytes;
inline constexpr std::size_t eager_limit_bytes = 64 * 1024;
// Longer eager messages leave in parts: the reader copies one out while the next is copied in. In a burst the reader
// is busy with the message before, so only those longer than the second limit do.
inline constexpr std::size_t whole_bytes = 4 * 1024;
inline constexpr std::size_t whole_in_burst_bytes = 8 * 1024;
inline constexpr std::size_t least_part_bytes = 4 * 1024, part_limit_bytes = 16 * 1024;
// Longer messages are read by the receiver in the sender's memory, if that can be mapped.
inline constexpr std::size_t copied_twice_bytes = 4 * 1024;
inline constexpr std::size_t direct_slots = 64;
// Copied of such a message, or in place of a window, before the loop gets its turn.
inline constexpr std::size_t direct_slice_bytes = 256 * 1024;

}  // namespace shm

namespace ucx {

// In front of each frame: the key of the direction, the sender's rank, the frame's number, its kind and fields. UCX
// writes a message of up to 92 bytes into its queue in shared memory at once; a longer one takes it twice as long.
inline constexpr std::size_t envelope_bytes = 16 + 4 + 4 + 4 + tcp::fields_bytes;
// UCX sends up to 8 KiB in one piece. Longer messages would come in parts, which the receiver allocates memory for.
inline constexpr std::size_t eager_limit_bytes = std::size_t{8} * 1024 - envelope_bytes;
// The receiver pulls slices from the sender's memory. So many of a link are on the way at a time, which is what has to
// end when a transfer ends early.
inline constexpr std::size_t slice_bytes = std::size_t{1024} * 1024;
inline constexpr std::size_t slices_in_flight = 4;
// Short frames that UCX has not sent yet, to one peer.
inline constexpr std::size_t most_frames_in_flight = 128;

}  // namespace ucx

namespace mpi {

// The longest message whose parcels are kept for reuse.
inline constexpr std::size_t parcel_bytes = std::size_t{128} * 1024 + tcp::header_bytes;

}  // namespace mpi

namespace collectives {

// Of one host more ranks have collective segments in two levels. Measured on 16 cores: with 16 ranks one level is
// ahead of the rivals' ways (all_reduce of 4 B 1.4 us).
inline constexpr int flat_ranks = 16;

// A ring passes pieces that fit in a core's cache. For `pieces_ahead` of them receives are posted, and as many leave
// before the one whose turn it is has come: by rendezvous a piece takes three times the delay of the link.
inline constexpr std::size_t piece_bytes = std::size_t{256} * 1024;
inline constexpr std::size_t pieces_ahead = 8;

// In a collective segment, of one rank's data. Shorter ones are staged, because agreeing on reading in place costs a
// second wait.
inline constexpr std::size_t least_direct = 128 * 1024;
// If all ranks write and then read, rounds gain nothing while the data stay in the caches. If one rank writes
// and the others read, the limit is lower, because they would start late.
inline constexpr std::size_t exchange_limit = 128 * 1024;
inline constexpr std::size_t one_piece_limit = 32 * 1024;
inline constexpr std::size_t own_blocks_limit = least_direct / 2;
// Of pieces of longer data, in rounds.
inline constexpr std::size_t smallest_piece = 16 * 1024;
inline constexpr std::size_t largest_piece = 128 * 1024;

}  // namespace collectives

// An eager message of any transport has room in an unused window, twice over: one more may leave while credit is owed.
static_assert(2 * (tcp::eager_limit_bytes + messages::node_cost) <= messages::eager_window);
static_assert(2 * (shm::eager_limit_bytes + messages::node_cost) <= messages::eager_window);
static_assert(2 * (ucx::eager_limit_bytes + messages::node_cost) <= messages::eager_window);
// A slice leaves in one call and one turn.
static_assert(tcp::slice_bytes <= tcp::bytes_per_call && tcp::bytes_per_call <= bytes_per_turn);
static_assert(tcp::eager_limit_bytes <= tcp::slice_bytes);
static_assert(shm::slice_bytes <= bytes_per_turn && shm::direct_slice_bytes <= bytes_per_turn);
static_assert(tcp::agree_limit_bytes <= messages::most_control_bytes);
// Positions in channels are taken modulo these. A ring has room for an eager message, or two slices, wherever it ends.
static_assert(std::has_single_bit(shm::lines_per_channel) && std::has_single_bit(shm::least_ring_bytes));
static_assert(2 * shm::eager_limit_bytes <= shm::least_ring_bytes);
static_assert(2 * shm::slice_bytes <= shm::least_ring_bytes && shm::least_slice_bytes <= shm::slice_bytes);
// All parts of an eager message have lines.
static_assert(shm::eager_limit_bytes / shm::part_limit_bytes < shm::lines_per_channel);
static_assert(shm::least_part_bytes <= shm::part_limit_bytes &&
              shm::whole_bytes <= shm::whole_in_burst_bytes);
static_assert(shm::direct_slots <= 256, "the number of a slot takes the lowest byte of a name");
// Pieces of a ring go eagerly; all that leave ahead, and those whose credit is on its way, fit in a window.
static_assert(collectives::piece_bytes <= tcp::eager_limit_bytes);
static_assert(collectives::piece_bytes + messages::node_cost == messages::credit_at_once);
static_assert(2 * collectives::pieces_ahead * messages::credit_at_once <= messages::eager_window);
static_assert(collectives::one_piece_limit <= collectives::own_blocks_limit &&
              collectives::own_blocks_limit <= collectives::least_direct);
static_assert(collectives::smallest_piece <= collectives::largest_piece);

}  // namespace tutti::limits
