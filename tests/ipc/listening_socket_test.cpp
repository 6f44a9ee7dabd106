// SPDX-License-Identifier: Apache-2.0
#include "ipc/listening_socket.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/unix_socket.h"
#include "tests/ipc/socket_pair.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::ipc {
namespace {

using ::testing::HasSubstr;

class ListeningSocketTest : public ::testing::Test {
 protected:
  const testing::ScratchDirectory directory_;
  const std::string path_ = directory_ / "server.sock";
};

TEST_F(ListeningSocketTest, ClientConnectsAndIsAccepted) {
  Result<ListeningSocket> server = ListeningSocket::Open({.path = path_});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_FALSE(server->replaced_stale());
  Result<std::optional<UniqueFd>> none = server->Accept();
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value()) << "accepting must not block";
  Result<UniqueFd> client = ConnectUnix(path_, Soon());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  Result<std::optional<UniqueFd>> accepted = server->Accept();
  ASSERT_TRUE(accepted.ok() && accepted->has_value());
  EXPECT_NE(::fcntl((*accepted)->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl((*accepted)->get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(ListeningSocketTest, FileHasItsModeFromTheFirstMoment) {
  const mode_t before = ::umask(0);
  Result<ListeningSocket> server = ListeningSocket::Open({.path = path_, .mode = 0600});
  EXPECT_EQ(::umask(before), 0u) << "the process's umask was not put back";
  ASSERT_TRUE(server.ok());
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(ListeningSocketTest, RejectsSecondServerAndKeepsFirst) {
  Result<ListeningSocket> first = ListeningSocket::Open({.path = path_});
  ASSERT_TRUE(first.ok());
  Result<ListeningSocket> second = ListeningSocket::Open({.path = path_});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("another server already serves"));
  EXPECT_TRUE(ConnectUnix(path_, Soon()).ok());
}

TEST_F(ListeningSocketTest, SocketOfAKilledServerIsReplaced) {
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<ListeningSocket> server = ListeningSocket::Open({.path = path_});
    const char told = server.ok() ? '1' : '0';
    if (::write(ready[1], &told, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char told = 0;
  ASSERT_EQ(::read(ready[0], &told, 1), 1);
  ASSERT_EQ(told, '1');
  EXPECT_FALSE(ListeningSocket::Open({.path = path_}).ok()) << "it still lives";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(std::filesystem::exists(path_)) << "a killed server leaves its file";
  EXPECT_EQ(ConnectUnix(path_, Soon()).status().code(), StatusCode::kUnavailable);

  Result<ListeningSocket> server = ListeningSocket::Open({.path = path_});
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_TRUE(server->replaced_stale());
  EXPECT_TRUE(ConnectUnix(path_, Soon()).ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(ListeningSocketTest, DoesNotRemoveOtherFiles) {
  std::ofstream(path_) << "precious";
  Result<ListeningSocket> server = ListeningSocket::Open({.path = path_});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), HasSubstr("is not a socket"));
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "precious");
}

// If the lock file could be a link, a user who may write to the directory could make the server
// create or lock any file that the server may write.
TEST_F(ListeningSocketTest, LockFileIsNotALink) {
  const std::string elsewhere = path_ + ".elsewhere";
  ASSERT_EQ(::symlink(elsewhere.c_str(), (path_ + ".lock").c_str()), 0);
  EXPECT_FALSE(ListeningSocket::Open({.path = path_}).ok());
  EXPECT_NE(::access(elsewhere.c_str(), F_OK), 0);
}

TEST_F(ListeningSocketTest, EndRemovesTheSocketAndKeepsTheLockFile) {
  {
    Result<ListeningSocket> server = ListeningSocket::Open({.path = path_});
    ASSERT_TRUE(server.ok());
    ListeningSocket moved = std::move(*server);
    EXPECT_TRUE(ConnectUnix(path_, Soon()).ok()) << "moving must not close";
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".lock"));
  EXPECT_TRUE(ListeningSocket::Open({.path = path_}).ok());
}

TEST_F(ListeningSocketTest, MissingDirectoryIsNamed) {
  const Status status = ListeningSocket::Open({.path = directory_ / "none/server.sock"}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("/none/server.sock"));
}

TEST_F(ListeningSocketTest, ConnectingToNothingNamesThePath) {
  const Status status = ConnectUnix(path_, Soon()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(path_));
}

TEST_F(ListeningSocketTest, IdentifiesPeerByKernelsCredentials) {
  Result<ListeningSocket> server = ListeningSocket::Open({.path = path_});
  ASSERT_TRUE(server.ok());
  Result<UniqueFd> client = ConnectUnix(path_, Soon());
  Result<std::optional<UniqueFd>> accepted = server->Accept();
  ASSERT_TRUE(client.ok() && accepted.ok() && accepted->has_value());
  Result<PeerIdentity> peer = GetPeer((*accepted)->get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->gid, ::getgid());
  Result<UniqueFd> pidfd = OpenPeerPidfd((*accepted)->get());
  ASSERT_TRUE(pidfd.ok()) << pidfd.status().ToString();
  EXPECT_NE(::fcntl(pidfd->get(), F_GETFD) & FD_CLOEXEC, 0);
}

// A connect to a server that does not accept must end by its deadline.
TEST_F(ListeningSocketTest, ConnectToAFullQueueTimesOut) {
  Result<ListeningSocket> server = ListeningSocket::Open({.path = path_, .backlog = 0});
  ASSERT_TRUE(server.ok());
  std::vector<UniqueFd> clients;
  Status last;
  for (int i = 0; i < 10 && last.ok(); ++i) {
    Result<UniqueFd> client =
        ConnectUnix(path_, std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
    last = client.status();
    if (client.ok()) clients.push_back(std::move(*client));
  }
  EXPECT_EQ(last.code(), StatusCode::kTimedOut) << last.ToString();
}

}  // namespace
}  // namespace gpushared::ipc
