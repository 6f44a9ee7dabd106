// SPDX-License-Identifier: Apache-2.0
#include "tests/support/hostile_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace gpushared::testing {
namespace {

using enum HostileKernel::End;

constexpr std::size_t kOwnBytes = std::size_t{1} << 16;
constexpr std::uint32_t kDynamicSharedBytes = 4096;

// %rd1 is the client's own memory, %rd2 points into the neighbour's.
std::string KernelText(const std::string& body, const std::string& module) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + module +
         "\n.visible .entry k(.param .u64 own, .param .u64 other)\n{\n"
         ".reg .b64 %rd<16>;\n.reg .b32 %r<32>;\n.reg .pred %p<8>;\n"
         "ld.param.u64 %rd1, [own];\nld.param.u64 %rd2, [other];\nmov.u32 %r9, %tid.x;\n" +
         body + "\nret;\n}\n";
}

constexpr const char* kShared = ".shared .align 4 .b8 s[64];";
constexpr const char* kAssert =
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
    ".param .b64 e);";

constexpr HostileKernel kHostile[] = {
    {"global", "st.global.u32 [%rd2], 6;"},
    {"global_read", "ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;"},
    {"generic", "st.u32 [%rd2], 6;"},
    {"generic_read", "ld.volatile.u32 %r1, [%rd2]; st.u32 [%rd1], %r1;"},
    {"vector", "st.global.v4.u32 [%rd2], {%r9, %r9, %r9, %r9};"},
    {"vector_read",
     "ld.global.v2.u64 {%rd4, %rd5}, [%rd2]; st.global.v2.u64 [%rd1], {%rd4, %rd5};"},
    {"atomic",
     "atom.global.add.u32 %r1, [%rd2], 1; red.global.xor.b32 [%rd2+64], 3;\n"
     "st.global.u32 [%rd1], %r1;"},
    {"generic_atomic", "atom.exch.b32 %r1, [%rd2], 1; st.u32 [%rd1], %r1;"},
    {"negative_offset", "add.s64 %rd3, %rd2, 64; st.global.u32 [%rd3+-64], 6;"},
    {"folded_offset", "sub.s64 %rd3, %rd2, 0x40000000; st.global.u32 [%rd3+0x40000000], 6;"},
    {"negative_folded_offset",
     "add.s64 %rd3, %rd2, 0x40000000; ld.global.u32 %r1, [%rd3+-1073741824];\n"
     "st.global.u32 [%rd3+-1073741824], 6; st.global.u32 [%rd1], %r1;"},
    {"copy_past_registers",
     "mov.u32 %r1, s; cp.async.ca.shared.global [%r1], [%rd2], 4; cp.async.wait_all;\n"
     "ld.shared.u32 %r2, [s]; st.global.u32 [%rd1], %r2;",
     ".shared .align 16 .b8 s[64];"},
    {"misaligned", "add.s64 %rd3, %rd1, 2; st.global.u64 [%rd3], 5;", "", kFaults},
    {"null", "ld.global.u32 %r1, [0]; st.global.u32 [%rd1], %r1;"},
    {"beyond_its_memory", "add.s64 %rd3, %rd1, 0x10000000; st.global.u32 [%rd3], 6;", "", kFaults},
    {"trap", "trap;", "", kFaults, kFaults, "trap at line 13 of 'k'"},
    {"breakpoint", "brkpt;", "", kFaults, kFaults, "breakpoint at line 13 of 'k'"},
    {"assert", "call __assertfail, (%rd2, %rd2, %r9, %rd2, %rd2);", kAssert, kFaults, kFaults,
     "failed assertion at line 13 of 'k'"},
    {"shared_overflow", "mov.u32 %r1, s; st.shared.u32 [%r1+0x100000], 6;", kShared, kFaults},
    {"shared_start", "st.shared.u32 [0], 6; st.shared.u32 [0x3fc], 6;", kShared},
    {"before_shared", "mov.u32 %r1, 0; st.shared.u32 [%r1], 6; st.shared.u32 [%r1+0x3fc], 6;",
     kShared},
    {"local_overflow",
     ".local .align 8 .b8 l[16]; mov.u64 %rd4, l; add.s64 %rd4, %rd4, 0x100000;\n"
     "st.local.u32 [%rd4], 6;"},
    {"shared_residue",
     "mov.u32 %r1, s; mov.u32 %r2, 0; mov.u32 %r3, 0;\n"
     "R: ld.shared.u32 %r4, [%r1]; or.b32 %r2, %r2, %r4; add.u32 %r1, %r1, 4;\n"
     "add.u32 %r3, %r3, 4; setp.lt.u32 %p1, %r3, 8192;\n@%p1 bra R;\nst.global.u32 [%rd1], %r2;",
     ".shared .align 4 .b8 s[8192];"},
    {"dynamic_shared_residue",
     "mov.u32 %r1, d; mov.u32 %r2, 0; mov.u32 %r3, 0;\n"
     "R: ld.shared.u32 %r4, [%r1]; or.b32 %r2, %r2, %r4; add.u32 %r1, %r1, 4;\n"
     "add.u32 %r3, %r3, 4; setp.lt.u32 %p1, %r3, 4096;\n@%p1 bra R;\nst.global.u32 [%rd1], %r2;",
     ".extern .shared .align 4 .b8 d[];"},
    {"local_residue",
     ".local .align 4 .b8 l[512]; mov.u64 %rd4, l; mov.u32 %r2, 0; mov.u32 %r3, 0;\n"
     "R: ld.local.u32 %r4, [%rd4]; or.b32 %r2, %r2, %r4; add.s64 %rd4, %rd4, 4;\n"
     "add.u32 %r3, %r3, 4; setp.lt.u32 %p1, %r3, 512;\n@%p1 bra R;\nst.global.u32 [%rd1], %r2;"},
    {"register_residue", "st.global.v4.u32 [%rd1], {%r20, %r21, %r22, %r23};"},
    {"endless_loop", "L: bra L;", "", kIsEnded, kIsEnded},
    {"endless_wait", "L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;",
     "", kIsEnded, kIsEnded},
    {"call_through_an_argument", "P: .callprototype _ ();\ncall %rd2, P;", "", kIsRejected,
     kIsRejected},
    {"overwritten_function_pointer",
     "mov.u64 %rd4, t; st.global.u64 [%rd4], %rd2; ld.global.u64 %rd5, [t];\n"
     "P: .callprototype _ ();\ncall %rd5, P;",
     ".global .u64 t = 0;", kIsRejected, kIsRejected},
    {"unbounded_branch",
     "T: .branchtargets A, B;\n"
     "cvt.u32.u64 %r1, %rd2; or.b32 %r1, %r1, 0x70000000; brx.idx %r1, T;\n"
     "A: st.global.u32 [%rd2], 6;\nB: st.global.u32 [%rd2], 7;"},
};

