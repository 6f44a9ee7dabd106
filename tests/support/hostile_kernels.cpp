// SPDX-License-Identifier: Apache-2.0
#include "tests/support/hostile_kernels.h"

#include <array>
#include <cstddef>

namespace gpushared::testing {
namespace {

using enum HostileKernel::End;

// %rd1 is the client's own memory, %rd2 lies in the neighbour's.
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
    {"vector", "st.global.v4.u32 [%rd2], {%r9, %r9, %r9, %r9};"},
    {"atomic", "atom.global.add.u32 %r1, [%rd2], 1; red.global.xor.b32 [%rd2+64], 3;"},
    {"negative_offset", "add.s64 %rd3, %rd2, 64; st.global.u32 [%rd3+-64], 6;"},
    {"folded_offset", "sub.s64 %rd3, %rd2, 0x40000000; st.global.u32 [%rd3+0x40000000], 6;"},
    {"misaligned", "add.s64 %rd3, %rd1, 2; st.global.u64 [%rd3], %rd2;", "", kFaults},
    {"null", "ld.global.u32 %r1, [0];"},
    {"beyond_its_memory", "add.s64 %rd3, %rd1, 0x10000000; st.global.u32 [%rd3], 6;", "", kFaults},
    {"trap", "trap;", "", kFaults, kFaults, "trap at line 13 of 'k'"},
    {"assert", "call __assertfail, (%rd2, %rd2, %r9, %rd2, %rd2);", kAssert, kFaults, kFaults,
     "failed assertion at line 13 of 'k'"},
    {"shared_overflow", "mov.u32 %r1, s; st.shared.u32 [%r1+0x100000], 6;", kShared, kFaults},
    {"shared_residue", "mov.u32 %r1, s; ld.shared.u32 %r2, [%r1+60]; st.global.u32 [%rd1], %r2;",
     kShared},
    {"endless_loop", "L: bra L;", "", kIsEnded, kIsEnded},
    {"call_through_an_argument", "call %rd2, P;\nP: .callprototype _ ();", "", kIsRefused,
     kIsRefused},
    {"overwritten_function_pointer",
     "mov.u64 %rd4, t; st.global.u64 [%rd4], %rd2; ld.global.u64 %rd5, [t];\ncall %rd5, P;\n"
     "P: .callprototype _ ();",
     ".global .u64 t = 0;", kIsRefused, kIsRefused},
    {"unbounded_branch",
     "cvt.u32.u64 %r1, %rd2; or.b32 %r1, %r1, 0x70000000; brx.idx %r1, T;\n"
     "T: .branchtargets A, B;\nA: st.global.u32 [%rd2], 6;\nB: st.global.u32 [%rd2], 7;"},
};

}  // namespace

std::span<const HostileKernel> HostileKernels() { return kHostile; }

Status RunHostile(const Client& client, const HostileKernel& kernel, DeviceAddress target) {
  const Result<Module> module = client.LoadModule(KernelText(kernel.body, kernel.module));
  if (!module.ok()) return module.status();
  const Result<DeviceBuffer> own = client.AllocateDevice(1 << 16);
  if (!own.ok()) return own.status();
  const Result<Stream> stream = client.CreateStream();
  if (!stream.ok()) return stream.status();
  const Status launched =
      stream->Launch(*module->GetKernel("k"), {.grid = {2, 1, 1}}, own->address(), target);
  return launched.ok() ? stream->Synchronize() : launched;
}

std::string WhyNotItsEnd(const HostileKernel& kernel, bool is_contained, const Status& status) {
  constexpr std::array kCodes = {StatusCode::kOk, StatusCode::kKernelFault,
                                 StatusCode::kLimitExceeded, StatusCode::kUnsupported};
  const HostileKernel::End end = is_contained ? kernel.contained : kernel.fenced;
  const StatusCode wanted = kCodes.at(static_cast<std::size_t>(end));
  if (status.code() != wanted) {
    return "ended with " + status.ToString() + ", expected " + std::string(StatusCodeName(wanted));
  }
  if (end == kRuns) return "";
  const std::string text(status.message());
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  const bool is_right = says("k'") && (!is_contained || says(kernel.says)) &&
                        (end != kIsEnded || says("kernels of class low may run 0.2 s"));
  return is_right ? "" : "does not say what happened: " + text;
}

}  // namespace gpushared::testing
