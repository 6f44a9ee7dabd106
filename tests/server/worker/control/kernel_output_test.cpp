// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/kernel_output.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/layout.h"
#include "tests/support/log_text.h"

namespace gpushared::server {
namespace {

using ::testing::HasSubstr;
using testing::LogText;
using ::testing::Not;

constexpr std::uint32_t kOwnUid = 1;

device::KernelOutput Printed(std::uint64_t session, const std::string& text) {
  return {.work = 1, .stream = session * ipc::kStreamsMax, .space = nullptr, .text = text};
}

TEST(KernelOutputLog, EmptyLinesCountAgainstLimit) {
  const LogText told;
  ClientLog log(kOwnUid);
  KernelOutputLog output(log);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 8; ++i) output.Write(Printed(7, std::string(std::size_t{64} << 10, '\n')));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  const std::string text = told.text();
  const auto lines = static_cast<double>(std::count(text.begin(), text.end(), '\n'));
  const LogRate::Bound bound = LogRate::Limits().process;
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines * LogRate::kLineBytes,
            static_cast<double>(bound.burst_bytes + bound.bytes_per_second) * (1 + took.count()));
}

TEST(KernelOutputLog, ClientsPrintsDoNotExhaustOtherUsersLimit) {
  const LogText told;
  ClientLog log(kOwnUid);
  log.Know(7, {.uid = 1000, .pid = 70});
  log.Know(8, {.uid = 1000, .pid = 80});
  log.Know(9, {.uid = 1001, .pid = 90});
  KernelOutputLog output(log);
  for (int i = 0; i < 1000; ++i) output.Write(Printed(7, std::string(500, 'x')));
  output.Write(Printed(8, "of another process\n"));
  output.Write(Printed(9, "of another user\n"));
  EXPECT_THAT(told.text(), HasSubstr("client 8 prints: of another process"));
  EXPECT_THAT(told.text(), HasSubstr("client 9 prints: of another user"));
  EXPECT_LE(told.text().size(), 2U * LogRate::Limits().process.burst_bytes);
}

TEST(KernelOutputLog, OmitsTextThatClientReads) {
  const LogText told;
  ClientLog log(kOwnUid);
  KernelOutputLog output(log);
  const auto mine = std::make_shared<PrintedText>();
  output.Keep(7, mine);
  output.Write(Printed(7, "for me\n"));
  output.Write(Printed(8, "for the log\n"));
  EXPECT_EQ(mine->Take(100).text, "for me\n");
  EXPECT_THAT(told.text(), Not(HasSubstr("for me")));
  EXPECT_THAT(told.text(), HasSubstr("client 8 prints: for the log"));
  output.Forget(7);
  output.Write(Printed(7, "too late\n"));
  EXPECT_EQ(mine->Take(100).text, "");
}

TEST(PrintedText, IsLimitedAndCountsLostText) {
  PrintedText printed;
  printed.Add(std::string(PrintedText::kBytesMax - 1, 'x'));
  printed.Add("yz");
  printed.Add("lost");
  EXPECT_EQ(printed.total(), PrintedText::kBytesMax + 5);
  PrintedText::Part part = printed.Take(10);
  EXPECT_EQ(part.text, "xxxxxxxxxx");
  EXPECT_EQ(part.dropped, 5U);
  EXPECT_EQ(part.end, 15U) << "10 bytes are taken and 5 are lost";
  part = printed.Take(2 * PrintedText::kBytesMax);
  EXPECT_EQ(part.text.size(), PrintedText::kBytesMax - 10);
  EXPECT_EQ(part.text.back(), 'y');
  EXPECT_EQ(part.end, printed.total());
  printed.Add("again");
  EXPECT_EQ(printed.Take(100).text, "again");
}

TEST(ClientLog, CountsSuppressedLinesInOneLine) {
  const LogText told;
  LogRate::Limits limits;
  limits.process = {.burst_bytes = 200, .bytes_per_second = 1};
  limits.report_interval = std::chrono::seconds(0);
  ClientLog log(kOwnUid, limits);
  log.Know(7, {.uid = 1000, .pid = 70});
  std::uint64_t held_back = 0;
  for (int i = 0; i < 50; ++i) {
    held_back += log.GetWrite(spdlog::level::info, 7, std::string(100, 'x')) ? 0 : 1;
  }
  EXPECT_GE(held_back, 40U);
  EXPECT_THAT(told.text(), Not(HasSubstr("held back")));
  log.Report();
  EXPECT_THAT(told.text(),
              HasSubstr("held back " + std::to_string(held_back) + " lines about uid 1000"));
}

}  // namespace
}  // namespace gpushared::server
