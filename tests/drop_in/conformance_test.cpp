// SPDX-License-Identifier: Apache-2.0
// A program of the driver interface runs natively on the fake driver, and through the drop-in and a
// server on the same fake driver. The lines that it prints must agree.
#include <algorithm>
#include <cstddef>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gpu_server.h"

namespace gpushared {
namespace {

using testing::GpuServer;
using ::testing::IsEmpty;
using testing::RunProgram;

// Statements for the fake driver: attributes that occupancy is computed from and the fake GPU lacks
// by default, and no report of leaks.
constexpr const char* kGpu =
    "attribute 81 233472; attribute 82 65536; attribute 106 32; leaks ignored";
constexpr const char* kUuid = "uuid 0 GPU-a0000000-fa4e-4000-8000-000000000000; ";
// Prefix of the fake driver's reports of mistakes, which end the comparison. Some calls of the
// program are wrong on purpose.
constexpr const char* kMistakes = "fake_cuda: ";

// Attributes, by number, for which the drop-in reports 0 although the driver has the feature,
// because the drop-in does not support it.
const std::map<int, const char*> kNotHad = {
    {22, "no textures on a GPU"},           {23, "no textures on a GPU"},
    {60, "no surfaces on a GPU"},           {70, "no surfaces on a GPU"},
    {78, "streams have no priorities"},     {91, "host memory is registered in name only"},
    {113, "no pools of memory by handles"}, {122, "no deferred mapping"},
};

using Lines = std::vector<std::string>;

Lines GetLines(const std::string& text) {
  std::istringstream stream(text);
  Lines lines;
  for (std::string line; std::getline(stream, line) && !line.starts_with(kMistakes);) {
    lines.push_back(std::move(line));
  }
  return lines;
}

bool StartsWith(const std::string& line, const std::string& prefix) {
  return line.starts_with(prefix);
}

// Returns whether the lines differ only in the error code of a fault. A fault of an unfenced kernel
// ends the worker and its sessions (server/device/cuda), so the drop-in reports the session's end
// (810) where the driver reports the fault.
bool IsEndByFault(const std::string& native, const std::string& ours) {
  const std::size_t code = native.rfind(" = 7");
  return code != std::string::npos && ours == native.substr(0, code) + " = 810";
}

// Removes lines that the fake driver cannot answer: names of errors, and attributes that it
// rejects.
void LeaveOutUnknown(Lines& native, Lines& ours) {
  std::erase_if(ours, [&](const std::string& line) {
    return StartsWith(line, "error ") && std::ranges::find(native, line) == native.end();
  });
  Lines rejected;
  for (const std::string& line : native) {
    if (StartsWith(line, "attribute ") && line.ends_with(" = 1: -1")) {
      rejected.push_back(line.substr(0, line.find(" = ") + 3));
    }
  }
  for (Lines* lines : {&native, &ours}) {
    std::erase_if(*lines, [&](const std::string& line) {
      return std::ranges::any_of(
          rejected, [&](const std::string& prefix) { return StartsWith(line, prefix); });
    });
  }
}

class DriverConformance : public ::testing::TestWithParam<const char*> {
 protected:
  static Lines Run(const std::string& library, const std::string& variable) {
    std::vector<std::string> command = {"/usr/bin/env", "LD_LIBRARY_PATH=" + library, variable,
                                        GPUSHARED_DRIVER_CALLS};
    if (*GetParam() != 0) command.emplace_back(GetParam());
    return GetLines(RunProgram(command).output);
  }
};

// Returns whether the lines differ only because the server reserves an eighth of a small GPU's
// memory for the driver.
bool IsTotalWithoutThePartLeft(const std::string& native, const std::string& ours) {
  const std::string total = "total: ";
  if (!StartsWith(native, total) || !StartsWith(ours, total)) return false;
  return std::stoull(ours.substr(total.size())) == std::stoull(native.substr(total.size())) / 8 * 7;
}

TEST_P(DriverConformance, DropInPrintsTheSameLinesAsTheDriver) {
  const std::string leaks = "; leaks ignored";
  Lines native = Run(GPUSHARED_FAKE_DRIVER_DIR, std::string("FAKE_CUDA=") + kUuid + kGpu + leaks);
  const GpuServer server({.statements = kGpu + leaks});
  Lines ours = Run(GPUSHARED_DROP_IN_DIR, "GPUSHARED_SOCKET=" + server.socket());
  LeaveOutUnknown(native, ours);
  ASSERT_GT(native.size(), 700u);
  ASSERT_EQ(native.size(), ours.size());
  std::map<int, const char*> not_had = kNotHad;
  for (std::size_t i = 0; i < native.size(); ++i) {
    if (native[i] == ours[i] || IsEndByFault(native[i], ours[i]) ||
        IsTotalWithoutThePartLeft(native[i], ours[i])) {
      continue;
    }
    int id = 0;
    if (StartsWith(native[i], "attribute ")) id = std::stoi(native[i].substr(10));
    EXPECT_TRUE(not_had.erase(id) == 1 && ours[i].ends_with(" = 0: 0"))
        << "line " << i + 1 << ": the driver says " << native[i] << ", the drop-in " << ours[i];
  }
  EXPECT_THAT(not_had, IsEmpty())
      << "remove these attributes from kNotHad, because drop-in and driver agree";
}

// The parameter is the failing kernel that the program launches at the end; empty for none.
INSTANTIATE_TEST_SUITE_P(Of, DriverConformance, ::testing::Values("", "fault", "stop"),
                         [](const auto& test) {
                           return *test.param == 0 ? std::string("calls") : std::string(test.param);
                         });

}  // namespace
}  // namespace gpushared