constexpr HostileKernel kHarmless = {.name = "harmless", .body = "st.global.u32 [%rd1], 1;"};

// Every thread writes its part of the memory and reads some of it again, because a compiler drops
// data that is never read.
constexpr HostileKernel kLeavesResidue = {
    .name = "residue",
    .body =
        ".local .align 4 .b8 l[512]; mov.u32 %r1, s; mad.lo.u32 %r1, %r9, 4, %r1;\n"
        "mov.u32 %r2, 0xdededede; mov.u32 %r3, %r9; mov.u32 %r5, %ntid.x;\n"
        "mul.lo.u32 %r6, %r5, 4;\n"
        "S: st.volatile.shared.u32 [%r1], %r2; add.u32 %r1, %r1, %r6; add.u32 %r3, %r3, %r5;\n"
        "setp.lt.u32 %p1, %r3, 10240;\n@%p1 bra S;\n"
        "mul.wide.u32 %rd3, %r9, 4; mov.u64 %rd4, l; add.s64 %rd5, %rd3, %rd4;\n"
        "mov.u32 %r3, 0;\n"
        "T: st.local.u32 [%rd4], %r2; add.s64 %rd4, %rd4, 4; add.u32 %r3, %r3, 4;\n"
        "setp.lt.u32 %p1, %r3, 512;\n@%p1 bra T;\n"
        "ld.local.u32 %r7, [%rd5]; add.s64 %rd6, %rd1, %rd3; st.global.u32 [%rd6], %r7;",
    .module = ".shared .align 4 .b8 s[40960];"};

Status Run(const Client& client, const HostileKernel& kernel, const LaunchShape& shape,
           DeviceAddress own, DeviceAddress other) {
  const Result<Module> module = client.LoadModule(KernelText(kernel.body, kernel.module));
  if (!module.ok()) return module.status();
  const Result<Stream> stream = client.CreateStream();
  if (!stream.ok()) return stream.status();
  const Status launched = stream->Launch(*module->GetKernel("k"), shape, own, other);
  return launched.ok() ? stream->Synchronize() : launched;
}

Status RunOnOwnMemory(const Client& client, const HostileKernel& kernel, const LaunchShape& shape) {
  const Result<DeviceBuffer> own = client.AllocateDevice(kOwnBytes);
  return own.ok() ? Run(client, kernel, shape, own->address(), 0) : own.status();
}

}  // namespace

std::span<const HostileKernel> HostileKernels() { return kHostile; }

HostileOutcome RunHostile(const Client& client, const HostileKernel& kernel, DeviceAddress target) {
  const Result<DeviceBuffer> own = client.AllocateDevice(kOwnBytes);
  if (!own.ok()) return {.status = own.status()};
  HostileOutcome outcome;
  outcome.status = Run(
      client, kernel, {.grid = {2, 1, 1}, .block = {}, .dynamic_shared_bytes = kDynamicSharedBytes},
      own->address(), target);
  std::vector<std::uint8_t> bytes(kOwnBytes);
  const Status read = client.default_stream().CopyToHost(bytes.data(), *own, bytes.size());
  if (!read.ok() && outcome.status.ok()) outcome.status = read;
  outcome.found_others =
      std::ranges::any_of(bytes, [](std::uint8_t byte) { return (byte & kOthersBit) != 0; });
  return outcome;
}

Status RunHarmless(const Client& client) { return RunOnOwnMemory(client, kHarmless, {}); }

Status LeaveResidue(const Client& client) {
  return RunOnOwnMemory(client, kLeavesResidue, {.grid = {1024, 1, 1}, .block = {128, 1, 1}});
}

std::string WhyNotItsEnd(const HostileKernel& kernel, HostilePlace place, const Status& status) {
  constexpr std::array kCodes = {StatusCode::kOk, StatusCode::kKernelFault,
                                 StatusCode::kKernelFault, StatusCode::kUnsupported};
  const bool is_contained = place == HostilePlace::kContained;
  const HostileKernel::End end = is_contained ? kernel.contained : kernel.fenced;
  const bool takes_context = place == HostilePlace::kFenced && (end == kFaults || end == kIsEnded);
  const StatusCode wanted =
      takes_context ? StatusCode::kDeviceLost : kCodes.at(static_cast<std::size_t>(end));
  if (status.code() != wanted) {
    return "ended with " + status.ToString() + ", expected " + std::string(StatusCodeName(wanted));
  }
  if (end == kRuns) return "";
  const std::string text(status.message());
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  const bool is_right = says("k'") && (!is_contained || says(kernel.says)) &&
                        (end != kIsEnded || says("kernels of class low may run "));
  return is_right ? "" : "does not say what happened: " + text;
}

}  // namespace gpushared::testing
