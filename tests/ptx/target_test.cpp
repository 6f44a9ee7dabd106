// SPDX-License-Identifier: Apache-2.0
// Versions and targets of PTX that ptxas of CUDA 13.0 accepts.
#include "common/ptx/text/target.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"

namespace gpushared::ptx {
namespace {

using ::testing::HasSubstr;

Status GetCheck(const std::string& version, const std::string& target, std::uint32_t newest = 90) {
  const Result<Module> module =
      Parse(".version " + version + "\n.target " + target + "\n.address_size 64\n");
  return module ? CheckTarget(*module, newest) : module.status();
}

TEST(PtxTarget, KnowsTheVersionsOfCuda) {
  for (const char* known : {"1.0", "1.5", "2.3", "3.2", "4.3", "5.1", "6.5", "7.8", "8.0", "8.8",
                            "8.10", "9.0", "9.5"}) {
    EXPECT_TRUE(IsKnownVersion(known)) << known;
  }
  for (const char* unknown : {"", "9", "1.6", "3.3", "5.2", "6.6", "7.9", "8.9", "9.6", "10.0",
                              "99.9", "0.9", "9.", ".9", "9.x", "99999999999.0"}) {
    EXPECT_FALSE(IsKnownVersion(unknown)) << unknown;
  }
  EXPECT_TRUE(IsKnownVersion(kNewestVersion));
}

TEST(PtxTarget, FindsTheVersionAfterComments) {
  EXPECT_EQ(GetVersion("// by hand\n/* more */ .version 99.9\n.target"), "99.9");
  EXPECT_EQ(GetVersion(".target sm_80\n.version 7.0"), "");
  EXPECT_EQ(GetVersion(".version next"), "");
  EXPECT_EQ(GetVersion(""), "");
}

TEST(PtxTarget, AcceptsTargetsUpToTheNewest) {
  for (const char* target :
       {"sm_10", "sm_30", "sm_52", "sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "compute_80",
        "sm_80, debug", "sm_80, texmode_independent", "sm_75, sm_80"}) {
    EXPECT_TRUE(GetCheck("9.0", target).ok()) << target;
  }
  for (const char* target : {"sm_100", "sm_100a", "sm_103f", "sm_110", "sm_120", "sm_121a"}) {
    EXPECT_THAT(GetCheck("9.0", target).message(), HasSubstr("newer")) << target;
    EXPECT_TRUE(GetCheck("9.0", target, 121).ok()) << target;
  }
  EXPECT_THAT(GetCheck("9.0", "sm_90", 80).message(), HasSubstr("up to sm_80"));
}

TEST(PtxTarget, RejectsUnknownTargets) {
  for (const char* target :
       {"sm_7", "sm_63", "sm_76", "sm_80a", "sm_90f", "sm_130", "sm_80, fast", "volta"}) {
    EXPECT_THAT(GetCheck("9.0", target).message(), HasSubstr("Unsupported .target")) << target;
  }
}

TEST(PtxTarget, RejectsVersionsWithoutTheTarget) {
  EXPECT_TRUE(GetCheck("6.3", "sm_75").ok());
  EXPECT_TRUE(GetCheck("7.8", "sm_90").ok());
  EXPECT_TRUE(GetCheck("8.10", "sm_90a").ok());
  EXPECT_THAT(GetCheck("6.2", "sm_75").message(), HasSubstr("does not support .target sm_75"));
  EXPECT_FALSE(GetCheck("6.5", "sm_80").ok());
  EXPECT_FALSE(GetCheck("7.0", "sm_90").ok());
  EXPECT_FALSE(GetCheck("7.8", "sm_90a").ok());
  EXPECT_EQ(GetCheck("99.9", "sm_75").message(),
            "Unsupported .version 99.9; current version is '9.5'");
}

}  // namespace
}  // namespace gpushared::ptx
