// SPDX-License-Identifier: Apache-2.0
// Requests: which marks the library sends, what it rejects, and what it waits for.
#include <chrono>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/client_lib/asleep.h"
#include "tests/support/fake_worker.h"

namespace gpushared {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;
using testing::FakeWorker;
using ::testing::HasSubstr;

class RequestsTest : public ::testing::Test {
 protected:
  RequestsTest() {
    Result<Client> client = Client::Connect({.socket = worker_.socket_path()});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    client_ = std::move(*client);
    stream_ = client_.default_stream();
  }
  // The worker enforces the same rules, and would end the session.
  ~RequestsTest() override { EXPECT_THAT(worker_.violations(), ::testing::IsEmpty()); }

  template <typename Command>
  std::size_t GetTaken() const {
    const auto taken = worker_.taken();
    return static_cast<std::size_t>(std::ranges::count_if(taken, [](const auto& each) {
      return std::holds_alternative<Command>(each.command.body);
    }));
  }

  FakeWorker worker_;
  Client client_;
  Stream stream_;
};

TEST_F(RequestsTest, RequestsOfAStreamDoNotNestAndEndOnce) {
  EXPECT_THAT(stream_.EndRequest().message(), HasSubstr("stream 0 has none open"));
  EXPECT_TRUE(stream_.BeginRequest().ok());
  const Status nested = stream_.BeginRequest();
  EXPECT_EQ(nested.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(nested.message(), HasSubstr("stream 0 has one open"));
  EXPECT_TRUE(stream_.EndRequest().ok());
  EXPECT_EQ(stream_.EndRequest().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(stream_.BeginRequest().ok());
  EXPECT_TRUE(stream_.Synchronize().ok());
  EXPECT_EQ(GetTaken<ipc::BeginRequestCommand>(), 2u);
  EXPECT_EQ(GetTaken<ipc::EndRequestCommand>(), 1u);
}

TEST_F(RequestsTest, TimesAreBetweenNowAndAnHour) {
  for (const nanoseconds wrong : {nanoseconds(-1), nanoseconds(hours(1)) + nanoseconds(1)}) {
    EXPECT_EQ(stream_.BeginRequest(wrong).code(), StatusCode::kInvalidArgument);
    const Status hint = client_.ExpectRequestIn(wrong);
    EXPECT_EQ(hint.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(hint.message(), HasSubstr("ns, allowed: 0 to 3600000000000"));
  }
  EXPECT_TRUE(stream_.BeginRequest(hours(1)).ok());
  EXPECT_TRUE(client_.ExpectRequestIn(hours(1)).ok());
  EXPECT_TRUE(client_.Synchronize().ok());
  EXPECT_EQ(GetTaken<ipc::BeginRequestCommand>(), 1u);
  EXPECT_EQ(GetTaken<ipc::ExpectRequestCommand>(), 1u);
}

TEST_F(RequestsTest, LimitsOpenRequests) {
  std::vector<Stream> streams;
  for (std::uint32_t i = 0; i < kOpenRequestsMax; ++i) {
    streams.push_back(*client_.CreateStream());
    EXPECT_TRUE(streams.back().BeginRequest().ok());
  }
  const Status many = stream_.BeginRequest();
  EXPECT_EQ(many.code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(many.message(), HasSubstr("allowed: 16"));
  streams.pop_back();  // Ends the stream's request, too.
  EXPECT_TRUE(stream_.BeginRequest().ok());
}

TEST_F(RequestsTest, BeginWaitsForEndingRequestsAtLimit) {
  worker_.set_finishing(false);
  for (std::uint32_t i = 0; i < kOpenRequestsMax; ++i) {
    EXPECT_TRUE(stream_.BeginRequest().ok());
    EXPECT_TRUE(stream_.EndRequest().ok());
  }
  while (GetTaken<ipc::EndRequestCommand>() < kOpenRequestsMax) std::this_thread::yield();
  std::thread later = testing::OnceAsleep([this] {
    EXPECT_EQ(GetTaken<ipc::BeginRequestCommand>(), kOpenRequestsMax);
    worker_.set_finishing(true);
  });
  EXPECT_TRUE(stream_.BeginRequest().ok());
  later.join();
}

TEST_F(RequestsTest, RequestOfFailedStreamEnds) {
  worker_.FailAt(0, 2, Status(StatusCode::kKernelFault, "planned"));
  const DeviceBuffer buffer = *client_.AllocateDevice(256);
  EXPECT_TRUE(stream_.BeginRequest().ok());
  EXPECT_TRUE(stream_.Fill(buffer, FillElement::U8(1), 1).ok());
  EXPECT_EQ(stream_.Synchronize().code(), StatusCode::kKernelFault);
  EXPECT_EQ(stream_.EndRequest().code(), StatusCode::kKernelFault);
  EXPECT_EQ(stream_.EndRequest().code(), StatusCode::kInvalidArgument) << "it has ended";
  EXPECT_EQ(stream_.BeginRequest().code(), StatusCode::kKernelFault);
  while (GetTaken<ipc::EndRequestCommand>() < 1) std::this_thread::yield();
}

TEST_F(RequestsTest, EmptyHandlesAreRejected) {
  EXPECT_EQ(Stream().BeginRequest().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Stream().EndRequest().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Client().ExpectRequestIn(nanoseconds(1)).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpushared
