// SPDX-License-Identifier: Apache-2.0
// Kernels of the device conformance suite.

#include <cstdio>

using Word = unsigned int;
using Address = unsigned long long;

__device__ Word variable = 5;
__constant__ Word table[4] = {2, 3, 5, 7};

__device__ Word Mixed(Word value, Word rounds) {
  for (Word i = 0; i < rounds; ++i) {
    value ^= value << 13;
    value ^= value >> 17;
    value ^= value << 5;
  }
  return value;
}

// runs[block] counts how often each block has run; out[thread] is its result.
extern "C" __global__ void mix(Word* out, Word* runs, Word rounds) {
  const Word i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = Mixed(i + 1, rounds);
  if (threadIdx.x == 0) runs[blockIdx.x] += 1;
}

// Appends `tag` to `list`. `cursor` is the number of its elements.
extern "C" __global__ void append(Word* cursor, Word* list, Word tag) {
  if (threadIdx.x == 0) list[atomicAdd(cursor, 1)] = tag;
}

extern "C" __global__ void spin_for_ever(volatile Word* word) {
  while (*word != 0xffffffff) {
  }
}

extern "C" __global__ void write_at(Address address, Word value) {
  if (threadIdx.x == 0) *reinterpret_cast<Word*>(address) = value;
}

extern "C" __global__ void read_at(Address address, Word* out) {
  if (threadIdx.x == 0) *out = *reinterpret_cast<const Word*>(address);
}

// Block `bad_block` accesses memory outside the client's; the others count themselves.
extern "C" __global__ void fault_in_block(Word* runs, Word bad_block, Address address) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == bad_block) *reinterpret_cast<volatile Word*>(address) = 1;
  runs[blockIdx.x] += 1;
}

// Copies the initial contents of shared memory, then leaves `mark` in it.
extern "C" __global__ void shared_residue(Word* out, Word words, Word mark) {
  extern __shared__ volatile Word shared[];
  for (Word i = threadIdx.x; i < words; i += blockDim.x) {
    out[i] = shared[i];
    shared[i] = mark;
  }
}

// Reverses 64 words per block through static shared memory.
extern "C" __global__ void reverse(Word* data) {
  __shared__ Word tile[64];
  Word* const mine = data + blockIdx.x * 64;
  tile[threadIdx.x] = mine[threadIdx.x];
  __syncthreads();
  mine[threadIdx.x] = tile[63 - threadIdx.x];
}

extern "C" __global__ void bump_variable(Word* before) {
  if (threadIdx.x == 0) {
    *before = variable;
    variable += 1;
  }
}

extern "C" __global__ void sum_table(Word* out, const Word* which) {
  if (threadIdx.x == 0) *out = table[which[0] & 3] + table[which[1] & 3];
}

// Parameters with padding between them.
extern "C" __global__ void odd_parameters(unsigned char a, Address out, unsigned short b, Word c) {
  if (threadIdx.x == 0) {
    Word* const words = reinterpret_cast<Word*>(out);
    words[0] = a;
    words[1] = b;
    words[2] = c;
  }
}

extern "C" __global__ void print_lines(Word lines) {
  if (threadIdx.x == 0) {
    for (Word i = 0; i < lines; ++i) printf("line %u of block %u\n", i, blockIdx.x);
  }
}

// Records which block and thread of a three-dimensional launch wrote each word.
extern "C" __global__ void coordinates(Word* out) {
  const Word block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const Word thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

// Single-bit matrix operations, which no device of the suite supports.
extern "C" __global__ void needs_matrix_unit(Word* out) {
  Word d[2] = {0, 0};
  asm volatile(
      "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%0,%1}, {%2}, {%3}, {%0,%1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(out[0]), "r"(out[1]));
  out[threadIdx.x] = d[0];
}
