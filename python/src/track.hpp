// SPDX-License-Identifier: Apache-2.0
// Logs of tutti::track for Python, on a runtime with a thread of its own; see tutti/track.py.
#pragma once

#include <pybind11/pybind11.h>

namespace tutti::python {

void bind_track(pybind11::module_& m);

}  // namespace tutti::python
