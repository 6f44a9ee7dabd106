// SPDX-License-Identifier: Apache-2.0
// PTX of the libcudadevrt functions that kernels call to synchronize a grid. Own implementation
// based on the documented behaviour of cooperative groups.

#ifndef GPUSHARED_COMMON_PTX_LINK_DEVICE_RUNTIME_H_
#define GPUSHARED_COMMON_PTX_LINK_DEVICE_RUNTIME_H_

#include <array>
#include <string_view>

namespace gpushared::ptx {

inline constexpr std::array<std::string_view, 2> kDeviceRuntimeNames = {"cudaCGGetIntrinsicHandle",
                                                                        "cudaCGSynchronize"};

// The handle of a grid is the address of its workspace, or 0 if the grid has none. A cooperative
// launch passes the high half in %envreg1 and the low half in %envreg2. The word at offset 4 counts
// arrivals. Each block adds 1, except that the first block adds 2^31 minus the number of the other
// blocks, so that the highest bit changes when all blocks have arrived.
inline constexpr std::string_view kDeviceRuntime = R"ptx(
.version 6.0
.target sm_60
.address_size 64

.weak .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
  .reg .pred %p1;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u32 %r1, [scope];
  mov.u32 %r2, %envreg1;
  mov.u32 %r3, %envreg2;
  cvt.u64.u32 %rd1, %r2;
  cvt.u64.u32 %rd2, %r3;
  shl.b64 %rd1, %rd1, 32;
  or.b64 %rd1, %rd1, %rd2;
  setp.eq.u32 %p1, %r1, 1;
  selp.b64 %rd3, %rd1, 0, %p1;
  st.param.b64 [handle], %rd3;
  ret;
}

.weak .func (.param .b32 error) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
  .reg .pred %p<4>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [handle];
  setp.eq.u64 %p1, %rd1, 0;
  mov.u32 %r1, 1;
  @%p1 bra DONE;
  bar.sync 0;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %tid.y;
  mov.u32 %r4, %tid.z;
  or.b32 %r2, %r2, %r3;
  or.b32 %r2, %r2, %r4;
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra MEET;
  mov.u32 %r5, %nctaid.x;
  mov.u32 %r6, %nctaid.y;
  mov.u32 %r7, %nctaid.z;
  mul.lo.u32 %r5, %r5, %r6;
  mul.lo.u32 %r5, %r5, %r7;
  mov.u32 %r8, %ctaid.x;
  mov.u32 %r9, %ctaid.y;
  mov.u32 %r10, %ctaid.z;
  or.b32 %r8, %r8, %r9;
  or.b32 %r8, %r8, %r10;
  setp.eq.u32 %p3, %r8, 0;
  sub.u32 %r11, 0x80000001, %r5;
  selp.b32 %r12, %r11, 1, %p3;
  add.u64 %rd2, %rd1, 4;
  membar.gl;
  atom.add.u32 %r13, [%rd2], %r12;
WAIT:
  ld.volatile.u32 %r14, [%rd2];
  xor.b32 %r15, %r14, %r13;
  setp.ge.s32 %p3, %r15, 0;
  @%p3 bra WAIT;
  membar.gl;
MEET:
  bar.sync 0;
  mov.u32 %r1, 0;
DONE:
  st.param.b32 [error], %r1;
  ret;
}
)ptx";

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_LINK_DEVICE_RUNTIME_H_
