// SPDX-License-Identifier: Apache-2.0
// How the ranks of a device_communicator find out what they share.
#include "comm/communicator_devices.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::gpu {

bool device_communicator::can(path way) const noexcept {
  const auto* const g = dynamic_cast<const detail::device_group*>(state().get());
  return g != nullptr && g->can(way);
}

namespace {

path path_from(const char* text) {
  const std::string name = text == nullptr ? "" : text;
  for (const path p : {path::automatic, path::one_device, path::staged})
    if (name == name_of(p)) return p;
  throw error(errc::invalid_argument,
              fmt::format("TUTTI_GPU_PATH='{}' is none of automatic, one_device, staged", name));
}

struct first_words {
  std::uint64_t process;
  std::uint64_t device;  // hash of the driver's identity
  std::uint64_t chunk_bytes;
  std::uint64_t staged;  // its operations are, unless they say otherwise
  std::uint64_t name;    // rank 0's counts: of the single-device group
};

}  // namespace

task<device_communicator> init(communicator world, device on, communicator_options how) {
  if (!world || !on) throw error(errc::invalid_argument, "gpu::init: an empty communicator, or no device");
  on.state().check();
  if (const char* const told = std::getenv("TUTTI_GPU_PATH"); told != nullptr && *told != '\0')
    how.way = path_from(told);
  if (const char* const told = std::getenv("TUTTI_GPU_CHUNK"); told != nullptr && *told != '\0')
    how.chunk_bytes = std::strtoull(told, nullptr, 0);
  if (how.chunk_bytes < 64) throw error(errc::invalid_argument, "gpu::init: a chunk has 64 bytes at least");
  communicator chunks = co_await world.duplicate();
  communicator heads = co_await world.duplicate();
  communicator payload = co_await world.duplicate();
  static std::atomic<std::uint64_t> made{0};
  first_words mine{detail::this_process(), std::hash<std::string>()(on.state().driver().identity()),
                   how.chunk_bytes, how.way == path::staged ? 1U : 0U, ++made};
  std::vector<first_words> all(static_cast<std::size_t>(world.size()));
  co_await chunks.all_gather(mine, all);
  bool one_process = true, one_device = true, any_staged = false;
  for (const first_words& i : all) {
    if (i.chunk_bytes != mine.chunk_bytes)
      throw error(
          errc::mismatch,
          fmt::format(
              "gpu::init: the ranks have chunks of different sizes, {} and {} bytes (TUTTI_GPU_CHUNK)",
              mine.chunk_bytes, i.chunk_bytes));
    one_process = one_process && i.process == mine.process;
    one_device = one_device && i.device == mine.device;
    any_staged = any_staged || i.staged != 0;
  }
  auto group = std::make_shared<detail::device_group>(on.shared_state(), std::move(chunks), std::move(heads),
                                                      std::move(payload),
                                                      fmt::format("devices of {}", world.name()), how);
  if (one_process && one_device)
    group->meet(
        detail::single_device_group::find(fmt::format("{:x}.{}", all[0].process, all[0].name), world.size()));
  if (!one_process && one_device && !any_staged) {
    communicator notes = co_await world.duplicate();
    std::string why;
    std::shared_ptr<detail::window> shared =
        co_await detail::window::open(on.shared_state(), notes, mine.process, how.chunk_bytes, &why);
    if (shared) {
      group->meet(std::move(shared), std::move(notes));
    } else {
      group->meet_nowhere(std::move(why));
    }
  }
  // Nobody may come to a single-device group that a rank has not joined yet and may be the last to leave: all
  // have it from here on.
  communicator control = co_await world.duplicate();
  co_await control.barrier();
  co_return device_communicator(std::move(group));
}

}  // namespace tutti::gpu
