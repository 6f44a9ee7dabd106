// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "server/ptx/control_flow.h"
#include "server/ptx/parser.h"
#include "server/ptx/printer.h"

namespace gpushared::ptx {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ptx_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// What ptxas says about each function of a text: registers, spills, stack, shared memory.
// Empty when it refuses the text.
std::map<std::string, std::string> Assemble(const std::string& text, const std::string& target) {
  const ScratchFolder scratch;
  std::ofstream(scratch.path() / "in.ptx", std::ios::binary) << text;
  const std::string command = std::string(GPUSHARED_TEST_CUDA_BIN) + "/ptxas -v -arch=" + target +
                              " " + (scratch.path() / "in.ptx").string() + " -o " +
                              (scratch.path() / "out.cubin").string() + " 2>&1";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::map<std::string, std::string> said;
  std::string function;
  char line[4096];
  while (pipe && fgets(line, sizeof line, pipe.get()) != nullptr) {
    std::cmatch match;
    if (std::regex_search(line, match, std::regex("properties for (\\S+)"))) {
      function = match[1];
    } else if (std::regex_search(line, match,
                                 std::regex("Used \\d+ registers.*|\\d+ bytes stack.*"))) {
      said[function] += match[0];
    }
  }
  const bool assembled = std::filesystem::exists(scratch.path() / "out.cubin");
  return assembled ? said : std::map<std::string, std::string>();
}

class RoundTrip : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = GPUSHARED_TEST_PTX_DIR;
    source_ = ReadFile(folder / (std::string(GetParam()) + ".ptx"));
    ASSERT_FALSE(source_.empty());
    Result<Module> module = Parse(source_);
    ASSERT_TRUE(module) << module.status().message();
    module_ = *std::move(module);
  }

  std::string source_;
  Module module_;
};

TEST_P(RoundTrip, PrintingWhatWasParsedFromPrintedTextGivesTheSameText) {
  const std::string once = Print(module_);
  const Result<Module> again = Parse(once);
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(Print(*again), once);
}

TEST_P(RoundTrip, PtxasUsesTheSameRegistersAndMemoryForPrintedText) {
  const auto of_source = Assemble(source_, module_.target);
  ASSERT_FALSE(of_source.empty()) << "ptxas refuses what nvcc wrote";
  EXPECT_EQ(Assemble(Print(module_), module_.target), of_source);
}

TEST_P(RoundTrip, EveryStatementOfTheSourceIsKept) {
  // Told by the ends of statements; declarations of several names are printed one by one.
  const auto count = [](std::string_view text, char c) {
    return std::count(text.begin(), text.end(), c);
  };
  const std::string comments_out =
      std::regex_replace(source_, std::regex("//[^\n]*"), std::string());
  const std::string printed = Print(module_);
  EXPECT_GE(count(printed, ';'), count(comments_out, ';'));
  EXPECT_EQ(count(printed, '{'), count(comments_out, '{'));
  EXPECT_EQ(count(printed, '@'), count(comments_out, '@'));
}

TEST_P(RoundTrip, ControlFlowTilesEveryFunction) {
  for (const Item& item : module_.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !function->body) continue;
    const Result<ControlFlow> flow = AnalyseControlFlow(*function);
    ASSERT_TRUE(flow) << flow.status().message();
    std::uint32_t next = 0;
    for (const BasicBlock& block : flow->blocks) {
      EXPECT_EQ(block.first, next);
      EXPECT_GE(block.count, 1u);
      next += block.count;
    }
    EXPECT_EQ(next, flow->instructions.size());
    for (const Instruction& instruction : flow->instructions) {
      // Whatever looks like a register of the function is one.
      for (const Operand& operand : instruction.operands) {
        const bool numbered = std::regex_match(operand.text, std::regex("%[a-z]{1,2}[0-9]+"));
        if (!numbered) continue;
        EXPECT_NE(flow->FindRegister(operand.text), kNoRegister) << operand.text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RoundTrip,
                         testing::Values("atomics", "calls", "constants", "half_double",
                                         "inline_assembly", "local_arrays", "newer_architecture",
                                         "print_assert", "shared_reduce", "switches", "templates",
                                         "tensor_texture", "vectors"),
                         [](const auto& parameter) { return std::string(parameter.param); });

TEST(Ptxas, NoticesWhenAnInstructionIsLost) {
  // The comparison above would be worth nothing if ptxas took anything.
  std::string text = ReadFile(std::filesystem::path(GPUSHARED_TEST_PTX_DIR) / "switches.ptx");
  const std::size_t label = text.find("\n$L__BB0_");
  ASSERT_NE(label, std::string::npos);
  text.erase(label + 1, text.find(':', label) - label);
  EXPECT_TRUE(Assemble(text, "sm_75").empty());
}

}  // namespace
}  // namespace gpushared::ptx
