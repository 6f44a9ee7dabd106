// SPDX-License-Identifier: Apache-2.0
// __constant__ and __device__ variables whose initialisers contain numbers, text, addresses.
struct Entry {
  const char* name;
  const float* values;
  short code;
};

__constant__ float c_weights[4] = {0.1f, 0.2f, -0.3f, 1e30f};
__device__ float g_values[3] = {1, 2, 3};
__device__ double g_large[1024];
__device__ const Entry g_entries[2] = {{"first", g_values, 1}, {"second", g_values + 1, -2}};
__device__ int g_matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
__managed__ unsigned long long g_managed = 0x123456789abcdef0ull;
static __device__ int* g_pointer = &g_matrix[1][0];

extern "C" __global__ void look_up(float* out, int* characters, int which) {
  const int i = threadIdx.x;
  out[i] = c_weights[which & 3] * g_entries[which & 1].values[i & 1] + g_pointer[i % 3];
  characters[i] = g_entries[i & 1].name[which & 3] + g_entries[i & 1].code + g_matrix[i & 1][which];
  g_large[i] = g_managed;
}
