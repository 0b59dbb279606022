// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"
#include "comm/communicator_state.hpp"
#include "comm/identity.hpp"
#include "flight/explanation.hpp"
#include "flight/recordings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <tutti/explain.hpp>

namespace tutti::comm {
namespace {

constexpr std::int64_t quiet_ns = 5'000'000'000;
constexpr std::size_t recent = 1;

// A rank waits this many milliseconds at most until another has read what it is about to change.
constexpr int most_waits = 50;

flight::report_turn of_process;  // for ranks without a launcher

std::string explain_world(std::uint64_t id, int size) {
  std::vector<flight::rank_snapshot> found;
  flight::for_each_recording([&](flight::recording_view memory) {
    flight::rank_snapshot r = flight::read(memory, recent);
    // A rank that is still joining has no world yet.
    if (r.at != flight::phase::none && (r.world == id || r.at == flight::phase::joining))
      found.push_back(std::move(r));
  });
  std::ranges::sort(found, {}, &flight::rank_snapshot::rank);
  std::string text = flight::explain(found);
  const auto known = static_cast<int>(found.size());
  if (known < size)
    text += fmt::format(
        "({} of {} ranks can be seen from here{})\n", known, size,
        flight::recorder_slot::current() != nullptr && flight::recorder_slot::current()->node() == nullptr
            ? "; under tutti-run all of a host can, and Ctrl-\\ there shows all"
            : "; Ctrl-\\ in tutti-run shows all");
  return text;
}

}  // namespace

void report_hang(const communicator_state& c) noexcept {
  const core::world_info& world = c.home().info();
  // Under simulated time a timeout does not interest a person.
  if (&c.loop().engine().platform() != &core::platform::real()) return;
  if (!base::log_enabled(base::log_level::warning)) return;
  const flight::recordings* const node = c.loop().recorder_slot().node();
  flight::report_turn& turn = node != nullptr ? node->front().reports : of_process;
  if (!turn.take(quiet_ns)) {
    for (int i = 0; i < most_waits && turn.being_read(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  const std::string text = fmt::format("tutti[{}] warning: a timeout; who waits for whom:\n{}", world.rank,
                                       explain_world(world.id, world.size));
  turn.has_read();
  [[maybe_unused]] const auto ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tutti::comm

namespace tutti {

std::string explain(const communicator& c) {
  std::uint64_t id = 0;
  int size = 0;  // of the world
  if (comm::communicator_state* const state = detail::communicator_access::state_of(c); state != nullptr)
    state->with_home([&](comm::communicator_home& home) {
      id = home.info().id;
      size = home.info().size;
    });
  return size > 0 ? comm::explain_world(id, size) : "";
}

void explain_at_signal() noexcept { flight::explain_at_signal(); }

}  // namespace tutti
