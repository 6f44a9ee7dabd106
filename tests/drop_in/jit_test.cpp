// SPDX-License-Identifier: Apache-2.0
// Modules and JIT options that a driver rejects, each with the driver's error code and a message in
// the error log.
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using ::testing::HasSubstr;

const std::string kGood =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";

std::string Kernel(const std::string& code) {
  return ".version 7.0\n.target sm_75\n.address_size 64\n.const .u32 c = 1;\n"
         ".visible .entry k() {\n.reg .u32 r; .reg .f32 f; .reg .u64 x;\n" +
         code + "\nret; }\n";
}

class JitTest : public testing::DropInServerCase {
 protected:
  JitTest() { UsePrimary(); }

  CUresult LoadWith(const std::string& text, std::vector<CUjit_option> options = {},
                    std::vector<void*> values = {}) {
    options.insert(options.end(), {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES});
    values.insert(values.end(), {log_.data(), reinterpret_cast<void*>(log_.size())});
    CUmodule module = nullptr;
    const CUresult loaded =
        cuModuleLoadDataEx(&module, text.c_str(), static_cast<unsigned>(options.size()),
                           options.data(), values.data());
    if (loaded == CUDA_SUCCESS) {
      EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    }
    values_ = values;
    return loaded;
  }
  CUresult LoadOption(int option, std::uintptr_t value) {
    return LoadWith(kGood, {static_cast<CUjit_option>(option)}, {reinterpret_cast<void*>(value)});
  }
  std::string Log() const { return log_.data(); }

  std::array<char, 1024> log_ = {};
  std::vector<void*> values_;
};

TEST_F(JitTest, UnknownPtxVersionHasItsOwnErrorCode) {
  std::string text = kGood;
  text.replace(text.find("7.0"), 3, "99.9");
  EXPECT_EQ(LoadWith(text), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_THAT(Log(), HasSubstr("99.9"));
  CUlibrary library = nullptr;
  EXPECT_EQ(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  CUlinkState link = nullptr;
  ASSERT_EQ(cuLinkCreate(0, nullptr, nullptr, &link), CUDA_SUCCESS);
  EXPECT_EQ(cuLinkAddData(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "newer", 0, nullptr,
                          nullptr),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(cuLinkDestroy(link), CUDA_SUCCESS);
}

TEST_F(JitTest, WhatPtxasRejectsIsInvalidPtx) {
  std::string newer = kGood;
  newer.replace(newer.find("sm_75"), 5, "sm_120");
  EXPECT_EQ(LoadWith(newer), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(Log(), HasSubstr("sm_120"));
  EXPECT_EQ(LoadWith(Kernel("add.u32 r, r, f;")), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(Log(), HasSubstr("line 7"));
  EXPECT_EQ(LoadWith(Kernel("add.u32 r, r, r;")), CUDA_SUCCESS);
  EXPECT_EQ(Log(), "");
}

TEST_F(JitTest, RejectsMoreStaticMemoryThanPtxas) {
  const std::string header = ".version 7.0\n.target sm_75\n.address_size 64\n";
  const auto shared = [&](int bytes) {
    return header + ".shared .b8 s[" + std::to_string(bytes) +
           "];\n.visible .entry k() { st.shared.u8 [s], 1; ret; }\n";
  };
  EXPECT_EQ(LoadWith(shared(48 << 10)), CUDA_SUCCESS);
  EXPECT_EQ(LoadWith(shared((48 << 10) + 1)), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(Log(), HasSubstr("shared memory"));
  EXPECT_EQ(LoadWith(header + ".const .b8 c[70000];\n.visible .entry k() { ret; }\n"),
            CUDA_ERROR_INVALID_PTX);
}

TEST_F(JitTest, RejectsInvalidOptions) {
  constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(LoadOption(999, 0), kWrong);
  EXPECT_EQ(LoadOption(-1, 0), kWrong);
  EXPECT_EQ(LoadOption(CU_JIT_NUM_OPTIONS, 0), kWrong);
  EXPECT_EQ(LoadOption(CU_JIT_SPLIT_COMPILE, 1), CUDA_SUCCESS);
  EXPECT_EQ(LoadOption(CU_JIT_TARGET, 12345), kWrong);
  EXPECT_EQ(LoadOption(CU_JIT_TARGET, CU_TARGET_COMPUTE_80), CUDA_SUCCESS);
  EXPECT_EQ(LoadOption(CU_JIT_OPTIMIZATION_LEVEL, 4), CUDA_SUCCESS);
  EXPECT_EQ(LoadOption(CU_JIT_OPTIMIZATION_LEVEL, 5), kWrong);
  EXPECT_EQ(LoadOption(CU_JIT_CACHE_MODE, CU_JIT_CACHE_OPTION_CA), CUDA_SUCCESS);
  EXPECT_EQ(LoadOption(CU_JIT_CACHE_MODE, 3), kWrong);
  EXPECT_EQ(LoadOption(CU_JIT_FALLBACK_STRATEGY, CU_PREFER_BINARY), CUDA_SUCCESS);
  EXPECT_EQ(LoadOption(CU_JIT_FALLBACK_STRATEGY, 2), kWrong);
  EXPECT_EQ(LoadWith(kGood, {CU_JIT_TARGET, CU_JIT_THREADS_PER_BLOCK},
                     {reinterpret_cast<void*>(CU_TARGET_COMPUTE_80), reinterpret_cast<void*>(64)}),
            kWrong);
  CUjit_option fallback = CU_JIT_FALLBACK_STRATEGY;
  void* value = nullptr;
  CUlinkState link = nullptr;
  EXPECT_EQ(cuLinkCreate(1, &fallback, &value, &link), kWrong);
}

TEST_F(JitTest, WritesWallTimeAsFloatIntoOptionValue) {
  ASSERT_EQ(LoadWith(kGood, {CU_JIT_WALL_TIME}, {nullptr}), CUDA_SUCCESS);
  float milliseconds = -1;
  std::memcpy(&milliseconds, values_.data(), sizeof milliseconds);
  EXPECT_GT(milliseconds, 0);
}

}  // namespace
}  // namespace gpushared
