// SPDX-License-Identifier: Apache-2.0
// An installed driver with few functions. Its version and its number of devices identify it.

int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

int cuDriverGetVersion(int* version) {
  *version = 4321;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = 21;
  return 0;
}

// The next two functions succeed only if each argument arrives as first_calls.c passes it.
int cuParamSetf(void* function, int offset, float value) {
  return function == (void*)1 && offset == 2 && value == 3.5F ? 0 : 1;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void* stream, void** parameters, void** extra) {
  return function == (void*)1 && grid_x == 2 && grid_y == 3 && grid_z == 4 && block_x == 5 &&
                 block_y == 6 && block_z == 7 && shared_bytes == 8 && stream == (void*)9 &&
                 parameters == (void**)10 && extra == (void**)11
             ? 0
             : 1;
}
