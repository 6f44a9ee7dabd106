// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl ptx check`: the files that it reads, its report on their kernels, and its exit
// codes.
#include "server/tools/ctl/ptx_check.h"

#include <elf.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "server/tools/ctl/module_file.h"
#include "tests/ctl/elf_with.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;
using testing::ElfWith;
using testing::GetBytes;
using ::testing::HasSubstr;

constexpr const char* kTwoKernels =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry plain(.param .u32 n, .param .u64 a) { .reg .b64 %d<2>;"
    " ld.param.u64 %d1, [a]; st.global.u32 [%d1], 1; ret; }\n"
    ".visible .entry textured(.param .u64 a) {\n"
    "  .reg .b32 %r<9>; .reg .b64 %d<2>;\n"
    "  tex.cube.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%d0, {%r4, %r5, %r6, %r6}];\n  ret;\n}\n";

json Checked(const std::vector<std::byte>& file) {
  const Result<json> checked = CheckPtx(file);
  EXPECT_TRUE(checked.ok()) << checked.status().ToString();
  return checked.ok() ? *checked : json();
}

std::vector<std::byte> Fatbin() {
  const auto content = ReadWholeFile(GPUSHARED_TEST_FATBIN);
  EXPECT_TRUE(content.ok());
  return *content;
}

TEST(PtxCheck, EachKernelHasItsAnswersAndReasons) {
  const json checked = Checked(GetBytes(kTwoKernels));
  ASSERT_EQ(checked["kernels"].size(), 2u);
  const json &plain = checked["kernels"][0], &textured = checked["kernels"][1];
  EXPECT_EQ(plain["name"], "plain");
  EXPECT_EQ(plain["runs_on_cpu"], true);
  EXPECT_EQ(plain["claim"], true);
  EXPECT_EQ(plain["fence"], true);
  EXPECT_EQ(plain["contain"], true);
  EXPECT_EQ(plain["reach"], true);
  EXPECT_EQ(plain["reach_offsets"], json({8}));
  EXPECT_EQ(plain["reaches_variables"], false);
  EXPECT_EQ(plain["reasons"], json::array());
  EXPECT_EQ(textured["runs_on_cpu"], false);
  EXPECT_THAT(textured["reasons"][0].get<std::string>(),
              HasSubstr("runs_on_cpu: line 7: tex.cube.v4.f32.f32 (of textures, "));
  EXPECT_EQ(textured["fence"], false);
  EXPECT_EQ(textured["contain"], false);
  EXPECT_EQ(textured["reach"], false);
  EXPECT_EQ(textured["reasons"].back(),
            "reach: line 7: it is not known what memory 'tex.cube.v4.f32.f32' touches");
  const std::string report = PtxReport(checked);
  EXPECT_THAT(report, HasSubstr("plain\n"));
  EXPECT_THAT(report, HasSubstr("runs on cpu: 1 of 2 kernels\n"));
  EXPECT_THAT(report, HasSubstr("line 7: tex.cube"));
}

TEST(PtxCheck, ReadsFatbins) {
  const json checked = Checked(Fatbin());
  ASSERT_EQ(checked["kernels"].size(), 1u);
  EXPECT_EQ(checked["kernels"][0]["name"], "scale");
  EXPECT_EQ(checked["kernels"][0]["module"], "file");
}

TEST(PtxCheck, ReadsEveryFatbinOfAnElfFile) {
  std::vector<std::byte> two = Fatbin();
  two.resize((two.size() + 15) / 8 * 8);  // Separated by zeros.
  const std::vector<std::byte> second = Fatbin();
  two.insert(two.end(), second.begin(), second.end());
  const json checked = Checked(ElfWith(two, two.size()));
  EXPECT_EQ(checked["modules"], 2);
  ASSERT_EQ(checked["kernels"].size(), 2u);
  EXPECT_EQ(checked["kernels"][1]["name"], "scale");
  EXPECT_NE(checked["kernels"][0]["module"], checked["kernels"][1]["module"]);
}

TEST(PtxCheck, ReadsRelocatableDeviceCode) {
  const std::vector<std::byte> fatbin = Fatbin();
  const json checked = Checked(ElfWith(fatbin, fatbin.size(), "__nv_relfatbin"));
  ASSERT_EQ(checked["kernels"].size(), 1u);
  EXPECT_EQ(checked["kernels"][0]["name"], "scale");
}

TEST(PtxCheck, ReportsTypeOfFilesWithoutKernels) {
  const auto why = [](const std::vector<std::byte>& file) {
    const json checked = Checked(file);
    EXPECT_EQ(checked["kernels"].size(), 0u);
    EXPECT_THAT(PtxReport(checked), ::testing::StartsWith("no kernels\nfile: "));
    return checked["problems"].at(0).get<std::string>();
  };
  std::vector<std::byte> elf = ElfWith(Fatbin(), 0, ".text");
  EXPECT_THAT(why(elf), HasSubstr("nvcc left no kernels here"));
  constexpr std::uint16_t kCudaMachine = 190;
  std::memcpy(elf.data() + offsetof(Elf64_Ehdr, e_machine), &kCudaMachine, sizeof kCudaMachine);
  EXPECT_THAT(why(elf), HasSubstr("machine code (a cubin) without PTX"));
  EXPECT_THAT(why(GetBytes("!<arch>\nfile.o/  0")), HasSubstr("'ar x'"));
}

TEST(PtxCheck, BrokenContainersAreRejectedWithTheOffset) {
  const std::vector<std::byte> fatbin = Fatbin();
  const auto why = [](const std::vector<std::byte>& file) {
    const Result<json> checked = CheckPtx(file);
    EXPECT_FALSE(checked.ok());
    return checked.ok() ? "" : checked.status().message();
  };
  EXPECT_THAT(why(ElfWith(fatbin, fatbin.size() + 100000)), HasSubstr(".nv_fatbin is cut off"));
  EXPECT_THAT(why(ElfWith(fatbin, fatbin.size() - 8)), HasSubstr("fatbin at offset 0x100"));
  std::vector<std::byte> elf = ElfWith(fatbin, fatbin.size());
  elf.resize(sizeof(Elf64_Ehdr) + 10);
  EXPECT_THAT(why(elf), HasSubstr("section headers"));
  elf.resize(20);
  EXPECT_THAT(why(elf), HasSubstr("header is cut off"));
  EXPECT_THAT(why(GetBytes(std::string("\1\2\3\4", 4))), HasSubstr("neither PTX"));
}

TEST(PtxCheck, ModulesThatCannotBeParsedAreProblemsNotFailures) {
  const json checked = Checked(GetBytes(".version 8.0\n.target sm_75\n.visible .entry k( {"));
  EXPECT_EQ(checked["kernels"].size(), 0u);
  ASSERT_EQ(checked["problems"].size(), 1u);
  EXPECT_THAT(checked["problems"][0].get<std::string>(), HasSubstr("line 3"));
}

// The program's output and exit code.
struct Ended {
  std::string output;
  int code = -1;
};
Ended Ctl(const std::string& arguments) {
  Ended ended;
  FILE* pipe = popen((std::string(GPUSHARED_CTL) + " " + arguments + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return ended;
  char piece[4096];
  for (std::size_t got = 0; (got = fread(piece, 1, sizeof piece, pipe)) > 0;) {
    ended.output.append(piece, got);
  }
  ended.code = WEXITSTATUS(pclose(pipe));
  return ended;
}

TEST(PtxCheck, TheProgramReadsExecutablesAndNeedsNoServer) {
  const Ended ended = Ctl(std::string("--json ptx check ") + GPUSHARED_TEST_EXECUTABLE);
  EXPECT_EQ(ended.code, 0);
  const json checked = json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(checked.is_object());
  EXPECT_GT(checked["kernels"].size(), 50u);
  EXPECT_EQ(checked["problems"], json::array());
}

TEST(PtxCheck, ProgramFailsForUnreadableFilesAndFilesWithoutKernels) {
  const std::string path = ::testing::TempDir() + "two_kernels.ptx";
  std::ofstream(path) << kTwoKernels;
  EXPECT_EQ(Ctl("ptx check " + path).code, 0);
  EXPECT_EQ(Ctl("ptx check " + path + ".missing").code, 1);
  EXPECT_EQ(Ctl("ptx check").code, 2);
  std::ofstream(path) << "no PTX, but a text\n";
  EXPECT_EQ(Ctl("ptx check " + path).code, 1);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace gpushared::server
