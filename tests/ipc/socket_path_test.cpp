// SPDX-License-Identifier: Apache-2.0
#include "ipc/socket_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::ipc {
namespace {

struct Machine {
  std::map<std::string, std::string> variables;
  bool run_writable = false;
  bool run_socket_exists = false;
  bool mps_socket_exists = false;
  mutable std::vector<std::string> directories_made = {};

  SocketSurroundings Surroundings() const {
    return {
        .environment =
            [this](const char* variable) {
              const auto found = variables.find(variable);
              return found == variables.end() ? std::string() : found->second;
            },
        .make_directory =
            [this](const std::string& directory) {
              directories_made.push_back(directory);
              return directory == "/run/gpushared" && run_writable;
            },
        .exists =
            [this](const std::string& path) {
              return (path == "/run/gpushared/gpushared.sock" && run_socket_exists) ||
                     (path == "/mps/gpushared.sock" && mps_socket_exists);
            },
    };
  }
};

TEST(SocketPath, PrefersOptionThenVariableThenSystemThenUser) {
  Machine machine{
      {{"GPUSHARED_SOCKET", "/a/env.sock"}, {"XDG_RUNTIME_DIR", "/run/user/7"}}, true, true};
  EXPECT_EQ(*ServerSocketPath("/x/asked.sock", machine.Surroundings()), "/x/asked.sock");
  EXPECT_EQ(*ClientSocketPath("/x/asked.sock", machine.Surroundings()), "/x/asked.sock");
  EXPECT_EQ(*ServerSocketPath("", machine.Surroundings()), "/a/env.sock");
  EXPECT_EQ(*ClientSocketPath("", machine.Surroundings()), "/a/env.sock");
  machine.variables.erase("GPUSHARED_SOCKET");
  EXPECT_EQ(*ServerSocketPath("", machine.Surroundings()), "/run/gpushared/gpushared.sock");
  EXPECT_EQ(*ClientSocketPath("", machine.Surroundings()), "/run/gpushared/gpushared.sock");
}

TEST(SocketPath, ClientFindsServerThatReplacesMps) {
  Machine machine{{{"CUDA_MPS_PIPE_DIRECTORY", "/mps"}}, true, true};
  EXPECT_EQ(*ClientSocketPath("", machine.Surroundings()), "/run/gpushared/gpushared.sock");
  machine.mps_socket_exists = true;
  EXPECT_EQ(*ClientSocketPath("", machine.Surroundings()), "/mps/gpushared.sock");
  EXPECT_EQ(*ClientSocketPath("/x/asked.sock", machine.Surroundings()), "/x/asked.sock");
  EXPECT_EQ(*ServerSocketPath("", machine.Surroundings()), "/run/gpushared/gpushared.sock");
  machine.variables["GPUSHARED_SOCKET"] = "/a/env.sock";
  EXPECT_EQ(*ClientSocketPath("", machine.Surroundings()), "/a/env.sock");
}

TEST(SocketPath, ServerChecksWriteAccessAndClientChecksForSocket) {
  Machine machine{{{"XDG_RUNTIME_DIR", "/run/user/7"}}, true, false};
  EXPECT_EQ(*ServerSocketPath("", machine.Surroundings()), "/run/gpushared/gpushared.sock");
  EXPECT_EQ(*ClientSocketPath("", machine.Surroundings()), "/run/user/7/gpushared.sock");
  machine.run_writable = false;
  machine.run_socket_exists = true;
  EXPECT_EQ(*ServerSocketPath("", machine.Surroundings()), "/run/user/7/gpushared.sock");
  EXPECT_EQ(*ClientSocketPath("", machine.Surroundings()), "/run/gpushared/gpushared.sock");
}

TEST(SocketPath, CreatesSystemDirectoryOnlyForServerWithoutPath) {
  Machine machine{{{"GPUSHARED_SOCKET", "/a/env.sock"}}, true, false};
  EXPECT_TRUE(ServerSocketPath("/x/asked.sock", machine.Surroundings()).ok());
  EXPECT_TRUE(ServerSocketPath("", machine.Surroundings()).ok());
  machine.variables.clear();
  EXPECT_FALSE(ClientSocketPath("", machine.Surroundings()).ok());
  EXPECT_THAT(machine.directories_made, ::testing::IsEmpty());
  EXPECT_TRUE(ServerSocketPath("", machine.Surroundings()).ok());
  EXPECT_THAT(machine.directories_made, ::testing::ElementsAre("/run/gpushared"));
}

TEST(SocketPath, CreatedDirectoryIsAccessibleToAllUsers) {
  const std::string directory = ::testing::TempDir() + "made_" + std::to_string(::getpid());
  const mode_t before = ::umask(077);
  EXPECT_TRUE(SocketSurroundings::Real().make_directory(directory));
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(directory).permissions(), std::filesystem::perms{0755});
  std::filesystem::permissions(directory, std::filesystem::perms{0700});
  EXPECT_TRUE(SocketSurroundings::Real().make_directory(directory));
  EXPECT_EQ(std::filesystem::status(directory).permissions(), std::filesystem::perms{0700})
      << "what was there stays as it is";
  std::filesystem::remove(directory);
  EXPECT_FALSE(SocketSurroundings::Real().make_directory(directory + "/deeper"));
}

TEST(SocketPath, ReportsMissingDirectory) {
  const Machine machine;
  EXPECT_EQ(ServerSocketPath("", machine.Surroundings()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ClientSocketPath("", machine.Surroundings()).status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(ClientSocketPath("", machine.Surroundings()).status().message(),
              ::testing::HasSubstr("GPUSHARED_SOCKET"));
}

TEST(SocketPath, RejectsPathTooLongForSocketAddress) {
  const Machine machine;
  const std::string longest(107, 'a');
  EXPECT_TRUE(ServerSocketPath(longest, machine.Surroundings()).ok());
  EXPECT_FALSE(ServerSocketPath(longest + "a", machine.Surroundings()).ok());
  EXPECT_THAT(ClientSocketPath(longest + "a", machine.Surroundings()).status().message(),
              ::testing::HasSubstr("has 108 bytes, a socket address holds 107"));
}

TEST(SocketAddress, HoldsTerminatedPathOrRejects) {
  const std::string longest(sizeof(sockaddr_un::sun_path) - 1, 'p');
  const Result<sockaddr_un> address = SocketAddress(longest);
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->sun_family, AF_UNIX);
  EXPECT_EQ(std::string(address->sun_path), longest);
  EXPECT_EQ(SocketAddress(longest + "p").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SocketAddress("").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpushared::ipc
