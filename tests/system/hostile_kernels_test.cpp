// SPDX-License-Identifier: Apache-2.0
// Kernels that mean harm, on real servers whose cpu device runs them as the passes make them for a
// GPU: a neighbour's memory keeps every byte, the worker goes on, and who did it is told.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kNeighbourBytes = std::size_t{1} << 20;

// %rd1 is the client's own memory, %rd2 lies in the neighbour's.
std::string KernelText(const std::string& body, const std::string& module = "") {
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + module +
         "\n.visible .entry k(.param .u64 own, .param .u64 other)\n{\n"
         ".reg .b64 %rd<16>;\n.reg .b32 %r<32>;\n.reg .pred %p<8>;\n"
         "ld.param.u64 %rd1, [own];\nld.param.u64 %rd2, [other];\nmov.u32 %r9, %tid.x;\n" +
         body + "\nret;\n}\n";
}

enum class End : std::uint8_t { kRuns, kFaults, kIsEnded, kIsRefused };

struct Hostile {
  const char* name;
  const char* body;
  const char* module = "";
  End fenced = End::kRuns, contained = End::kRuns;
  const char* says = "";  // In the error, contained.
};

constexpr const char* kShared = ".shared .align 4 .b8 s[64];";
constexpr const char* kAssert =
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
    ".param .b64 e);";

constexpr Hostile kHostile[] = {
    {"global", "st.global.u32 [%rd2], 6;"},
    {"global_read", "ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;"},
    {"generic", "st.u32 [%rd2], 6;"},
    {"vector", "st.global.v4.u32 [%rd2], {%r9, %r9, %r9, %r9};"},
    {"atomic", "atom.global.add.u32 %r1, [%rd2], 1; red.global.xor.b32 [%rd2+64], 3;"},
    {"negative_offset", "add.s64 %rd3, %rd2, 64; st.global.u32 [%rd3+-64], 6;"},
    {"folded_offset", "sub.s64 %rd3, %rd2, 0x40000000; st.global.u32 [%rd3+0x40000000], 6;"},
    {"misaligned", "add.s64 %rd3, %rd1, 2; st.global.u64 [%rd3], %rd2;", "", End::kFaults},
    {"null", "ld.global.u32 %r1, [0];"},
    {"beyond_its_memory", "add.s64 %rd3, %rd1, 0x10000000; st.global.u32 [%rd3], 6;", "",
     End::kFaults},
    {"trap", "trap;", "", End::kFaults, End::kFaults, "trap at line 13 of 'k'"},
    {"assert", "call __assertfail, (%rd2, %rd2, %r9, %rd2, %rd2);", kAssert, End::kFaults,
     End::kFaults, "failed assertion at line 13 of 'k'"},
    {"shared_overflow", "mov.u32 %r1, s; st.shared.u32 [%r1+0x100000], 6;", kShared, End::kFaults},
    {"shared_residue", "mov.u32 %r1, s; ld.shared.u32 %r2, [%r1+60]; st.global.u32 [%rd1], %r2;",
     kShared},
    {"endless_loop", "L: bra L;", "", End::kIsEnded, End::kIsEnded},
    {"call_through_an_argument", "call %rd2, P;\nP: .callprototype _ ();", "", End::kIsRefused,
     End::kIsRefused},
    {"overwritten_function_pointer",
     "mov.u64 %rd4, t; st.global.u64 [%rd4], %rd2; ld.global.u64 %rd5, [t];\ncall %rd5, P;\n"
     "P: .callprototype _ ();",
     ".global .u64 t = 0;", End::kIsRefused, End::kIsRefused},
    {"unbounded_branch",
     "cvt.u32.u64 %r1, %rd2; or.b32 %r1, %r1, 0x70000000; brx.idx %r1, T;\n"
     "T: .branchtargets A, B;\nA: st.global.u32 [%rd2], 6;\nB: st.global.u32 [%rd2], 7;"},
};

class HostileKernels : public ::testing::TestWithParam<const char*> {
 protected:
  bool contains() const { return std::string(GetParam()).find("contain") != std::string::npos; }

  static Client Connect(const ServerProcess& server, const char* name, SchedulingClass its_class) {
    Result<Client> client =
        Client::Connect({.name = name, .scheduling_class = its_class, .socket = server.socket()});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? *std::move(client) : Client();
  }

  // How the kernel has ended.
  static Status Run(const Client& client, const Hostile& hostile, DeviceAddress target) {
    const Result<Module> module = client.LoadModule(KernelText(hostile.body, hostile.module));
    if (!module.ok()) return module.status();
    const DeviceBuffer own = *client.AllocateDevice(1 << 16);
    const Stream stream = *client.CreateStream();
    const Status launched =
        stream.Launch(*module->GetKernel("k"), {.grid = {2, 1, 1}}, own.address(), target);
    return launched.ok() ? stream.Synchronize() : launched;
  }

  void ExpectEnd(const Hostile& hostile, const Status& status) const {
    const End end = contains() ? hostile.contained : hostile.fenced;
    const StatusCode codes[] = {StatusCode::kOk, StatusCode::kKernelFault,
                                StatusCode::kLimitExceeded, StatusCode::kUnsupported};
    EXPECT_EQ(status.code(), codes[static_cast<std::size_t>(end)]) << status.ToString();
    if (end == End::kRuns) return;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("k'"), HasSubstr(contains() ? hostile.says : "")));
    if (end == End::kIsEnded) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("kernels of class low may run 0.2 s"));
    }
  }
};

TEST_P(HostileKernels, ChangeNoByteOfANeighboursAndEndNobody) {
  const ServerProcess server(
      {"--device", "cpu:0", "--cpu-run-passes", GetParam(), "--kernel-limit", "low=200ms"});
  const Client neighbour = Connect(server, "neighbour", SchedulingClass::kNormal);
  std::vector<std::uint8_t> bytes(kNeighbourBytes), now(kNeighbourBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(0x5e ^ i * 2654435761U >> 13);
  }
  const DeviceBuffer memory = *neighbour.AllocateDevice(bytes.size());
  const Stream& stream = neighbour.default_stream();
  ASSERT_TRUE(stream.CopyToDevice(memory.address(), bytes.data(), bytes.size()).ok());
  const Client client = Connect(server, "hostile", SchedulingClass::kLow);
  for (const Hostile& hostile : kHostile) {
    SCOPED_TRACE(hostile.name);
    ExpectEnd(hostile, Run(client, hostile, memory.address() + kNeighbourBytes / 2));
    ASSERT_TRUE(stream.CopyToHost(now.data(), memory.address(), now.size()).ok());
    EXPECT_EQ(bytes, now);
  }
  // The neighbour's own kernels still run, and so do those of the client.
  const Hostile harmless = {.name = "", .body = "st.global.u32 [%rd1], 1;"};
  EXPECT_TRUE(Run(neighbour, harmless, 0).ok());
  EXPECT_TRUE(Run(client, harmless, 0).ok());
  EXPECT_THAT(server.Log(), Not(HasSubstr("generation 2")));
}

INSTANTIATE_TEST_SUITE_P(All, HostileKernels,
                         ::testing::Values("fence", "contain", "claim,fence", "claim,contain"),
                         [](const auto& any) {
                           std::string name = any.param;
                           for (char& c : name) {
                             if (c == ',') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace gpushared::testing
