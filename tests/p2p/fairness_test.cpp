// SPDX-License-Identifier: Apache-2.0
// soon
#include <doctest/doctest.h>
