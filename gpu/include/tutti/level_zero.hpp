// SPDX-License-Identifier: Apache-2.0
// Intel's GPUs at the loop, by Level Zero. Its loader is opened at run time: programs link nothing of it, and
// run without it.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct _ze_driver_handle_t;  // ze_driver_handle_t and so on point to these
struct _ze_device_handle_t;
struct _ze_context_handle_t;
struct _ze_command_list_handle_t;

namespace tutti {

class runtime;

namespace level_zero {

// How many GPUs there are; 0 where Level Zero cannot be used: why_not() says what is missing and what to do.
int device_count() noexcept;
std::string why_not();

// GPU `ordinal` (of all drivers, in the loader's order) on the loop of a communicator or a runtime; opened
// once for each loop, later calls give the same. Without an ordinal the GPUs are dealt out by LOCAL_RANK.
// Throws errc::not_supported without Level Zero, errc::invalid_argument.
gpu::device open(const communicator& of, int ordinal = -1);
gpu::device open(runtime& rt, int ordinal = -1);

// What the device is to Level Zero. Memory and events of the program's own must be of this context to be used
// on the device. Valid as long as something of the device is open. Throws errc::invalid_argument for one that
// is not Level Zero's.
struct handles {
  _ze_driver_handle_t* driver = nullptr;
  _ze_device_handle_t* device = nullptr;
  _ze_context_handle_t* context = nullptr;
};
handles native(const gpu::device& on);

// A stream with a face of Level Zero's: an immediate, asynchronous command list.
class stream : public gpu::stream {
 public:
  explicit stream(const gpu::device& on, bool urgent = false) : gpu::stream(checked(on), urgent) {}
  explicit stream(const communicator& of, int ordinal = -1) : gpu::stream(open(of, ordinal)) {}
  explicit stream(runtime& rt, int ordinal = -1) : gpu::stream(open(rt, ordinal)) {}
  // An immediate command list of the program's own, which outlives this; of the device's context.
  static gpu::stream borrow(const gpu::device& on, _ze_command_list_handle_t* native) {
    return gpu::stream::borrow(checked(on), native);
  }

  // To append to. What is appended next comes after what is on the stream now; where it is several commands,
  // the program keeps the order among them. Appends and this stream's operations are for one thread, the
  // loop's.
  _ze_command_list_handle_t* get() const;

 private:
  static const gpu::device& checked(
      const gpu::device& on);  // throws errc::invalid_argument for one that is not Level Zero's
};

// Kernels of the program's own on one device. A cheap handle.
class module {
 public:
  enum class format { spirv, native };
  // Throws errc::invalid_argument for an image that this device cannot take; with the build log, where there
  // is one driver.
  module(const gpu::device& on, std::span<const std::byte> image, format is = format::spirv,
         const char* build_flags = "");
  // errc::invalid_argument: there is none of that name. Lives as long as the module.
  void* kernel(const char* name) const;

 private:
  struct loaded;
  std::shared_ptr<loaded> state_;
};

struct launch_size {
  unsigned groups = 1;
  unsigned group_size = 256;
};
void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments,
                       const std::size_t* sizes, std::size_t count);

// The kernel in size.groups groups, with arguments whose types are exactly those of its parameters.
template <class... A>
void launch(const gpu::stream& in, void* kernel, launch_size size, A... arguments) {
  void* addresses[] = {&arguments..., nullptr};
  const std::size_t sizes[] = {sizeof arguments..., 0};
  launch_by_address(in, kernel, size, addresses, sizes, sizeof...(A));
}

}  // namespace level_zero
}  // namespace tutti
