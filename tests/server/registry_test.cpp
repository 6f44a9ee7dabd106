// SPDX-License-Identifier: Apache-2.0
// A broker meets workers of an earlier broker: honest ones, outdated ones and lying ones.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/registry_socket.h"
#include "tests/server/broker_case.h"

namespace gpushared::server {
namespace {

using ::testing::HasSubstr;

ipc::Ready GetReady(std::uint32_t generation) {
  ipc::Ready ready;
  ready.generation = generation;
  ready.device.name = "a device that is here already";
  ready.device.id = "fake:0";
  ready.device.kind = "fake";
  ready.device.memory_bytes = std::uint64_t{1} << 30;
  ready.device.multiprocessors = 1;
  ready.device.threads_per_block_max = 1024;
  ready.device.block_max = {1024, 1024, 64};
  ready.device.grid_max = {1, 1, 1};
  return ready;
}

ipc::RegistrySession Row(std::uint64_t session) {
  return {.session = session,
          .peer = {.pid = 4121, .uid = 1000, .gid = 1000},
          .name = "train",
          .client_class = SchedulingClass::kLow,
          .weight = 2,
          .quota_bytes = 1 << 20,
          .has_started = true};
}

// This process in the role of a worker that outlived its broker.
class OldWorker {
 public:
  using Script = std::function<void(OldWorker&)>;
  OldWorker(const std::string& directory, Script script) : script_(std::move(script)) {
    ::mkdir(directory.c_str(), 0700);
    Result<ipc::RegistrySocket> socket = ipc::RegistrySocket::Open(directory);
    EXPECT_TRUE(socket.ok()) << socket.status().ToString();
    thread_ = std::thread([this, socket = std::move(*socket)]() mutable { Run(socket); });
  }
  ~OldWorker() {
    is_over_ = true;
    thread_.join();
  }

