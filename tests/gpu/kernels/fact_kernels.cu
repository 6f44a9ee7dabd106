// SPDX-License-Identifier: Apache-2.0
// Kernels that only gpu_facts uses.

__device__ unsigned long long GpuNs() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Blocks of one thread that end together, `ns` after the first one began, regardless of the GPU's
// clock rate. A block ends sooner once it has made its `rounds`, so that the kernel ends even if
// the timer does not advance. `first` must be 0. `begun`, in host memory, is set when the kernel
// runs.
extern "C" __global__ void spin(unsigned long long* first, volatile unsigned* begun, unsigned ns,
                                unsigned rounds, unsigned* out) {
  const unsigned long long now = GpuNs();
  const unsigned long long before = atomicCAS(first, 0ull, now);
  const unsigned long long begin = before == 0 ? now : before;
  if (before == 0) {
    *begun = 1;
    __threadfence_system();
  }
  unsigned value = 1;
#pragma unroll 1
  for (unsigned round = 0; round < rounds && GpuNs() - begin < ns; ++round) {
#pragma unroll 1
    for (unsigned i = 0; i < 64; ++i) value = value * 1664525u + 1013904223u;
  }
  out[0] = value;
}

__device__ unsigned SharedAddress(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// Sets out[0] to the address of dynamic shared memory, out[1] to %dynamic_smem_size and out[2] to
// %total_smem_size. Unless `stores` is 0, stores it to the last byte of the range that the first two
// describe, and sets out[3] to what it reads back.
__device__ void ReportShared(const unsigned char* array, unsigned* out, unsigned stores) {
  unsigned dynamic, total;
  asm volatile("mov.u32 %0, %dynamic_smem_size;" : "=r"(dynamic));
  asm volatile("mov.u32 %0, %total_smem_size;" : "=r"(total));
  const unsigned begin = SharedAddress(array);
  out[0] = begin;
  out[1] = dynamic;
  out[2] = total;
  if (stores == 0) return;
  unsigned read;
  asm volatile("st.volatile.shared.u8 [%0], %1;" ::"r"(begin + dynamic - 1), "r"(stores) : "memory");
  asm volatile("ld.volatile.shared.u8 %0, [%1];" : "=r"(read) : "r"(begin + dynamic - 1) : "memory");
  out[3] = read;
}

extern __shared__ unsigned char dynamic_memory[];
extern "C" __global__ void shared_alone(unsigned* out, unsigned stores) {
  ReportShared(dynamic_memory, out, stores);
}
// Like shared_alone, but the dynamic shared memory follows static shared memory.
extern "C" __global__ void shared_after_static(unsigned* out, unsigned stores) {
  __shared__ unsigned fixed[250];
  volatile unsigned* const words = fixed;
  words[stores % 250] = stores;
  ReportShared(dynamic_memory, out, stores);
}

extern "C" __global__ void store_shared(unsigned* out, unsigned address) {
  out[0] = SharedAddress(dynamic_memory);
  asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(address), "r"(6u) : "memory");
  out[1] = 1;
}

// Uses 4 KiB of local memory per thread, because the index of the word that it reads is known only
// at run time.
extern "C" __global__ void deep(unsigned* out, unsigned step) {
  volatile unsigned words[1024];
  for (unsigned i = 0; i < 1024; ++i) words[i * step % 1024] = i;
  out[threadIdx.x] = words[out[threadIdx.x] % 1024];
}
