// SPDX-License-Identifier: Apache-2.0
// Helpers of tests that run arbitrary code: a kernel from which the code is derived, and a run that
// ends soon.

#ifndef GPUSHARED_TESTS_EXECUTOR_BRIEF_RUN_H_
#define GPUSHARED_TESTS_EXECUTOR_BRIEF_RUN_H_

#include <chrono>
#include <string_view>

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/program.h"

namespace gpushared::testing {

// A kernel with branches, a table, a call with a parameter area, variables, a matrix, copies,
// prints, atomics, textures and a stack.
inline constexpr std::string_view kManyForms = R"(
.version 7.8
.target sm_80
.address_size 64
.global .align 8 .u64 counter = 5;
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.func (.param .b32 out) twice (.param .b32 in)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [in];
  add.u32 %r2, %r1, %r1;
  st.param.b32 [out], %r2;
  ret;
}
.visible .entry all (.param .u64 to, .param .u32 n)
{
  .reg .pred %p<4>;
  .reg .b32 %r<40>;
  .reg .b64 %rd<10>;
  .reg .b128 %q<2>;
  .shared .align 16 .b8 tile[256];
  .local .align 8 .b8 own[16];
  ld.param.u64 %rd1, [to];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.lt.u32 %p1, %r2, %r1;
  @!%p1 bra DONE;
  mov.u64 %rd2, counter;
  atom.global.add.u64 %rd3, [%rd2], 1;
  {
    .param .b32 a0;
    .param .b32 b0;
    st.param.b32 [a0], %r2;
    call (b0), twice, (a0);
    ld.param.b32 %r3, [b0];
  }
  mov.b128 %q0, {%rd3, 0};
  atom.global.cas.b128 %q1, [%rd1], %q0, %q0;
  stacksave.u64 %rd6;
  alloca.u64 %rd7, 64, 32;
  st.local.u32 [%rd7], %r3;
  stackrestore.u64 %rd6;
  vabsdiff4.u32.u32.u32.add %r3, %r3, %r2, %r3;
  mov.u32 %r20, tile;
  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r20];
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r10, %r11, %r12, %r13}, {%r4, %r5}, {%r6}, {%r10, %r11, %r12, %r13};
  cp.async.ca.shared.global [%r20], [%rd1], 8;
  bfi.b32 %r7, %r2, %r3, 3, 4;
  vote.sync.ballot.b32 %r8, %p1, 0xffffffff;
  selp.b32 %r9, %r7, %r8, %p1;
  st.local.u32 [own], %r9;
  and.b32 %r14, %r2, 1;
LIST: .branchtargets ONE, TWO;
  brx.idx %r14, LIST;
ONE:
  add.u32 %r9, %r9, 1;
TWO:
  bar.sync 0;
  mul.wide.u32 %rd4, %r2, 4;
  add.u64 %rd5, %rd1, %rd4;
  st.global.u32 [%rd5], %r3;
  tex.3d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd1, {%r2, %r2, %r3, %r3}];
  suld.b.2d.v2.b32.zero {%r10, %r11}, [%rd1, {%r2, %r3}];
DONE:
  ret;
}
)";

// Runs the program on newly allocated memory and kills it after `patience`.
device::executor::RunOutcome RunBriefly(
    const device::executor::Program& program,
    std::chrono::milliseconds patience = std::chrono::milliseconds(20));

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_EXECUTOR_BRIEF_RUN_H_
