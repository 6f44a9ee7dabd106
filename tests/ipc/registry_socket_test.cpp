// SPDX-License-Identifier: Apache-2.0
#include "ipc/registry_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/other_user.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::ipc {
namespace {

using gpushared::testing::ScratchDirectory;
using ::testing::HasSubstr;

TEST(RegistrySocket, ABrokerFindsTheWorkerThatTheFileNames) {
  const ScratchDirectory directory;
  Result<RegistrySocket> socket = RegistrySocket::Open(directory.path());
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  EXPECT_EQ(socket->path(), directory / std::to_string(::getpid()));
  EXPECT_FALSE(socket->Accept()->has_value()) << "nobody has come";

  Result<FoundWorker> worker = FindWorker(directory.path(), ::getpid());
  ASSERT_TRUE(worker.ok()) << worker.status().ToString();
  EXPECT_EQ(worker->pid, ::getpid());
  EXPECT_TRUE(worker->pidfd.valid());
  Result<std::optional<UniqueFd>> broker = socket->Accept();
  ASSERT_TRUE(broker.ok() && broker->has_value());

  Outbox outbox(Outbox::Kind::kSeqpacket);
  ASSERT_TRUE(outbox.Add(0, TakeOver{}).ok());
  ASSERT_TRUE(outbox.Flush(worker->channel.get()).ok());
  const auto message = ReceiveChannelMessage((*broker)->get(), ChannelToWorkerRules);
  ASSERT_TRUE(message.ok() && message->has_value());
  EXPECT_EQ((*message)->type, static_cast<std::uint16_t>(ChannelType::kTakeOver));
}

TEST(RegistrySocket, RemovesItsFileSoThatNoBrokerFindsIt) {
  const ScratchDirectory directory;
  std::string path;
  {
    Result<RegistrySocket> socket = RegistrySocket::Open(directory.path());
    ASSERT_TRUE(socket.ok()) << socket.status().ToString();
    path = socket->path();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(FindWorker(directory.path(), ::getpid()).status().code(), StatusCode::kNotFound);
}

// A process that can create a file in the directory belongs to the server's user, but may name
// another process than itself.
TEST(RegistrySocket, ListenerMustBeTheNamedProcess) {
  const ScratchDirectory directory;
  Result<RegistrySocket> socket = RegistrySocket::Open(directory.path());
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  std::filesystem::rename(socket->path(), directory / "1");
  const Result<FoundWorker> found = FindWorker(directory.path(), 1);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(found.status().message(), HasSubstr("expected uid"));
}

TEST(RegistrySocket, RejectsBrokerOfOtherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to act as another user";
  const ScratchDirectory directory;
  ::chmod(directory.path().c_str(), 0777);
  Result<RegistrySocket> socket = RegistrySocket::Open(directory.path());
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  ::chmod(socket->path().c_str(), 0777);
  {
    const gpushared::testing::ActingAs nobody(65534);
    ASSERT_TRUE(nobody.is_acting());
    // The connecting side rejects a socket of another user, too.
    EXPECT_EQ(FindWorker(directory.path(), ::getpid()).status().code(),
              StatusCode::kPermissionDenied);
  }
  const Result<std::optional<UniqueFd>> accepted = socket->Accept();
  ASSERT_FALSE(accepted.ok());
  EXPECT_THAT(accepted.status().message(), HasSubstr("a broker of uid 65534"));
}

// A broker that dies has often left data unread. The kernel then reports an error first, although
// the messages by which the broker handed over clients can still be read after the error.
TEST(Channel, ReceivesLastMessagesOfPeerThatDidNotReadOurs) {
  auto pair = MakeChannelPair();
  ASSERT_TRUE(pair.ok());
  Outbox ours(Outbox::Kind::kSeqpacket), theirs(Outbox::Kind::kSeqpacket);
  ASSERT_TRUE(theirs.Add(0, Drain{}).ok() && theirs.Flush(pair->second.get()).ok());
  ASSERT_TRUE(ours.Add(0, SessionStarted{1}).ok() && ours.Flush(pair->first.get()).ok());
  pair->second.Reset();
  const auto message = ReceiveChannelMessage(pair->first.get(), ChannelToWorkerRules);
  ASSERT_TRUE(message.ok()) << message.status().ToString();
  ASSERT_TRUE(message->has_value());
  EXPECT_EQ((*message)->type, static_cast<std::uint16_t>(ChannelType::kDrain));
  EXPECT_EQ(ReceiveChannelMessage(pair->first.get(), ChannelToWorkerRules).status().code(),
            StatusCode::kDisconnected);
}

}  // namespace
}  // namespace gpushared::ipc
