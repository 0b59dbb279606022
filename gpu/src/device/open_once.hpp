// SPDX-License-Identifier: Apache-2.0
// Devices of a vendor's library: their numbers, their assignment to the ranks of a host, and one opening per
// loop.
#pragma once

#include "device/attachment.hpp"
#include "device/library.hpp"

#include <fmt/format.h>

#include <boost/asio/execution_context.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <tutti/communicator.hpp>
#include <tutti/error.hpp>
#include <tutti/runtime.hpp>
#include <type_traits>
#include <utility>

namespace tutti::gpu::detail {

inline boost::asio::execution_context& loop_of(const communicator& c) { return c.get_executor().context(); }
inline boost::asio::execution_context& loop_of(runtime& rt) { return rt.context(); }

// Returns a device's driver, shared by all loops of the process while one of them holds it. Thread-safe.
template <class Driver, class Table>
std::shared_ptr<Driver> shared_driver_of(const Table& calls, int ordinal) {
  static std::mutex mutex;
  static std::map<std::pair<const Table*, int>, std::weak_ptr<Driver>> all;
  const std::lock_guard lock(mutex);
  std::weak_ptr<Driver>& place = all[{&calls, ordinal}];
  std::shared_ptr<Driver> found = place.lock();
  if (!found) place = found = std::make_shared<Driver>(calls, ordinal);
  return found;
}

// Returns the number of the device to open: `wanted`, or the one that LOCAL_RANK selects if that is negative.
template <class Table>
int ordinal_for(const Table& calls, int wanted) {
  const char* const local = std::getenv("LOCAL_RANK");
  return wanted >= 0 ? wanted : local == nullptr ? 0 : std::atoi(local) % calls.devices();
}

// Makes the driver of the device that open_once() would open, on any thread. Returns null if there is no such
// device: open_once() says why. While the driver is kept, open_once() takes little time.
template <class Driver, class Table>
std::shared_ptr<driver> prepare_driver(const opened_library<Table>& library, int wanted) {
  if (library.calls == nullptr) return nullptr;
  const int ordinal = ordinal_for(*library.calls, wanted);
  if (ordinal >= library.devices()) return nullptr;
  return shared_driver_of<Driver>(*library.calls, ordinal);
}

// What an error adds where there is no library of a vendor.
inline constexpr const char* emulated_instead =
    ". Without a GPU, an emulated device does the same: tutti::emulated::open";

// For the call `what` on a device that is not of that vendor.
[[noreturn]] inline void throw_not_of(const char* vendor, const char* what) {
  throw error(errc::invalid_argument, fmt::format("{} on what is none of {}'s devices", what, vendor));
}

// Returns the driver of a device of that vendor, for the call `what`.
// Errors: throws errc::invalid_argument for another device, and those of attachment::check().
template <class Driver>
std::shared_ptr<Driver> driver_of(const device& on, const char* what, const char* vendor) {
  std::shared_ptr<Driver> found;
  if (on) found = std::dynamic_pointer_cast<Driver>(on.state().shared_driver());
  if (found == nullptr) throw_not_of(vendor, what);
  on.state().check();
  return found;
}

// Returns the device that is open on this loop, or opens it. `wanted` is its number as in ordinal_for(). `kind` is the
// namespace of the device's functions.
template <class Driver, class Loop, class Table>
device open_once(Loop& of, const opened_library<Table>& library, const char* vendor, const char* kind,
                 int wanted) {
  if constexpr (std::is_same_v<Loop, const communicator>)
    if (!of)
      throw error(errc::invalid_argument, fmt::format("{}::open: an empty communicator has no loop", kind));
  const Table& calls = library.required(vendor, emulated_instead);
  const int count = calls.devices(), ordinal = ordinal_for(calls, wanted);
  if (ordinal >= count)
    throw error(errc::invalid_argument,
                fmt::format("{} device {}: there are {} (numbered from 0)", kind, ordinal, count));
  // Each loop has one thread, so a thread-local table has all its devices.
  static thread_local std::map<std::tuple<const Table*, int, boost::asio::execution_context*>,
                               std::weak_ptr<attachment>>
      open_here;
  std::erase_if(open_here, [](const auto& e) { return e.second.expired(); });
  std::weak_ptr<attachment>& known = open_here[{&calls, ordinal, &loop_of(of)}];
  if (auto found = known.lock()) return device(std::move(found));
  auto made = std::make_shared<attachment>(of, shared_driver_of<Driver>(calls, ordinal));
  known = made;
  return device(std::move(made));
}

}  // namespace tutti::gpu::detail
