// SPDX-License-Identifier: Apache-2.0
// A session whose connection breaks without a message: how the client reports the broker's answer,
// whatever that is. If a client waits forever, the test fails by its time limit.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "ipc/unix_socket.h"
#include "tests/client_lib/asleep.h"
#include "tests/support/fake_worker.h"

namespace gpushared {
namespace {

using ::testing::AllOf;
using testing::FakeWorker;
using ::testing::HasSubstr;

class WhyEnded : public ::testing::Test {
 protected:
  // Breaks the connection under a waiting client; returns the client's status.
  Status BreakWhile(FakeWorker::WhyAnswer answer) {
    worker_.set_why(std::move(answer));
    return Break();
  }
  Status Break() {
    Result<Client> client = Client::Connect({.socket = worker_.socket_path()});
    if (!client.ok()) return client.status();
    worker_.set_finishing(false);
    const Status filled = client->default_stream().Fill(FakeWorker::kBase, FillElement::U8(1), 1);
    EXPECT_TRUE(filled.ok()) << filled.ToString();
    OnceConnected();
    worker_.KillSessions();
    Status status = client->default_stream().Synchronize();
    EXPECT_EQ(client->status().ToString(), status.ToString()) << "the first reason stays";
    return status;
  }
  virtual void OnceConnected() {}

  FakeWorker worker_;
};

template <typename T>
FakeWorker::WhyAnswer Answer(T message) {
  return [message](const ipc::UniqueFd& socket) {
    (void)ipc::SendMessage(socket.get(), 1, message,
                           std::chrono::steady_clock::now() + std::chrono::seconds(5));
  };
}

FakeWorker::WhyAnswer Sends(std::vector<unsigned char> bytes) {
  return [bytes = std::move(bytes)](const ipc::UniqueFd& socket) {
    (void)!::write(socket.get(), bytes.data(), bytes.size());
  };
}

TEST_F(WhyEnded, PassesOnBrokersMessageUnchanged) {
  const Status status = BreakWhile(
      Answer(ipc::Ended{Status(StatusCode::kProtocolViolation, "grid of 0 [client 7]")}));
  EXPECT_EQ(status.ToString(), "ProtocolViolation: grid of 0 [client 7]");
}

// The broker's answer, and the part of it that is quoted.
struct NoReason {
  const char* name;
  FakeWorker::WhyAnswer answer;
  std::string quoted = "";
};

std::vector<NoReason> NoReasons() {
  const auto garbage = [](std::size_t bytes) {
    return Sends(std::vector<unsigned char>(bytes, 0xa5));
  };
  // This answer must be ignored, because otherwise a session could end with status ok.
  const auto all_is_well = [](const ipc::UniqueFd& socket) {
    const std::array<std::byte, 8> nothing_wrong = {};
    (void)ipc::SendFrame(socket.get(), static_cast<std::uint16_t>(ipc::MessageType::kEnded), 1,
                         nothing_wrong, {},
                         std::chrono::steady_clock::now() + std::chrono::seconds(5));
  };
  return {{"Rejection", Answer(ipc::Rejected{Status(StatusCode::kNotFound, "unknown")}), "unknown"},
          {"AnswerToAnotherQuestion", Answer(ipc::Done{}), "Done"},
          {"EndThatClaimsAllIsWell", all_is_well},
          {"OneByteOfGarbage", garbage(1)},
          {"SixteenBytesOfGarbage", garbage(16)},
          {"ManyBytesOfGarbage", garbage(4096)},
          {"AnswerThatBreaksOff", Sends({0x47, 0x47})},
          {"Silence", [](const ipc::UniqueFd&) {}, "closed"}};
}

class WhyEndedBy : public WhyEnded, public ::testing::WithParamInterface<NoReason> {};

TEST_P(WhyEndedBy, IgnoresInvalidAnswer) {
  const Status status = BreakWhile(GetParam().answer);
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("session 7"), HasSubstr("no reason"), HasSubstr(GetParam().quoted)));
}

