// SPDX-License-Identifier: Apache-2.0
// An installed driver with few functions, which say who they are.

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

int cuDriverGetVersion(int* version) {
  *version = 4321;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 21;
  return 0;
}
