// SPDX-License-Identifier: Apache-2.0
// Which kernels get a preemptible form, the reasons why others do not, and the resulting text.
// Tests in tests/passes verify that the form computes the same results.
#include "server/ptx/passes/claim.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/editor.h"
#include "server/ptx/passes/fence.h"
#include "tests/ptx/parsed.h"

namespace gpushared::ptx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Claims ClaimText(const std::string& text, const std::string& target = "sm_75") {
  return Claim(Parsed(text, target));
}

// Claims one kernel whose body has these lines, beginning at line 6.
PreemptibleKernel ClaimBody(const std::string& body) {
  const Claims claims = ClaimText(
      ".entry k() {\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n" + body + "\nret;\n}");
  EXPECT_EQ(claims.kernels.size(), 1u);
  return claims.kernels.empty() ? PreemptibleKernel() : claims.kernels[0];
}

std::string PreemptibleText(const Claims& claims) {
  const Function* function = claims.module.FindFunction(claims.kernels.at(0).claimed);
  EXPECT_NE(function, nullptr);
  if (function == nullptr) return {};
  Module alone;
  alone.items.emplace_back(*function);
  return Print(alone);
}

TEST(Claim, KeepsTheOriginalBesideTheClaimedForm) {
  const Claims claims = ClaimText(
      ".global .b32 g;\n.visible .entry a(.param .u32 n)\n.maxntid 256, 1, 1\n{\nret;\n}\n"
      ".visible .entry b() {\nret;\n}\n");
  ASSERT_EQ(claims.kernels.size(), 2u);
  EXPECT_EQ(claims.kernels[0].kernel, "a");
  EXPECT_EQ(claims.kernels[1].kernel, "b");
  EXPECT_EQ(claims.kernels[0].parameter_offset, 8u);
  EXPECT_EQ(claims.kernels[1].parameter_offset, 0u);
  const Function* original = claims.module.FindFunction("a");
  ASSERT_NE(original, nullptr);
  EXPECT_EQ(original->parameters.size(), 1u);
  const Function* claimed = claims.module.FindFunction(claims.kernels[0].claimed);
  ASSERT_NE(claimed, nullptr);
  EXPECT_EQ(claimed->linkage, ".visible");
  ASSERT_EQ(claimed->performance.size(), 1u);
  EXPECT_EQ(claimed->parameters[0].name, "n");
  EXPECT_EQ(ParameterBytes(*claimed), 8 + sizeof(ClaimParameter));
}

TEST(Claim, DeclarationsGetNoClaimedForm) {
  EXPECT_TRUE(ClaimText(".visible .entry k(.param .u32 n);\n").kernels.empty());
}

TEST(Claim, SharedSymbolOfClaimDoesNotMoveSharedMemoryOfClient) {
  const std::string text = Print(ClaimText(".entry k() {\nret;\n}").module);
  EXPECT_THAT(text, HasSubstr(".extern .shared .align 1 .b8 __gs0_shared[];"));
}

TEST(Claim, ModuleWithoutClaimedKernelsIsUnchanged) {
  const Claims claims = ClaimText(".entry k() {\n.reg .b32 %r;\nmov.u32 %r, %envreg1;\nret;\n}");
  EXPECT_EQ(claims.module.items.size(), 1u);
}

TEST(Claim, OneDimensionNeverDividesTwiceAndPublishesOneWord) {
  const std::string one =
      PreemptibleText(ClaimText(".entry k() {\n.reg .b32 %r;\nmov.u32 %r, %ctaid.x;\nret;\n}"));
  EXPECT_THAT(one, Not(HasSubstr("div.u32")));
  EXPECT_THAT(one, HasSubstr("rem.u32"));
  EXPECT_EQ(one.find("st.shared"), one.rfind("st.shared"));
  const std::string three =
      PreemptibleText(ClaimText(".entry k() {\n.reg .b32 %r;\nmov.u32 %r, %ctaid.y;\nret;\n}"));
  EXPECT_THAT(three, HasSubstr("div.u32"));
}

TEST(Claim, AllThreadsWaitUntilTheFirstHasPublished) {
  const std::string text =
      PreemptibleText(ClaimText(".entry k() {\n.reg .b32 %r;\nmov.u32 %r, %ctaid.y;\nret;\n}"));
  const std::size_t barrier = text.find("bar.sync 0;");
  ASSERT_NE(barrier, std::string::npos);
  EXPECT_LT(text.rfind("st.shared"), barrier);
  EXPECT_GT(text.find("ld.shared"), barrier);
  // The branch around the claim leads to the barrier, not beyond it.
  const std::size_t branch = text.find(" bra ");
  const std::string label = text.substr(branch + 5, text.find(';', branch) - branch - 5);
  EXPECT_EQ(text.find(label + ":\n\tbar.sync 0;") + label.size() + 3, barrier);
}

TEST(Claim, StopWordIsReadStronglyIfTheTargetSupportsIt) {
  EXPECT_THAT(PreemptibleText(ClaimText(".entry k() {\nret;\n}")),
              HasSubstr("ld.relaxed.sys.global.u32"));
  EXPECT_THAT(PreemptibleText(ClaimText(".entry k() {\nret;\n}", "sm_61")),
              HasSubstr("ld.volatile.global.u32"));
}

