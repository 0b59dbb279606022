// SPDX-License-Identifier: Apache-2.0
// Stands for a UCX that is too old: launch/ucx_test.

extern "C" void ucp_get_version(unsigned* major, unsigned* minor, unsigned* release) {
  *major = 1;
  *minor = 12;
  *release = 1;
}
