// SPDX-License-Identifier: Apache-2.0
// link_test's kernel needs these symbols from a second input, a fatbin with PTX.
extern "C" {
__device__ unsigned step = 7;
__device__ unsigned triple(unsigned x) { return 3 * x; }
}
