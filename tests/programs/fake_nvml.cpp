// SPDX-License-Identifier: Apache-2.0
// Replaces NVIDIA's management library: four devices, of which number i is 10 * i percent busy and has i + 1
// GiB in use.
#include <cstring>

namespace {
int devices[4] = {0, 1, 2, 3};
int started = 0;
}  // namespace

extern "C" {
int nvmlInit_v2() {
  ++started;
  return 0;
}
int nvmlShutdown() { return started-- > 0 ? 0 : 1; }
int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = 4;
  return started > 0 ? 0 : 1;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) {
  if (i >= 4) return 2;
  *device = &devices[i];
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* name, void** device) {
  if (std::strcmp(name, "GPU-three") != 0) return 6;
  *device = &devices[3];
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* percents) {
  percents[0] = 10U * static_cast<unsigned>(*static_cast<int*>(device));
  percents[1] = 99;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* bytes) {
  bytes[0] = 8ULL << 30;
  bytes[2] = (static_cast<unsigned long long>(*static_cast<int*>(device)) + 1) << 30;
  bytes[1] = bytes[0] - bytes[2];
  return 0;
}
}