  template <typename T>
  void Send(const T& message) {
    ipc::Outbox outbox(ipc::Outbox::Kind::kSeqpacket);
    ASSERT_TRUE(outbox.Add(0, message).ok());
    (void)outbox.Flush(channel_.get());
  }
  void SendBytes(const std::string& bytes) {
    (void)::send(channel_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  bool was_let_go() const { return was_let_go_; }
  std::uint64_t attached() const { return attached_; }

 private:
  bool Readable(int fd) const {
    while (!is_over_) {
      pollfd polled{fd, POLLIN, 0};
      if (::poll(&polled, 1, 20) > 0) return true;
    }
    return false;
  }

  void Run(ipc::RegistrySocket& socket) {
    while (Readable(socket.fd())) {
      Result<std::optional<ipc::UniqueFd>> accepted = socket.Accept();
      if (!accepted.ok() || !accepted->has_value()) continue;
      channel_ = std::move(**accepted);
      while (Readable(channel_.get())) {
        Result<std::optional<ipc::Frame>> frame =
            ipc::ReceiveChannelMessage(channel_.get(), ipc::ChannelToWorkerRules);
        if (!frame.ok()) break;
        if (frame->has_value()) Handle(**frame);
      }
    }
  }

  void Handle(const ipc::Frame& frame) {
    if (frame.type == static_cast<std::uint16_t>(ipc::ChannelType::kTakeOver)) script_(*this);
    if (frame.type == static_cast<std::uint16_t>(ipc::ChannelType::kDrain)) was_let_go_ = true;
    if (frame.type == static_cast<std::uint16_t>(ipc::ChannelType::kAttach)) {
      attached_ = ipc::Decode<ipc::Attach>(frame.payload)->session;
    }
  }

  Script script_;
  ipc::UniqueFd channel_;
  std::atomic<bool> is_over_ = false, was_let_go_ = false;
  std::atomic<std::uint64_t> attached_ = 0;
  std::thread thread_;
};

class RegistryTest : public BrokerTest {
 protected:
  void SetUp() override {
    BrokerTest::SetUp();
    options_.registry_directory = directory_ / "workers";
    options_.registry_wait = std::chrono::milliseconds(300);
  }

  // Expects that the old worker is rejected with this message and that a new one serves its device.
  void ExpectRejected(const OldWorker::Script& script, const std::string& why) {
    OldWorker old(options_.registry_directory, script);
    StartBroker();
    EXPECT_TRUE(testing::Eventually([&] { return Device(0).at("state") == "ready"; }));
    EXPECT_NE(WorkerPid(), ::getpid());
    EXPECT_TRUE(Join(Hello("new_client")).ok());
    EXPECT_TRUE(testing::Eventually([&] { return old.was_let_go(); }));
    Stop();
    Stop();
    WaitForEnd();
    EXPECT_THAT(log_text_.str(), HasSubstr("worker pid " + std::to_string(::getpid()) +
                                           " is not taken over: " + why));
  }
};

TEST_F(RegistryTest, AdoptsSessionsEndReasonsAndNumbersOfOldWorker) {
  const ipc::RegistryEnd end{8, ::getpid(), ::geteuid(),
                             Status(StatusCode::kLimitExceeded, "it ran long")};
  OldWorker old(options_.registry_directory, [&](OldWorker& worker) {
    worker.Send(ipc::Registry{.generation = 7, .last_session = 9, .sessions = 1, .ends = 1});
    worker.Send(Row(6));
    worker.Send(end);
    worker.Send(GetReady(7));
  });
  StartBroker();
  EXPECT_EQ(WorkerPid(), ::getpid());
  EXPECT_EQ(Device(0).at("generation"), 7);
  EXPECT_EQ(Sessions(0), 1U);
  EXPECT_EQ(Why(8).message(), "it ran long");
  const ipc::UniqueFd client = ConnectOnly();
  ASSERT_TRUE(ipc::SendMessage(client.get(), 1, Hello("new_client"), Soon()).ok());
  EXPECT_TRUE(testing::Eventually([&] { return old.attached() == 10; })) << "the next number";
  EXPECT_FALSE(old.was_let_go());
  old.Send(ipc::SessionEnded{6, Status::Ok()});
  old.Send(ipc::SessionEnded{10, Status::Ok()});
  EXPECT_TRUE(testing::Eventually([&] { return Sessions(0) == 0; }));
  // Does not call Stop, because the worker that it would kill is this process.
  context_.stop();
  WaitForEnd();
  broker_.reset();
}

// If a broker dies before its worker is ready, the next broker starts another worker of the same
// generation.
TEST_F(RegistryTest, OfTwoWorkersOfOneGenerationKeepsTheOneWithSessions) {
  const pid_t idle = ::fork();
  if (idle == 0) {
    const OldWorker worker(options_.registry_directory, [](OldWorker& self) {
      self.Send(ipc::Registry{.generation = 1});
      self.Send(GetReady(1));
    });
    for (;;) ::pause();
  }
  ASSERT_TRUE(testing::Eventually([&] {
    return ::access((options_.registry_directory + "/" + std::to_string(idle)).c_str(), F_OK) == 0;
  }));
  // The other worker answers first.
  OldWorker old(options_.registry_directory, [](OldWorker& self) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    self.Send(ipc::Registry{.generation = 1, .last_session = 9, .sessions = 1});
    self.Send(Row(6));
    self.Send(GetReady(1));
  });
  StartBroker();
  EXPECT_EQ(WorkerPid(), ::getpid());
  EXPECT_EQ(Sessions(0), 1U);
  EXPECT_FALSE(old.was_let_go());
  ::kill(idle, SIGKILL);
  ::waitpid(idle, nullptr, 0);
  context_.stop();
  WaitForEnd();
  broker_.reset();
}

TEST_F(RegistryTest, LeavesWorkerOfOtherVersionToItsSessions) {
  ExpectRejected(
      [](OldWorker& worker) {
        worker.Send(ipc::ChannelReply{.code = StatusCode::kVersionMismatch, .text = "too new"});
      },
      "too new");
}

TEST_F(RegistryTest, UnresponsiveWorkerDelaysStartBriefly) {
  ExpectRejected([](OldWorker&) {}, "it did not report its sessions within 300 ms");
}

TEST_F(RegistryTest, RejectsUnexpectedMessage) {
  ExpectRejected(
      [](OldWorker& worker) {
        worker.Send(ipc::Registry{.generation = 1, .last_session = 9, .sessions = 2});
        worker.Send(Row(1));
        worker.Send(GetReady(1));
      },
      "it sent a Ready message out of turn");
}

TEST_F(RegistryTest, RejectsGarbage) {
  ExpectRejected([](OldWorker& worker) { worker.SendBytes(std::string(200, 'x')); }, "");
}

TEST_F(RegistryTest, RejectsDuplicateSession) {
  ExpectRejected(
      [](OldWorker& worker) {
        worker.Send(ipc::Registry{.generation = 1, .last_session = 9, .sessions = 2});
        worker.Send(Row(4));
        worker.Send(Row(4));
        worker.Send(GetReady(1));
      },
      "its registry is rejected: session 4 occurs twice");
}

TEST_F(RegistryTest, RejectsSessionNumberAboveLast) {
  ExpectRejected(
      [](OldWorker& worker) {
        worker.Send(ipc::Registry{.generation = 1, .last_session = 9, .sessions = 1});
        worker.Send(Row(10));
        worker.Send(GetReady(1));
      },
      "its registry is rejected: session 10 is above the last number, 9");
}

TEST_F(RegistryTest, RejectsGuaranteeAboveDeviceMemory) {
  ExpectRejected(
      [](OldWorker& worker) {
        ipc::RegistrySession row = Row(1);
        row.quota_bytes = row.guaranteed_bytes = std::uint64_t{2} << 30;
        worker.Send(ipc::Registry{.generation = 1, .last_session = 9, .sessions = 1});
        worker.Send(row);
        worker.Send(GetReady(1));
      },
      "its registry is rejected: the guarantee of session 1 is 2 GiB, the device has 1 GiB");
}

TEST_F(RegistryTest, RejectsDuplicateGeneration) {
  ExpectRejected(
      [](OldWorker& worker) {
        worker.Send(ipc::Registry{.generation = 1});
        worker.Send(GetReady(2));
      },
      "its registry is rejected: it names two generations");
}

TEST_F(RegistryTest, RejectsDirectoryAccessibleToOthers) {
  ::mkdir(options_.registry_directory.c_str(), 0700);
  ::chmod(options_.registry_directory.c_str(), 0755);
  StartBroker();
  EXPECT_TRUE(Join(Hello("client")).ok());
  Stop();
  Stop();
  WaitForEnd();
  EXPECT_THAT(log_text_.str(), HasSubstr("is not restricted to the server's own user"));
}

}  // namespace
}  // namespace gpushared::server
