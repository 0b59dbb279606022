// SPDX-License-Identifier: Apache-2.0
// Level Zero: Intel's GPUs in the loop. The loader is opened at run time: programs do not link it, and run
// without it.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

// ze_driver_handle_t and so on are pointers to these.
struct _ze_driver_handle_t;
struct _ze_device_handle_t;
struct _ze_context_handle_t;
struct _ze_command_list_handle_t;

namespace tutti {

class runtime;

namespace level_zero {

// The number of GPUs; 0 if Level Zero cannot be used. why_not() then says what is missing and how to get it.
int device_count() noexcept;
// Says what is missing to use Level Zero, and how to get it; empty if nothing is.
std::string why_not();

// Opens GPU `ordinal` (of all drivers, in the loader's order) on the loop of a communicator or a runtime. A
// GPU is opened once per loop; later calls return the same device. Without an ordinal, LOCAL_RANK selects the
// GPU.
// Errors: throws errc::not_supported without Level Zero, errc::invalid_argument for a bad ordinal.
gpu::device open(const communicator& of, int ordinal = -1);
gpu::device open(runtime& rt, int ordinal = -1);

// The Level Zero handles of a device. Memory and events of the program must belong to this context to be used
// on the device. Valid as long as any object of the device is open.
// Errors: native() throws errc::invalid_argument unless it is a Level Zero device.
struct handles {
  _ze_driver_handle_t* driver = nullptr;
  _ze_device_handle_t* device = nullptr;
  _ze_context_handle_t* context = nullptr;
};
handles native(const gpu::device& on);

// A stream that gives access to its immediate, asynchronous command list.
class stream : public gpu::stream {
 public:
  explicit stream(const gpu::device& on, bool urgent = false) : gpu::stream(checked(on), urgent) {}
  explicit stream(const communicator& of, int ordinal = -1) : gpu::stream(open(of, ordinal)) {}
  explicit stream(runtime& rt, int ordinal = -1) : gpu::stream(open(rt, ordinal)) {}
  // Wraps an immediate command list of the program, which outlives this and belongs to the device's context.
  static gpu::stream borrow(const gpu::device& on, _ze_command_list_handle_t* native) {
    return gpu::stream::borrow(checked(on), native);
  }

  // Returns the list to append commands to. Appended commands run after the work now on the stream; among
  // several, the program keeps the order. Appends and this stream's operations happen on one thread, that of
  // the loop.
  _ze_command_list_handle_t* get() const;

 private:
  static const gpu::device& checked(
      const gpu::device& on);  // throws errc::invalid_argument unless it is a Level Zero device
};

// Kernels of the program on one device. A cheap handle.
class module {
 public:
  // The format of an image.
  enum class format { spirv, native };
  // Builds the image.
  // Errors: throws errc::invalid_argument for an image that this device cannot take, with the build log if
  // there is only one driver.
  module(const gpu::device& on, std::span<const std::byte> image, format is = format::spirv,
         const char* build_flags = "");
  // Returns a kernel, which lives as long as the module.
  // Errors: throws errc::invalid_argument if there is none of that name.
  void* kernel(const char* name) const;

 private:
  struct loaded;
  std::shared_ptr<loaded> state_;
};

// The size of a launch: groups, and work items per group.
struct launch_size {
  unsigned groups = 1;
  unsigned group_size = 256;
};
// The untyped form of launch(): `arguments` holds the addresses of the arguments, `sizes` their sizes in
// bytes.
void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments,
                       const std::size_t* sizes, std::size_t count);

// Launches the kernel in size.groups groups. The types of the arguments are exactly those of its parameters.
template <class... A>
void launch(const gpu::stream& in, void* kernel, launch_size size, A... arguments) {
  void* addresses[] = {&arguments..., nullptr};
  const std::size_t sizes[] = {sizeof arguments..., 0};
  launch_by_address(in, kernel, size, addresses, sizes, sizeof...(A));
}

}  // namespace level_zero
}  // namespace tutti
