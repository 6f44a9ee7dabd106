// SPDX-License-Identifier: Apache-2.0
// printf and assert, as nvcc calls them.
#include <cassert>
#include <cstdio>

extern "C" __global__ void print_all(const char* name, int n) {
  if (threadIdx.x == 0) {
    printf("plain\n");
    printf("%d %5d|%-5d|%05d %i %u %x %X %o\n", n, n, n, n, -n, 3000000000u, 48879u, 48879u, 8u);
    printf("%lld %llu %ld %hd %c%c\n", -5000000000ll, 18446744073709551615ull, -7l, static_cast<short>(-2), 'o', 'k');
    printf("%f %.2f %10.3e %g %a %%\n", 1.5, 2.0 / 3, 12345.678, 1e-9, 1.0);
    printf("%s, %.3s, %*d, %.*f\n", name, name, 6, 42, 2, 3.14159);
    printf("%p\n", reinterpret_cast<void*>(0x1234));
  }
}

extern "C" __global__ void print_some(int* results) {
  if (threadIdx.x % 8 == 3) results[threadIdx.x] = printf("thread %d of block %d\n", static_cast<int>(threadIdx.x), static_cast<int>(blockIdx.x));
}

extern "C" __global__ void assert_below(int limit) {
  assert(static_cast<int>(threadIdx.x) < limit && "too far");
}
