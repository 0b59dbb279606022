// SPDX-License-Identifier: Apache-2.0
// Converts an exception that ends an operation's coroutine to the failure of the operation.
#pragma once

#include "core/engine.hpp"

#include <exception>
#include <new>
#include <string>
#include <tutti/error.hpp>

namespace tutti::ops {

inline void set_failure_of(core::completion& of, const std::exception_ptr& thrown) noexcept {
  try {
    std::rethrow_exception(thrown);
  } catch (const error& e) {
    of.set_failure(static_cast<errc>(e.code().value()), e.what());
  } catch (const std::bad_alloc&) {
    of.set_failure(errc::resources, "out of memory");
  } catch (const std::exception& e) {
    of.set_failure(errc::system, e.what());
  } catch (...) {
    of.set_failure(errc::system, "an exception that is no std::exception");
  }
}

}  // namespace tutti::ops
