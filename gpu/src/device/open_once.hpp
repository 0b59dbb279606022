// SPDX-License-Identifier: Apache-2.0
// Devices of a vendor's library: their drivers, which all loops of the process share, and one opening per loop.
#pragma once

#include "device/attachment.hpp"
#include "device/library.hpp"

#include <fmt/format.h>

#include <boost/asio/execution_context.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <tutti/communicator.hpp>
#include <tutti/error.hpp>
#include <tutti/runtime.hpp>
#include <type_traits>
#include <utility>

// Each vendor has a function that returns the driver of a device, numbered as for open(). It loads the library, and
// the driver makes its context: the slow part of opening a device. Any thread may call it.
// Errors: throws those of open().
namespace tutti::cuda {
std::shared_ptr<gpu::impl::driver> driver_at(int ordinal);
// Whether it is one of CUDA's devices.
bool is_cuda(const gpu::device& on) noexcept;
}  // namespace tutti::cuda
namespace tutti::level_zero {
std::shared_ptr<gpu::impl::driver> driver_at(int ordinal);
}  // namespace tutti::level_zero

namespace tutti::gpu::impl {

// What an error adds where there is no library of a vendor.
inline constexpr const char* emulated_instead =
    ". Without a GPU, an emulated device does the same: tutti::emulated::open";

// Returns the driver of device `wanted`, or of the one that LOCAL_RANK selects if that is negative. All loops of the
// process share it while one of them holds it. Thread-safe. `Driver` has the names of its vendor, and of the namespace
// of its functions.
// Errors: throws errc::not_supported without the library, errc::invalid_argument if there is no such device.
template <class Driver, class Table>
std::shared_ptr<Driver> driver_for(const opened_library<Table>& library, int wanted) {
  const Table& calls = library.required(Driver::vendor_name, emulated_instead);
  const char* const local = std::getenv("LOCAL_RANK");
  const int count = calls.devices();
  const int ordinal = wanted >= 0 ? wanted : local == nullptr ? 0 : std::atoi(local) % count;
  if (ordinal >= count)
    throw error(errc::invalid_argument, fmt::format("{} device {}: there are {} (numbered from 0)",
                                                    Driver::namespace_name, ordinal, count));
  static std::mutex mutex;
  static std::map<std::pair<const Table*, int>, std::weak_ptr<Driver>> all;
  const std::lock_guard lock(mutex);
  return lock_or_make(all[{&calls, ordinal}], calls, ordinal);
}

// For the call `what` on a device that is not of that vendor.
[[noreturn]] inline void throw_not_of(const device& on, const char* vendor, const char* what) {
  throw error(errc::invalid_argument,
              fmt::format("{} on {}, which is none of {}'s devices", what, on.name(), vendor));
}

// Returns the driver of a device of that vendor, for the call `what`.
// Errors: throws errc::invalid_argument for another device, and those of attachment::check().
template <class Driver>
std::shared_ptr<Driver> driver_of(const device& on, const char* what) {
  std::shared_ptr<Driver> found;
  if (on) found = std::dynamic_pointer_cast<Driver>(on.state().shared_driver());
  if (found == nullptr) throw_not_of(on, Driver::vendor_name, what);
  on.state().check();
  return found;
}

inline boost::asio::execution_context& loop_of(const communicator& c) { return c.get_executor().context(); }
inline boost::asio::execution_context& loop_of(runtime& rt) { return rt.context(); }

// Returns the device of that driver which is open on this loop, or opens it.
template <class Loop>
device open_once(Loop& of, std::shared_ptr<driver> by) {
  if constexpr (std::is_same_v<std::remove_const_t<Loop>, communicator>)
    if (!of)
      throw error(errc::invalid_argument,
                  fmt::format("{} is opened on an empty communicator, which has no loop", by->name()));
  // Each loop has one thread, so a thread-local table has all its devices.
  static thread_local std::map<std::pair<driver*, boost::asio::execution_context*>, std::weak_ptr<attachment>>
      open_here;
  std::erase_if(open_here, [](const auto& e) { return e.second.expired(); });
  std::weak_ptr<attachment>& place = open_here[{by.get(), &loop_of(of)}];
  return device(lock_or_make(place, of, std::move(by)));
}

}  // namespace tutti::gpu::impl
