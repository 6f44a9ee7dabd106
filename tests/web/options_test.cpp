// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/options.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace gpushared::web {
namespace {

using ::testing::HasSubstr;

TEST(WebOptions, AcceptsOnlyNumericAddresses) {
  EXPECT_TRUE(ParseEndpoint("127.0.0.1:9464")->is_loopback);
  EXPECT_TRUE(ParseEndpoint("127.9.9.9:0")->is_loopback);
  EXPECT_TRUE(ParseEndpoint("[::1]:65535")->is_loopback);
  EXPECT_FALSE(ParseEndpoint("0.0.0.0:1")->is_loopback);
  EXPECT_FALSE(ParseEndpoint("[::]:1")->is_loopback);
  EXPECT_FALSE(ParseEndpoint("[::ffff:127.0.0.1]:1")->is_loopback);
  for (const std::string text : {"", ":", "9464", "localhost:1", "127.0.0.1",
                                 "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1: 1",
                                 "127.0.0.1:1x", "::1:1", "[::1]", "[127.0.0.1]:1", "127.1:1"}) {
    EXPECT_FALSE(ParseEndpoint(text).ok()) << text;
  }
}

std::string GetRejection(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gpushared-web");
  const auto parsed = ParseOptions(arguments);
  const auto* const stop = std::get_if<ExitNow>(&parsed);
  if (stop == nullptr) return "";
  EXPECT_EQ(stop->code, 2);
  return stop->text;
}

TEST(WebOptions, RequiresTokenForOtherUsers) {
  const testing::ScratchDirectory directory;
  const std::string token = directory / "token";
  std::ofstream(token) << "0123456789abcdef\n";
  ::chmod(token.c_str(), 0640);
  EXPECT_EQ(GetRejection({}), "");
  EXPECT_THAT(GetRejection({"--listen", "0.0.0.0:9464"}), HasSubstr("option listen rejected"));
  EXPECT_EQ(GetRejection({"--listen", "0.0.0.0:9464", "--token-file", token.c_str()}), "");
  EXPECT_THAT(GetRejection({"--listen", "here"}), HasSubstr("address 'here' rejected; allowed:"));
  EXPECT_THAT(GetRejection({"--port", "1"}), HasSubstr("--port"));
}

TEST(WebOptions, ATokenIsSecretAndLong) {
  const testing::ScratchDirectory directory;
  const std::string path = directory / "token";
  const auto rejection = [&](const std::string& content, mode_t mode = 0600) {
    std::ofstream(path, std::ios::trunc) << content;
    ::chmod(path.c_str(), mode);
    return std::string(ReadToken(path).status().message());
  };
  EXPECT_EQ(rejection("0123456789abcdef"), "");
  EXPECT_EQ(*ReadToken(path), "0123456789abcdef");
  EXPECT_THAT(rejection("0123456789abcdef", 0644), HasSubstr("all users may read it"));
  EXPECT_THAT(rejection("short\n"), HasSubstr("it has 5 bytes, allowed: 16 to 512"));
  EXPECT_THAT(rejection(std::string(513, 'x')), HasSubstr("more than 512 bytes"));
  EXPECT_EQ(rejection(std::string(512, 'x') + "\n"), "");
  EXPECT_THAT(rejection("0123456789abcdef\nsecond"), HasSubstr("printable ASCII"));
  EXPECT_THAT(rejection("0123456789 abcdef"), HasSubstr("printable ASCII"));
  EXPECT_THAT(std::string(ReadToken(directory.path()).status().message()), HasSubstr("no regular"));
  EXPECT_THAT(std::string(ReadToken(directory / "none").status().message()), HasSubstr("No such"));
}

}  // namespace
}  // namespace gpushared::web
