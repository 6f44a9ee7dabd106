// SPDX-License-Identifier: Apache-2.0
#include "server/worker/kernel_output.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

namespace gpushared::server {
namespace {

TEST(KernelOutputLog, LinesWithoutTextCountAgainstWhatMayBePrinted) {
  std::ostringstream told;
  const auto usual = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(told)));
  KernelOutputLog log;
  const std::string who = "client 7";
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 8; ++i) log.Write(who, std::string(std::size_t{64} << 10, '\n'));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  spdlog::set_default_logger(usual);

  const std::string text = told.str();
  const auto lines = static_cast<double>(std::count(text.begin(), text.end(), '\n'));
  const auto each = static_cast<double>(who.size());
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines * each, (took.count() + 2) * KernelOutputLog::kBytesPerSecond);
}

}  // namespace
}  // namespace gpushared::server