TEST(Claim, RejectionsNameLineAndReason) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"mov.u32 %r0, %envreg2;", "line 6: grid-wide synchronisation"},
      {"barrier.cluster.arrive;", "line 6: clusters of blocks"},
      {"L: ld.volatile.global.u32 %r0, [%rd0]; setp.eq.u32 %p0, %r0, 0; @%p0 bra L;",
       "line 6: waiting for other blocks (the loop of line 6 waits for memory at '%rd0')"},
      {"mov.u64 %rd0, %gridid;", "line 6: reads %gridid, which claiming would change"},
      {"mov.u32 %r0, %total_smem_size;",
       "line 6: reads %total_smem_size, which claiming would change"},
      {"mov.u32 %r0, %aggr_smem_size;",
       "line 6: reads %aggr_smem_size, which claiming would change"},
      {"mov.u32 %r0, %clusterid.x;", "line 6: reads %clusterid.x, which claiming would change"},
      {"mov.u32 %r0, %ctaid.w;", "line 6: reads %ctaid.w, which claiming would change"},
      {"mov.u16 %r0, %ctaid.x;", "line 6: reads %ctaid.x other than as a 32-bit register"},
      {"cvt.u64.u16 %rd0, %nctaid.x;", "line 6: reads %nctaid.x other than as a 32-bit register"},
      {".global .b32 inside;", "line 6: declares 'inside' in its body"},
      {"bra nowhere;", "ptx: line 6: branch to label 'nowhere', which does not exist"},
  };
  for (const auto& [body, reason] : cases) {
    const PreemptibleKernel kernel = ClaimBody(body);
    EXPECT_EQ(kernel.reason, reason);
    EXPECT_EQ(kernel.claimed, "");
  }
}

TEST(Claim, ClaimsKernelsWhoseReadsStayValid) {
  for (const char* body : {"cvt.u64.u32 %rd0, %ctaid.x;", "mul.wide.u32 %rd0, %ctaid.x, 4;",
                           "trap;", "mov.b64 %rd0, {%ctaid.x, %nctaid.z};",
                           "setp.eq.u32 %p0, %ctaid.x, 3;", "mov.u32 %r0, %smid;", "bar.sync 0;"}) {
    EXPECT_EQ(ClaimBody(body).reason, "") << body;
  }
}

// The poll loops of contained kernels check whether the server has requested their end. They do not
// wait for other blocks.
TEST(Claim, PollingLoopsOfContainedKernelsAreNoWaits) {
  const Module module = Parsed(
      ".func (.param .b32 q) f() { .reg .b32 %r; .reg .pred %p; A: setp.ne.u32 %p, %r, 0;\n"
      "@%p bra A; st.param.b32 [q], %r; ret; }\n"
      ".entry loops() { .reg .b32 %r; .reg .pred %p; A: { .param .b32 q; call (q), f;\n"
      "ld.param.b32 %r, [q]; } setp.ne.u32 %p, %r, 1; @%p bra A; ret; }\n"
      ".entry waits(.param .u64 a) { .reg .b32 %r; .reg .b64 %rd; .reg .pred %p;\n"
      "ld.param.u64 %rd, [a]; A: ld.volatile.global.u32 %r, [%rd]; setp.ne.u32 %p, %r, 1;\n"
      "@%p bra A; ret; }\n");
  const Result<Fenced> contained = Contain(module, kFenceRangeBytesMin);
  ASSERT_TRUE(contained) << contained.status().message();
  const Claims claims = Claim(contained->module);
  ASSERT_EQ(claims.kernels.size(), 2u);
  EXPECT_EQ(claims.kernels[0].reason, "");
  EXPECT_THAT(claims.kernels[1].reason, HasSubstr("line 9:"));
}

TEST(Claim, FunctionsThatReadTheLaunchKeepTheirKernelsFromBeingClaimed) {
  const auto reason = [](const std::string& body) {
    const Claims claims = ClaimText(".func f() {\n.reg .b32 %r;\n" + body +
                                    "\nret;\n}\n.entry k() {\ncall f;\nret;\n}\n");
    return claims.kernels.at(0).reason;
  };
  EXPECT_THAT(reason("mov.u32 %r, %nctaid.x;"), HasSubstr("block index"));
  EXPECT_THAT(reason("mov.u32 %r, %dynamic_smem_size;"),
              AllOf(HasSubstr("%dynamic_smem_size"), HasSubstr("'f'")));
  EXPECT_EQ(reason("mov.u32 %r, %tid.x;"), "");
}

TEST(Claim, KernelThatCallsAnotherModulesFunctionIsNotClaimed) {
  const Claims claims = ClaimText(".extern .func far();\n.entry k() {\ncall far;\nret;\n}\n");
  EXPECT_THAT(claims.kernels.at(0).reason, HasSubstr("'far'"));
}

TEST(Claim, UncalledFunctionMayReadTheLaunch) {
  const Claims claims = ClaimText(
      ".func f() {\n.reg .b32 %r;\nmov.u32 %r, %ctaid.x;\nret;\n}\n.entry k() {\nret;\n}\n");
  EXPECT_EQ(claims.kernels.at(0).reason, "");
}

TEST(Claim, KernelWithoutSpaceForTheParameterIsNamed) {
  const Claims claims = ClaimText(".entry k(.param .align 4 .b8 a[32764]) {\nret;\n}\n");
  EXPECT_THAT(claims.kernels.at(0).reason, AllOf(HasSubstr("'k'"), HasSubstr("32808")));
  EXPECT_EQ(claims.kernels.at(0).claimed, "");
}

TEST(Claim, ModulesOf32BitAddressesAreNotClaimed) {
  const Result<Module> module =
      Parse(".version 8.1\n.target sm_75\n.address_size 32\n.entry k() {\nret;\n}\n");
  ASSERT_TRUE(module);
  EXPECT_THAT(Claim(*module).kernels.at(0).reason, HasSubstr("32 bits"));
}

}  // namespace
}  // namespace gpushared::ptx
