// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_PLAIN_COMPILER_H_
#define GPUSHARED_TESTS_SUPPORT_PLAIN_COMPILER_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/device/code_compiler.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace gpushared::testing {

// A compiler for the fake driver, which accepts text as code. Returns the input marked as compiled,
// and reports every text as cached.
class PlainCompiler : public device::CodeCompiler {
 public:
  Result<std::vector<std::byte>> Compile(std::string_view ptx,
                                         std::string_view /*architecture*/) override {
    const std::string code = FAKE_CUDA_CODE + std::string(ptx);
    const auto bytes = std::as_bytes(std::span(code));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
  std::optional<std::vector<std::byte>> Find(std::string_view ptx,
                                             std::string_view architecture) override {
    return *PlainCompiler::Compile(ptx, architecture);
  }
  void Abandon() override {}
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_PLAIN_COMPILER_H_
