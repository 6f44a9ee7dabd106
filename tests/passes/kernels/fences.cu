// SPDX-License-Identifier: Apache-2.0
// Every legal way to access memory, which a fence has to permit.

__device__ unsigned total = 7;
__device__ unsigned table[64] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ unsigned* pointer_to_table = table + 4;
__device__ unsigned marks[16];
__device__ unsigned* pointer_to_marks = marks;
__constant__ unsigned weights[16] = {2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9, 0, 4, 5};

extern "C" __global__ void module_variables(unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&total, i);
  out[i] = table[i % 64] + pointer_to_table[i % 4] + weights[i % 16];
  if (i < 8) pointer_to_marks[i + 8] = i;
}

// The space of a pointer is known only at run time.
extern "C" __global__ void generic_addresses(unsigned* out, unsigned choice) {
  __shared__ unsigned shared[64];
  unsigned local[8];
  for (unsigned i = 0; i < 8; ++i) local[i] = i * choice + threadIdx.x;
  shared[threadIdx.x % 64] = threadIdx.x * 5;
  __syncthreads();
  unsigned* own = out + 1024 + blockIdx.x * 16;
  unsigned* which = threadIdx.x % 3 == choice       ? shared
                    : threadIdx.x % 3 == choice + 1 ? local
                                                    : own;
  volatile unsigned* at = which + threadIdx.x % 8;
  const unsigned before = *at;
  __syncthreads();
  if (which != local) atomicAdd(which + 8 + threadIdx.x % 8, before);
  *(which + threadIdx.x % 8) = before + 1;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = before + local[(threadIdx.x + choice) % 8];
}

extern "C" __global__ void vectors(const uint4* in, uint4* out, double2* wide) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  uint4 value = in[i];
  value.x += value.w;
  out[i] = value;
  wide[i] = make_double2(value.y, value.z);
}

// Addresses that change from round to round, and some that do not.
extern "C" __global__ void walking_pointers(const unsigned* in, unsigned* out, unsigned count) {
  const unsigned* at = in + threadIdx.x;
  unsigned sum = 0;
#pragma unroll 1
  for (unsigned i = 0; i < count; ++i) {
    sum += *at;
    if (sum % 3 == 0) sum += at[blockDim.x];
    at += blockDim.x;
    out[threadIdx.x] = sum;
  }
  if (sum % 2 == 0) {
    out[blockDim.x + threadIdx.x] = sum;
  } else {
    // No block writes the data read here, so the result does not depend on the order of blocks.
    out[2 * blockDim.x + threadIdx.x] = sum + out[blockDim.x + threadIdx.x];
  }
}

// Uses an offset just beyond the maximum for immediates.
extern "C" __global__ void far_offsets(unsigned* out) {
  unsigned* at = out + threadIdx.x;
  at[0] = 1;
  at[15000] = 2;
  at[20000] = at[0] + at[15000];
}

extern "C" __global__ void local_arrays(unsigned* out, unsigned step) {
  unsigned a[24], b[5];
  for (unsigned i = 0; i < 24; ++i) a[i] = i * step;
  for (unsigned i = 0; i < 5; ++i) b[i] = threadIdx.x + i;
  for (unsigned i = 0; i < 40; ++i) a[(i * step + threadIdx.x) % 24] += b[(i + step) % 5];
  unsigned sum = 0;
  for (unsigned i = 0; i < 24; i += 1 + threadIdx.x % 3) sum = sum * 31 + a[i] + b[i % 5];
  out[threadIdx.x] = sum;
}

extern "C" __global__ void atomics(unsigned* out) {
  atomicMax(out + threadIdx.x % 7, threadIdx.x);
  atomicCAS(out + 8 + threadIdx.x % 4, 0, 5);
  atomicExch(out + 16, 9);
  atomicAdd(reinterpret_cast<float*>(out + 20), 1.0f);
}

struct Table {
  unsigned count;
  unsigned values[7];
};

// Reads through a pointer that is chosen at run time, to a parameter or to global memory.
extern "C" __global__ void constant_parameter(unsigned* out, const __grid_constant__ Table table,
                                              unsigned choice) {
  const unsigned* from = (threadIdx.x & 1) == choice ? table.values : out + 512 + threadIdx.x;
  unsigned sum = 0;
#pragma unroll 1
  for (unsigned k = 0; k < table.count; ++k) sum += from[k % 7] * (k + 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Code that compilers do not generate: vectors of registers, and 128-bit values, some of which only
// some threads write.
extern "C" __global__ void seldom(const uint4* in, uint4* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned word = 0;
  asm volatile(
      "{ .reg .b128 whole; .reg .v4 .b32 parts; .reg .v2 .b64 halves; .reg .b32 a, b; .reg .pred p;\n"
      "ld.global.v4.u32 parts, [%1];\nmov.b32 b, parts.w;\n"
      "add.u32 a, b, parts.x;\nxor.b32 b, b, parts.g;\nvabsdiff4.u32.u32.u32.add %0, a, b, b;\n"
      "setp.lt.s32 p, a, 0;\nmov.b128 whole, {5, 7};\n"
      "@p ld.global.b128 whole, [%1];\n"
      "mov.b128 {halves.x, halves.y}, whole;\n"
      "mov.v2.b64 halves, {halves.y, halves.x};\n"
      "mov.b128 whole, {halves.x, halves.y};\n"
      "st.global.b128 [%2], whole;\n"
      "szext.wrap.s32 a, %0, 20; cvt.pack.sat.s16.s32 a, a, parts.x; add.u32 %0, %0, a; }"
      : "=r"(word)
      : "l"(in + i), "l"(out + i)
      : "memory");
  out[i].w ^= word;
}
