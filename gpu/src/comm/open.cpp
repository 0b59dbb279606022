// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_devices.hpp"
#include "cuda/cuda_api.hpp"
#include "device/open_once.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string_view>
#include <tutti/compute.hpp>
#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/level_zero.hpp>
#include <tutti/nccl.hpp>
#include <utility>

namespace tutti::gpu {
namespace {

constexpr const char* kinds[] = {"auto", "cuda", "level_zero", "emulated"};
constexpr const char* backends[] = {"auto", "nccl", "oneccl", "one_device", "staged"};

// Sets `value` to what the environment variable names, if that is set.
template <class E, std::size_t N>
void from_environment(const char* variable, const char* const (&names)[N], E& value) {
  const char* const told = std::getenv(variable);
  if (told == nullptr || *told == '\0') return;
  const auto* const found = std::find(std::begin(names), std::end(names), std::string_view(told));
  if (found == std::end(names))
    throw error(errc::invalid_argument,
                fmt::format("{}='{}' is none of {}", variable, told, fmt::join(names, ", ")));
  value = static_cast<E>(found - names);
}

// Loads the libraries and makes the device's context: hundreds of milliseconds. Any thread may call it.
std::shared_ptr<impl::driver> find_driver(device_kind kind, int ordinal) {
  if (kind == device_kind::automatic) {
    const std::string no_cuda = cuda::why_not();
    const std::string no_level_zero = no_cuda.empty() ? std::string() : level_zero::why_not();
    if (!no_level_zero.empty())
      throw error(errc::not_supported,
                  fmt::format("no device: CUDA: {}; Level Zero: {}. TUTTI_DEVICE=emulated works without one",
                              no_cuda, no_level_zero));
    kind = no_cuda.empty() ? device_kind::cuda : device_kind::level_zero;
  }
  if (kind == device_kind::level_zero) return level_zero::driver_at(ordinal);
  nccl::version();  // loads it
  return cuda::driver_at(ordinal);
}

// Ranks on one device have different places if NCCL_HOSTID or (from 2.30 on) another variable allows that.
std::uint64_t place_for_nccl(std::string device, int version, int rank) {
  const char* const host = std::getenv("NCCL_HOSTID");
  const char* const sharing = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (host != nullptr) device += host;
  if (version >= 23000 && sharing != nullptr && std::strcmp(sharing, "1") == 0)
    device += std::to_string(rank);
  return std::hash<std::string>()(device);
}

// Throws what a rank lacks, or how the ranks differ.
void check(const std::vector<impl::introduction>& all) {
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].failure.why != 0)
      throw error(static_cast<errc>(all[r].failure.why),
                  fmt::format("gpu::open on rank {}: {}", r, all[r].failure.text));
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r].chunk_bytes != all[0].chunk_bytes)
      throw error(
          errc::mismatch,
          fmt::format("gpu::open: rank 0 has chunks of {} bytes, rank {} of {} (open_options::chunk_bytes, "
                      "TUTTI_GPU_CHUNK)",
                      all[0].chunk_bytes, r, all[r].chunk_bytes));
    if (all[r].backend != all[0].backend)
      throw error(errc::mismatch,
                  fmt::format("gpu::open: rank 0 has the backend {}, rank {} {} (open_options::backend, "
                              "TUTTI_GPU_BACKEND)",
                              backends[all[0].backend], r, backends[all[r].backend]));
  }
}

// `how` selects the device if `given` is empty.
task<device> open_for(communicator world, device given, open_options how) {
  // Takes this call's place in the order of collectives: the device takes a time of its own on each rank.
  const communicator among = co_await world.duplicate();
  impl::introduction mine;
  try {
    from_environment("TUTTI_DEVICE", kinds, how.kind);
    from_environment("TUTTI_GPU_BACKEND", backends, how.backend);
    const char* const told = std::getenv("TUTTI_GPU_CHUNK");
    char* end = nullptr;
    const bool is_told = told != nullptr && *told != '\0';
    if (is_told) how.chunk_bytes = std::strtoull(told, &end, 0);
    if (how.chunk_bytes < 64 || (is_told && *end != '\0'))
      throw error(errc::invalid_argument, fmt::format("{}: a chunk has 64 bytes at least",
                                                      is_told ? fmt::format("TUTTI_GPU_CHUNK='{}'", told)
                                                              : "open_options::chunk_bytes"));
    if (!given && how.kind == device_kind::emulated) {
      given = emulated::open(world, emulated::default_device(std::max(how.ordinal, 0)));
    } else if (!given) {
      cuda::abi::set_environment();
      const auto find = [kind = how.kind, ordinal = how.ordinal] { return find_driver(kind, ordinal); };
      std::shared_ptr<impl::driver> by = co_await compute(find);
      given = impl::open_once(world, std::move(by));
    }
    given.state().check();
    mine.process = impl::this_process();
    mine.device = std::hash<std::string>()(given.state().driver().identity());
    mine.chunk_bytes = how.chunk_bytes;
    mine.backend = static_cast<std::int32_t>(how.backend);
    mine.processes_at_once = given.can().processes_at_once ? 1 : 0;
    if (cuda::is_cuda(given)) mine.nccl = nccl::version();
    mine.place = place_for_nccl(given.state().driver().identity(), mine.nccl, world.rank());
  } catch (const error& e) {
    mine.failure.set(e);
  }
  std::vector<impl::introduction> all(static_cast<std::size_t>(world.size()));
  co_await among.all_gather(mine, all);
  check(all);
  const auto* const before =
      static_cast<const impl::world_devices*>(impl::world_devices::place_of(world).get());
  // A communicator of some ranks may open the device after others have.
  auto opened = before != nullptr && before->on == given.shared_state()
                    ? std::make_shared<impl::world_devices>(*before)
                    : std::make_shared<impl::world_devices>();
  opened->on = given.shared_state();
  opened->how = how;
  const std::vector<int>& members = tutti::extend::world_ranks_of(world);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto member = static_cast<std::size_t>(members[r]);
    if (opened->ranks.size() <= member) opened->ranks.resize(member + 1);
    opened->ranks[member] = all[r];
  }
  const bool by_nccl = how.backend == backend::automatic ? all.size() > 1 : how.backend == backend::nccl;
  if (by_nccl && opened->why_not_nccl(members).empty()) {
    try {
      co_await nccl::load_kernels(given);
    } catch (const error& e) {
      mine.failure.set(e);
    }
    co_await among.all_gather(mine, all);
    check(all);
  }
  impl::world_devices::place_of(world) = std::move(opened);
  co_return given;
}

}  // namespace

const char* name_of(device_kind kind) noexcept { return kinds[static_cast<std::size_t>(kind)]; }
const char* name_of(backend b) noexcept { return backends[static_cast<std::size_t>(b)]; }

task<device> open(communicator world, open_options how) {
  if (!world) throw error(errc::invalid_argument, "gpu::open: an empty communicator");
  co_return co_await open_for(std::move(world), device(), how);
}
task<> open(communicator world, device on, open_options how) {
  if (!world || !on) throw error(errc::invalid_argument, "gpu::open: an empty communicator, or no device");
  static_cast<void>(co_await open_for(std::move(world), std::move(on), how));
}

}  // namespace tutti::gpu