INSTANTIATE_TEST_SUITE_P(Answers, WhyEndedBy, ::testing::ValuesIn(NoReasons()),
                         [](const auto& test) { return std::string(test.param.name); });

// Every byte counts as progress, and yet the whole answer would take minutes.
TEST_F(WhyEnded, LimitsWaitForBrokerThatAnswersByteByByte) {
  std::atomic<int> asked{0};
  const Status status = BreakWhile([&](const ipc::UniqueFd& socket) {
    ++asked;
    ipc::FrameHeader header;
    header.type = static_cast<std::uint16_t>(ipc::MessageType::kEnded);
    header.payload_bytes = ipc::kTextBytesMax;
    auto sent = ::send(socket.get(), &header, sizeof header, MSG_NOSIGNAL);
    while (sent > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      sent = ::send(socket.get(), "x", 1, MSG_NOSIGNAL);
    }
  });
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(), HasSubstr("no reason"));
  EXPECT_EQ(asked, 1);
}

// ---- SIGINT

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a signal handler writes it.
std::atomic<int> interrupts{0};

class WhyEndedByInterrupt : public WhyEnded {
 protected:
  WhyEndedByInterrupt() {
    interrupts = 0;
    struct sigaction ours {};
    ours.sa_handler = [](int) { ++interrupts; };
    ::sigaction(SIGINT, &ours, &before_);
  }
  ~WhyEndedByInterrupt() override { ::sigaction(SIGINT, &before_, nullptr); }

  // Returns the status of a waiting call when SIGINT has arrived and then the connection breaks.
  Status InterruptWhile(std::optional<bool> ends_on_interrupt) {
    Result<Client> client =
        Client::Connect({.socket = worker_.socket_path(), .ends_on_interrupt = ends_on_interrupt});
    if (!client.ok()) return client.status();
    worker_.set_finishing(false);
    worker_.set_why(Answer(ipc::Ended{Status(StatusCode::kDeviceLost, "it was cut")}));
    const Status filled = client->default_stream().Fill(FakeWorker::kBase, FillElement::U8(1), 1);
    EXPECT_TRUE(filled.ok()) << filled.ToString();
    std::atomic<bool> has_returned{false};
    std::thread interrupter = testing::OnceAsleep([&] {
      ::kill(::getpid(), SIGINT);
      // Waits for longer than two polls of the waiting call.
      for (int i = 0; i < 30 && !has_returned; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (!has_returned) worker_.KillSessions();
    });
    Status status = client->default_stream().Synchronize();
    has_returned = true;
    interrupter.join();
    return status;
  }

  struct sigaction before_ {};
};

TEST_F(WhyEndedByInterrupt, WaitingCallReturnsIfRequested) {
  const Status status = InterruptWhile(true);
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(), HasSubstr("SIGINT"));
  EXPECT_EQ(interrupts, 1) << "the program's handler runs, too";
  ::kill(::getpid(), SIGINT);
  EXPECT_EQ(interrupts, 2) << "the program's handler must be installed again";
}

TEST_F(WhyEndedByInterrupt, WaitingCallContinuesUnlessRequested) {
  EXPECT_EQ(InterruptWhile({}).message(), "it was cut");
  EXPECT_EQ(interrupts, 1);
}

TEST_F(WhyEndedByInterrupt, IgnoresSignalBeforeWait) {
  ::kill(::getpid(), SIGINT);
  Result<Client> client =
      Client::Connect({.socket = worker_.socket_path(), .ends_on_interrupt = true});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  EXPECT_TRUE(client->default_stream().Synchronize().ok());
  EXPECT_TRUE(client->status().ok());
}

struct WithoutABroker : WhyEnded {
  void OnceConnected() override { worker_.StopListening(); }
};
TEST_F(WithoutABroker, MessageNamesUnansweredPath) {
  const Status status = Break();
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("session 7"), HasSubstr(worker_.socket_path())));
}

}  // namespace
}  // namespace gpushared
