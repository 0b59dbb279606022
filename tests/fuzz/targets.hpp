// SPDX-License-Identifier: Apache-2.0
// The fuzzing targets: all code that reads bytes of another process. A target accepts any bytes and aborts
// the program if an invariant breaks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

namespace tutti::fuzz {

using bytes = std::span<const std::uint8_t>;

void frame_header(bytes input);
void frame_stream(bytes input);
void handshake_accepting(bytes input);
void handshake_connecting(bytes input);
void launcher_messages(bytes input);
void shm_messages(bytes input);
void store_messages(bytes input);
void peer_table(bytes input);
void hostile_rank(bytes input);

struct target {
  std::string_view name;
  void (*run)(bytes input);
};
inline constexpr target targets[] = {
    {"frame_header", frame_header},
    {"frame_stream", frame_stream},
    {"handshake_accepting", handshake_accepting},
    {"handshake_connecting", handshake_connecting},
    {"launcher_messages", launcher_messages},
    {"shm_messages", shm_messages},
    {"store_messages", store_messages},
    {"peer_table", peer_table},
    {"hostile_rank", hostile_rank},
};

[[noreturn]] inline void fail(const char* what, int line) {
  std::fprintf(stderr, "invariant broken in line %d: %s\n", line, what);
  std::abort();
}
#define TUTTI_INVARIANT(condition)                               \
  do {                                                           \
    if (!(condition)) ::tutti::fuzz::fail(#condition, __LINE__); \
  } while (false)

// Takes values from the front of an input; zeros when it is used up.
class reader {
 public:
  explicit reader(bytes input) noexcept : rest_(input) {}
  bool empty() const noexcept { return rest_.empty(); }
  template <class T>
  T value() noexcept {
    T v{};
    const bytes from = take(sizeof v);
    if (!from.empty()) std::memcpy(&v, from.data(), from.size());
    return v;
  }
  // Takes `count` bytes, or all that are left.
  bytes take(std::size_t count) noexcept {
    const bytes taken = rest_.first(count < rest_.size() ? count : rest_.size());
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  bytes rest() noexcept { return take(rest_.size()); }

 private:
  bytes rest_;
};

}  // namespace tutti::fuzz
