// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/ptx_compiler.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::compile {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kPtx =
    ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() {\nret;\n}\n";

class PtxCompilers : public ::testing::Test {
 protected:
  std::unique_ptr<PtxCompiler> Create() {
    auto compiler = PtxCompiler::Create(
        {.program = GPUSHARED_PTXAS,
         .limits = {},
         .cache_directory = directory_,
         .warn = [this](const std::string& text) { warnings_.push_back(text); }});
    EXPECT_TRUE(compiler.ok()) << compiler.status().ToString();
    return compiler.ok() ? *std::move(compiler) : nullptr;
  }
  std::vector<fs::path> Files() const {
    return {fs::directory_iterator(directory_), fs::directory_iterator()};
  }

  const testing::ScratchDirectory scratch_;
  const fs::path directory_ = scratch_.path();
  std::vector<std::string> warnings_;
};

TEST_F(PtxCompilers, CacheMachineCodeByTextAndArchitecture) {
  const auto compiler = Create();
  ASSERT_NE(compiler, nullptr);
  EXPECT_THAT(compiler->version(), HasSubstr("release"));
  const auto code = compiler->Compile(kPtx, "sm_80");
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  ASSERT_GT(code->size(), 64U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(code->data()) + 1, 3), "ELF");
  EXPECT_EQ(Files().size(), 1U);
  EXPECT_TRUE(compiler->Compile(kPtx, "sm_90").ok());
  EXPECT_TRUE(compiler->Compile(std::string(kPtx) + "\n", "sm_80").ok());
  EXPECT_EQ(Files().size(), 3U);
  const auto again = Create()->Compile(kPtx, "sm_80");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *code);
  EXPECT_EQ(Files().size(), 3U);
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
}

TEST_F(PtxCompilers, FindCachedCodeWithoutCompiling) {
  const auto compiler = Create();
  ASSERT_NE(compiler, nullptr);
  EXPECT_FALSE(compiler->Find(kPtx, "sm_80"));
  const auto code = compiler->Compile(kPtx, "sm_80");
  ASSERT_TRUE(code.ok()) << code.status().ToString();
  const auto kept = Create()->Find(kPtx, "sm_80");
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, *code);
  EXPECT_FALSE(compiler->Find(kPtx, "sm_90"));
}

TEST_F(PtxCompilers, AbandonedCompilerServesOnlyCachedCode) {
  const auto compiler = Create();
  ASSERT_NE(compiler, nullptr);
  ASSERT_TRUE(compiler->Compile(kPtx, "sm_80").ok());
  compiler->Abandon();
  EXPECT_EQ(compiler->Compile(kPtx, "sm_90").status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(compiler->Compile(kPtx, "sm_80").ok());
}

TEST_F(PtxCompilers, DamagedCodeIsRecompiledAndLogged) {
  const auto compiler = Create();
  ASSERT_NE(compiler, nullptr);
  const auto code = compiler->Compile(kPtx, "sm_80");
  ASSERT_TRUE(code.ok());
  fs::resize_file(Files().at(0), 200);
  const auto again = compiler->Compile(kPtx, "sm_80");
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, *code);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("damaged"));
}

TEST_F(PtxCompilers, RejectTextWithTheCompilersMessage) {
  const auto compiler = Create();
  ASSERT_NE(compiler, nullptr);
  const auto code = compiler->Compile(std::string(kPtx) + "nonsense", "sm_80");
  EXPECT_EQ(code.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(code.status().message()), HasSubstr("nonsense"));
  EXPECT_TRUE(Files().empty());
}

TEST(PtxCompiler, MissingCompilerIsNotFound) {
  EXPECT_EQ(PtxCompiler::Create({.program = "/nowhere/ptxas"}).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace gpushared::compile
