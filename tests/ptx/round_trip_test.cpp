// SPDX-License-Identifier: Apache-2.0
// Tests the PTX texts that nvcc generates from the kernels of this directory without an option,
// with -lineinfo and with -G. The stage `long` tests the texts of all kernels of the tree.
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/ptx/analysis/control_flow.h"
#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::ptx {
namespace {

using gpushared::testing::ReadFile;

// Removes everything that the parser does not keep, independently of the parser.
std::string WithoutDebugInformation(const std::string& source) {
  std::istringstream lines(source);
  std::string text;
  bool in_section = false;
  for (std::string line; std::getline(lines, line);) {
    const std::string_view trimmed =
        std::string_view(line).substr(std::min(line.find_first_not_of(" \t"), line.size()));
    const std::string_view directive = trimmed.substr(0, trimmed.find_first_of(" \t"));
    in_section |= directive == ".section";
    if (!in_section && directive != ".loc" && directive != ".file") {
      if (const std::size_t at = line.find(", debug"); directive == ".target" && at != line.npos) {
        line.erase(at);
      }
      text += line + '\n';
    }
    if (trimmed == "}") in_section = false;
  }
  return text;
}

// Returns ptxas's machine code for a text; none if it rejects the text.
std::optional<std::string> Assemble(const std::string& text, const std::string& architecture) {
  const testing::ScratchDirectory scratch;
  const std::string in = scratch / "in.ptx", out = scratch / "out.cubin";
  std::ofstream(in, std::ios::binary) << text;
  const std::string command = std::string(GPUSHARED_TEST_CUDA_BIN) +
                              "/ptxas -arch=" + architecture + " " + in + " -o " + out + " 2>&1";
  if (std::system(command.c_str()) != 0 || !std::filesystem::exists(out)) return {};
  return ReadFile(out);
}

// Returns the paths in GPUSHARED_PTX_FILES, or else those from CMake; ':' separates them.
std::vector<std::string> Files() {
  const char* const others = std::getenv("GPUSHARED_PTX_FILES");
  std::istringstream paths(others != nullptr ? others : GPUSHARED_TEST_PTX_FILES);
  std::vector<std::string> files;
  for (std::string path; std::getline(paths, path, ':');) files.push_back(path);
  return files;
}

// Whether the text consists of '%', one or two lower-case letters, and digits.
bool LooksLikeRegister(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const std::string_view letters = text.substr(0, digits);
  return (letters.size() == 2 || letters.size() == 3) && letters[0] == '%' &&
         std::ranges::all_of(letters.substr(1), [](char c) { return c >= 'a' && c <= 'z'; }) &&
         digits < text.size() &&
         text.find_first_not_of("0123456789", digits) == std::string_view::npos;
}

class RoundTrip : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string text = ReadFile(GetParam());
    ASSERT_FALSE(text.empty());
    source_ = WithoutDebugInformation(text);
    Result<Module> module = Parse(text);
    ASSERT_TRUE(module) << module.status().message();
    module_ = *std::move(module);
  }
  std::string architecture() const { return module_.target.substr(0, module_.target.find(',')); }

  std::string source_;
  Module module_;
};

TEST_P(RoundTrip, PrintedTextParsesAndPrintsUnchanged) {
  const std::string once = Print(module_);
  const Result<Module> again = Parse(once);
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(Print(*again), once);
}

TEST_P(RoundTrip, PrintedTextAssemblesToTheSameMachineCode) {
  const auto of_source = Assemble(source_, architecture());
  ASSERT_TRUE(of_source) << "ptxas rejects nvcc's text";
  const auto of_printed = Assemble(Print(module_), architecture());
  ASSERT_TRUE(of_printed) << "ptxas rejects the printed text";
  EXPECT_TRUE(*of_printed == *of_source) << "the machine code differs";
}

TEST_P(RoundTrip, ControlFlowTilesEveryFunction) {
  std::size_t registers = 0;
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
      // Everything that looks like a register of the function is one.
      for (const Operand& operand : instruction.operands) {
        if (!LooksLikeRegister(operand.text)) continue;
        ++registers;
        EXPECT_NE(flow->FindRegister(operand.text), kNoRegister) << operand.text;
      }
    }
  }
  EXPECT_GT(registers, 0U);
}

INSTANTIATE_TEST_SUITE_P(Kernels, RoundTrip, ::testing::ValuesIn(Files()),
                         [](const auto& parameter) {
                           return std::filesystem::path(parameter.param).stem().string();
                         });

// The comparison above would prove nothing if ptxas accepted everything, or returned the same code
// for every text.
TEST(Ptxas, DetectsLostText) {
  const std::string text = ReadFile(GPUSHARED_TEST_PTX_DIR "/switches.ptx");
  const auto code = Assemble(text, "sm_75");
  ASSERT_TRUE(code);
  EXPECT_TRUE(*Assemble(text, "sm_75") == *code) << "ptxas must be deterministic";

  std::string without_label = text;
  const std::size_t label = text.find("\n$L__BB0_");
  ASSERT_NE(label, std::string::npos);
  without_label.erase(label + 1, text.find(':', label) - label);
  EXPECT_FALSE(Assemble(without_label, "sm_75"));

  std::string without_negation = text;
  const std::size_t negation = text.find("setp.gt");
  ASSERT_NE(negation, std::string::npos) << text;
  without_negation.replace(negation, 7, "setp.ge");
  EXPECT_FALSE(*Assemble(without_negation, "sm_75") == *code);
}

}  // namespace
}  // namespace gpushared::ptx
