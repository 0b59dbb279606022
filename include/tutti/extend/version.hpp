// SPDX-License-Identifier: Apache-2.0
// extend: what the runtime promises to libraries that stand beside it and take part in its work. docs/extending.md
// introduces the headers of this folder.
#pragma once

namespace tutti::extend::inline v1 {

// The version of this interface, and the name of its namespace: part of the name of every symbol. A module that was
// built for another version does not load, and the loader's error names the symbol. It changes with every change
// after which such a module would not work; adding a declaration is none.
inline constexpr int version = 1;

}  // namespace tutti::extend::inline v1

namespace tutti::detail {
using namespace extend;  // the runtime's own sources have one name for both
}
