// SPDX-License-Identifier: Apache-2.0
// The functions of Level Zero in a build without ze_api.h: they say so.
#include "device/open_once.hpp"

#include <tutti/error.hpp>
#include <tutti/level_zero.hpp>

namespace tutti::level_zero {
namespace {

[[noreturn]] void absent() {
  throw error(errc::not_supported, "no Level Zero: " + why_not() + gpu::impl::emulated_instead);
}

[[noreturn]] void not_ours(const gpu::device& on, const char* what) {
  gpu::impl::throw_not_of(on, "Level Zero", what);
}

}  // namespace

int device_count() noexcept { return 0; }
std::string why_not() {
  return "tutti was built without its header level_zero/ze_api.h (install libze-dev, or level-zero-devel, "
         "then configure and build tutti again)";
}
std::shared_ptr<gpu::impl::driver> driver_at(int) { absent(); }
gpu::device open(const communicator&, int) { absent(); }
gpu::device open(runtime&, int) { absent(); }
handles native(const gpu::device& on) { not_ours(on, "level_zero::native"); }

const gpu::device& stream::checked(const gpu::device& on) { not_ours(on, "a Level Zero stream"); }
_ze_command_list_handle_t* stream::get() const { not_ours(on(), "level_zero::stream::get"); }

module::module(const gpu::device& on, std::span<const std::byte>, format, const char*) {
  not_ours(on, "level_zero::module");
}
void* module::kernel(const char*) const { absent(); }
void launch_by_address(const gpu::stream& in, void*, launch_size, void**, const std::size_t*, std::size_t) {
  not_ours(in.on(), "level_zero::launch");
}

}  // namespace tutti::level_zero
