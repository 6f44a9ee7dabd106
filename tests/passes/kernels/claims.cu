// SPDX-License-Identifier: Apache-2.0
// Kernels that the claim pass could break, each in one way.

__device__ unsigned Thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// Every thread of every block writes its position.
extern "C" __global__ void place(uint4* index, uint4* size) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + Thread();
  index[at] = make_uint4(blockIdx.x, blockIdx.y, blockIdx.z, Thread());
  size[at] = make_uint4(gridDim.x, gridDim.y, gridDim.z, blockDim.x);
}

// Only x is read, so only atomics can reveal that the grid has more dimensions.
extern "C" __global__ void columns(unsigned* counts) {
  if (threadIdx.x == 0) atomicAdd(&counts[blockIdx.x], 1);
}
// Only z and y are read.
extern "C" __global__ void planes(unsigned* counts) {
  if (threadIdx.x == 0) atomicAdd(&counts[blockIdx.z], 1);
}
extern "C" __global__ void rows(unsigned* counts) {
  if (threadIdx.x == 0) atomicAdd(&counts[blockIdx.y], 1);
}
extern "C" __global__ void sizes_only(unsigned* counts) {
  if (threadIdx.x == 0) atomicAdd(&counts[gridDim.y * 7 + gridDim.z], 1);
}

// A kernel without parameters.
__device__ unsigned g_blocks[64];
extern "C" __global__ void no_parameters() {
  if (threadIdx.x == 0) g_blocks[blockIdx.x] += blockIdx.x + 1;
}
extern "C" __global__ void tell_no_parameters(unsigned* out) {
  out[threadIdx.x] = g_blocks[threadIdx.x];
}

// Uses all of its dynamic shared memory, of any size, after static memory of an odd size. Outputs
// the size and the start of the dynamic shared memory.
extern "C" __global__ void dynamic_shared(unsigned* out, unsigned bytes) {
  extern __shared__ unsigned char dynamic[];
  __shared__ unsigned char before[5];
  unsigned size;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
  if (threadIdx.x < 5) before[threadIdx.x] = threadIdx.x;
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) dynamic[i] = blockIdx.x + i;
  __syncthreads();
  unsigned sum = before[threadIdx.x % 5];
  for (unsigned i = 0; i < bytes; ++i) sum = sum * 31 + dynamic[i];
  out[(blockIdx.x * blockDim.x + threadIdx.x) * 3] = sum;
  out[(blockIdx.x * blockDim.x + threadIdx.x) * 3 + 1] = size;
  out[(blockIdx.x * blockDim.x + threadIdx.x) * 3 + 2] = address;
}

// Alignment that the client requests.
extern "C" __global__ void aligned_shared(unsigned* out) {
  extern __shared__ __align__(128) uint4 wide[];
  wide[threadIdx.x] = make_uint4(blockIdx.x, threadIdx.x, 3, 4);
  __syncthreads();
  const uint4 other = wide[blockDim.x - 1 - threadIdx.x];
  out[blockIdx.x * blockDim.x + threadIdx.x] = other.x * 1000 + other.y + other.z + other.w +
      static_cast<unsigned>(__cvta_generic_to_shared(wide)) % 128;
}

extern "C" __global__ void __launch_bounds__(64, 2) bounded(unsigned* out) {
  out[blockIdx.x * 64 + threadIdx.x] += blockIdx.x * 3 + 1;
}

// Exits in every possible way, in some threads before any barrier.
extern "C" __global__ void leaves(unsigned* out) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = 1;
  asm volatile(
      "{\n.reg .pred %p; .reg .b32 %x;\n"
      "and.b32 %x, %0, 3; setp.eq.u32 %p, %x, 1;\n@%p exit;\n"
      "setp.eq.u32 %p, %x, 2;\n@%p ret;\n}"
      :
      : "r"(threadIdx.x)
      : "memory");
  out[at] = 2;
  if (blockIdx.x % 3 == 1) return;
  __syncthreads();
  out[at] = 3 + __syncthreads_count(threadIdx.x & 4);
}

// The last block to end sums up the results of all.
extern "C" __global__ void last_block(unsigned* parts, unsigned* ended, unsigned* total) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x * blockIdx.x + 1;
    __threadfence();
    is_last = atomicAdd(ended, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  unsigned sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += *(volatile unsigned*)&parts[i];
  *total = sum;
}

extern "C" __global__ void grid_stride(const unsigned* in, unsigned* out, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = in[i] * 5 + i;
  }
}

// Packs the status into the high word and a sum into the low one, so that both arrive at once.
__device__ void Tell(unsigned long long* at, unsigned status, unsigned sum) {
  *static_cast<volatile unsigned long long*>(at) = static_cast<unsigned long long>(status) << 32 | sum;
}

// Inclusive scan in one pass: every block waits for the ones before it. Status 0: none, 1: sum of
// the block, 2: sum of all blocks up to it.
extern "C" __global__ void look_back_scan(const unsigned* in, unsigned* out,
                                          unsigned long long* state) {
  __shared__ unsigned before;
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = in[at];
  for (unsigned d = 1; d < 32; d *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, sum, d);
    if (threadIdx.x >= d) sum += other;
  }
  if (threadIdx.x == 31) {
    Tell(state + blockIdx.x, blockIdx.x == 0 ? 2 : 1, sum);
    unsigned total = 0;
    for (int i = static_cast<int>(blockIdx.x) - 1; i >= 0; --i) {
      unsigned long long found;
      do {
        found = static_cast<volatile unsigned long long*>(state)[i];
      } while (found == 0);
      total += static_cast<unsigned>(found);
      if (found >> 32 == 2) break;
    }
    Tell(state + blockIdx.x, 2, total + sum);
    before = total;
  }
  __syncthreads();
  out[at] = before + sum;
}

// Waits for all blocks, so it must not become preemptible.
extern "C" __global__ void barrier_of_the_grid(unsigned* arrived, unsigned* out) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (*(volatile unsigned*)arrived < gridDim.x) {
    }
  }
  __syncthreads();
  out[blockIdx.x] = *arrived;
}

// Adds with compare-and-swap, which retries rather than waits.
extern "C" __global__ void retried(unsigned long long* sum) {
  unsigned long long seen = *sum;
  for (;;) {
    const unsigned long long expected = seen;
    seen = atomicCAS(sum, expected, expected + blockIdx.x + threadIdx.x);
    if (seen == expected) return;
  }
}
