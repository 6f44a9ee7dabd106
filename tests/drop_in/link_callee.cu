// SPDX-License-Identifier: Apache-2.0
// What link_test's kernel needs of another input, as a fatbin with PTX.
extern "C" {
__device__ unsigned step = 7;
__device__ unsigned triple(unsigned x) { return 3 * x; }
}
