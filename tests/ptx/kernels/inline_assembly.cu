// SPDX-License-Identifier: Apache-2.0
// Scopes with their own registers, predicates and labels; two scopes use the same names.
__device__ int Clamp(int value, int limit) {
  int result;
  asm volatile(
      "{\n\t"
      ".reg .pred p, q;\n\t"
      ".reg .b32 t<4>, other;\n\t"
      "setp.gt.s32 p|q, %1, %2;\n\t"
      "mov.b32 t0, %1;\n\t"
      "@!p bra DONE;\n\t"
      "mov.b32 t0, %2;\n"
      "DONE:\n\t"
      "{ .reg .b32 t0; mov.b32 t0, 5; add.s32 other, t0, 0; }\n\t"
      "add.s32 %0, t0, other;\n\t"
      "}"
      : "=r"(result)
      : "r"(value), "r"(limit));
  return result;
}

extern "C" __global__ void clamp_twice(int* data, unsigned* masks) {
  const int i = threadIdx.x;
  data[i] = Clamp(data[i], 100) + Clamp(data[i + 1], 200);
  unsigned lanes, found;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes));
  asm volatile("lop3.b32 %0, %1, %2, 0xF0F, 0x96;" : "=r"(found) : "r"(lanes), "r"(masks[i]));
  asm volatile("st.global.cg.u32 [%0+-4], %1;" ::"l"(masks + i + 1), "r"(found) : "memory");
  asm volatile("bar.arrive 1, 64; prefetch.global.L2 [%0]; membar.gl;" ::"l"(masks));
}
