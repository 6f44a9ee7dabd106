// SPDX-License-Identifier: Apache-2.0
// Kernels that test the limits of contained clients on every device.

#ifndef GPUSHARED_TESTS_SERVER_DEVICE_CONTAINED_KERNELS_H_
#define GPUSHARED_TESTS_SERVER_DEVICE_CONTAINED_KERNELS_H_

#include <string_view>

namespace gpushared::device {

// `a` is an address in the client's memory. Tests read the words that the kernel `fine` writes
// while it runs.
inline constexpr std::string_view kContainedKernels = R"(.version 8.1
.target sm_80
.address_size 64
.global .align 8 .b8 variable[24];
.global .align 8 .u64 pointer = variable;
.entry fine(.param .u64 a) {
.reg .b64 %rd<4>; ld.param.u64 %rd0, [a]; st.relaxed.gpu.global.u32 [%rd0], 7; ret; }
.entry traps(.param .u64 a) {
.reg .b32 %r<4>; .reg .pred %p<2>; mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 3;
@%p0 trap; ret; }
.entry endless(.param .u64 a) {
.reg .b64 %rd<4>; .reg .b32 %r<2>; ld.param.u64 %rd0, [a]; atom.global.add.u32 %r0, [%rd0], 1;
L: bra L; }
.entry by_address(.param .u64 a) {
.reg .b64 %rd<8>; .reg .b32 %r<4>; ld.param.u64 %rd0, [a]; mov.u64 %rd1, variable;
st.global.u32 [%rd1+20], 5; ld.global.u64 %rd2, [pointer]; ld.u32 %r0, [%rd2+20];
ld.global.u32 %r1, [variable+20]; add.u32 %r0, %r0, %r1; st.global.u32 [%rd0], %r0;
st.global.u32 [%rd2+50000], 9; ret; }
.entry fills_variable(.param .u64 a) {
.reg .b64 %rd<4>; mov.u64 %rd1, variable; st.global.u64 [%rd1], -1; ret; }
.entry traps_too(.param .u64 a) { trap; }
.entry reads_through(.param .u64 a) {
.reg .b64 %rd<4>; .reg .b32 %r<2>; ld.param.u64 %rd0, [a]; ld.global.u64 %rd1, [%rd0];
ld.global.u32 %r0, [%rd1]; st.global.u32 [%rd0+8], %r0; ret; }
)";

}  // namespace gpushared::device

#endif  // GPUSHARED_TESTS_SERVER_DEVICE_CONTAINED_KERNELS_H_
