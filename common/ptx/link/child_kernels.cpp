// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/link/child_kernels.h"

#include <algorithm>
#include <cstddef>

namespace gpushared::ptx {
namespace {

// Offsets are those of ChildQueue and ChildRecord. ChildKernelRuntime replaces QUEUE_BYTES, HEADER,
// RECORDS and RECORD_BYTES.
constexpr std::string_view kRuntime = R"ptx(
.version 6.0
.target sm_60
.address_size 64

.visible .global .align 16 .b8 gpushared_child_queue[QUEUE_BYTES] = {HEADER};

.weak .func (.param .b64 buffer) __cudaCDP2GetParameterBufferV2(
  .param .b64 kernel, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12],
  .param .b32 shared_bytes)
{
  .reg .pred %p1;
  .reg .b32 %r<10>;
  .reg .b64 %rd<5>;
  mov.u64 %rd1, gpushared_child_queue;
  mov.u64 %rd2, 0;
  atom.global.add.u32 %r1, [%rd1], 1;
  setp.lt.u32 %p1, %r1, RECORDS;
  @%p1 bra FREE;
  mov.u32 %r2, 69;
  st.global.u32 [%rd1+8], %r2;
  bra DONE;
FREE:
  mul.wide.u32 %rd3, %r1, RECORD_BYTES;
  add.u64 %rd3, %rd3, %rd1;
  ld.param.u64 %rd4, [kernel];
  st.global.u64 [%rd3+32], %rd4;
  ld.param.b32 %r3, [grid];
  ld.param.b32 %r4, [grid+4];
  ld.param.b32 %r5, [grid+8];
  st.global.u32 [%rd3+48], %r3;
  st.global.u32 [%rd3+52], %r4;
  st.global.u32 [%rd3+56], %r5;
  ld.param.b32 %r3, [block];
  ld.param.b32 %r4, [block+4];
  ld.param.b32 %r5, [block+8];
  st.global.u32 [%rd3+60], %r3;
  st.global.u32 [%rd3+64], %r4;
  st.global.u32 [%rd3+68], %r5;
  ld.param.b32 %r6, [shared_bytes];
  st.global.u32 [%rd3+72], %r6;
  mov.u32 %r7, 0;
  st.global.u32 [%rd3+76], %r7;
  add.u64 %rd3, %rd3, 96;
  cvta.global.u64 %rd2, %rd3;
DONE:
  st.param.b64 [buffer], %rd2;
  ret;
}

.weak .func (.param .b32 error) __cudaCDP2LaunchDeviceV2(.param .b64 buffer, .param .b64 stream)
{
  .reg .pred %p1;
  .reg .b32 %r<4>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [buffer];
  ld.param.u64 %rd2, [stream];
  mov.u32 %r1, 69;
  setp.eq.u64 %p1, %rd1, 0;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd3, %rd1;
  mov.u64 %rd4, gpushared_child_queue;
  atom.global.add.u32 %r2, [%rd4+4], 1;
  st.global.u64 [%rd3+-56], %rd2;
  st.global.u32 [%rd3+-16], %r2;
  mov.u32 %r3, 1;
  st.global.u32 [%rd3+-20], %r3;
  mov.u32 %r1, 0;
DONE:
  st.param.b32 [error], %r1;
  ret;
}

.weak .func (.param .b32 error) __cudaCDP2LaunchDeviceV2_ptsz(.param .b64 buffer, .param .b64 stream)
{
  .reg .b32 %r1;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [buffer];
  ld.param.u64 %rd2, [stream];
  {
  .param .b64 given_buffer;
  st.param.b64 [given_buffer], %rd1;
  .param .b64 given_stream;
  st.param.b64 [given_stream], %rd2;
  .param .b32 result;
  call.uni (result), __cudaCDP2LaunchDeviceV2, (given_buffer, given_stream);
  ld.param.b32 %r1, [result];
  }
  st.param.b32 [error], %r1;
  ret;
}

.weak .func (.param .b32 error) __cudaCDP2StreamCreateWithFlags(.param .b64 made, .param .b32 flags)
{
  .reg .b32 %r1;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [made];
  mov.u64 %rd2, 16;
  st.u64 [%rd1], %rd2;
  mov.u32 %r1, 0;
  st.param.b32 [error], %r1;
  ret;
}

.weak .func (.param .b32 error) __cudaCDP2StreamDestroy(.param .b64 stream)
{
  .reg .b32 %r1;
  mov.u32 %r1, 0;
  st.param.b32 [error], %r1;
  ret;
}

.weak .func (.param .b32 error) __cudaCDP2GetLastError()
{
  .reg .b32 %r1;
  .reg .b64 %rd1;
  mov.u64 %rd1, gpushared_child_queue;
  atom.global.exch.b32 %r1, [%rd1+8], 0;
  st.param.b32 [error], %r1;
  ret;
}

.weak .func (.param .b32 error) __cudaCDP2PeekAtLastError()
{
  .reg .b32 %r1;
  .reg .b64 %rd1;
  mov.u64 %rd1, gpushared_child_queue;
  ld.volatile.global.u32 %r1, [%rd1+8];
  st.param.b32 [error], %r1;
  ret;
}
)ptx";

void Replace(std::string& text, std::string_view word, const std::string& by) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    text.replace(at, word.size(), by);
  }
}

std::string Bytes(std::uint32_t value) {
  std::string list;
  for (int i = 0; i < 4; ++i) list += ", " + std::to_string(value >> (8 * i) & 0xff);
  return list;
}

}  // namespace

std::string ChildKernelRuntime(std::uint64_t parameter_bytes_max) {
  const std::uint64_t record_bytes = sizeof(ChildRecord) + (parameter_bytes_max + 15) / 16 * 16;
  const std::uint64_t records =
      std::clamp<std::uint64_t>(kChildQueueBytesMax / record_bytes, 1, kChildRecordsMax);
  std::string header = "0";
  for (std::size_t i = 1; i < offsetof(ChildQueue, records); ++i) header += ", 0";
  header += Bytes(static_cast<std::uint32_t>(records));
  header += Bytes(static_cast<std::uint32_t>(record_bytes));
  std::string text(kRuntime);
  Replace(text, "QUEUE_BYTES", std::to_string(sizeof(ChildQueue) + records * record_bytes));
  Replace(text, "RECORD_BYTES", std::to_string(record_bytes));
  Replace(text, "RECORDS", std::to_string(records));
  Replace(text, "HEADER", header);
  return text;
}

}  // namespace gpushared::ptx
