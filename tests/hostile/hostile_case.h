// SPDX-License-Identifier: Apache-2.0
// A malicious client next to a neighbour whose results must remain correct.

#ifndef GPUSHARED_TESTS_HOSTILE_HOSTILE_CASE_H_
#define GPUSHARED_TESTS_HOSTILE_HOSTILE_CASE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/raw_client.h"
#include "tests/support/read_file.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {

using namespace std::chrono_literals;

inline constexpr std::uint32_t kModule = 0;
inline constexpr std::uint64_t kMemoryBytes = 4u << 20;

class Hostile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{"--log-level", "error"});
    image_ = ReadFile(GPUSHARED_SYSTEM_KERNELS);
    neighbour_ = std::make_unique<Client>(
        std::move(Client::Connect({.name = "neighbour", .socket = server_->socket()})).value());
    worker_ = server_->workers().at(0);  // Has started, because it serves the neighbour.
    buffer_ = std::make_unique<DeviceBuffer>(std::move(neighbour_->AllocateDevice(4096)).value());
  }
  static void TearDownTestSuite() {
    buffer_.reset();
    neighbour_.reset();
    server_.reset();
  }

  void TearDown() override {
    EXPECT_EQ(server_->workers(), std::vector<pid_t>{worker_}) << "the worker ended:\n"
                                                               << server_->Log();
    NeighbourGoesOn();
  }

  static void NeighbourGoesOn() {
    unsigned value = 0;
    const Stream stream = neighbour_->default_stream();
    EXPECT_TRUE(stream.Fill(*buffer_, FillElement::U32(++round_), 16).ok());
    EXPECT_TRUE(stream.CopyToHost(&value, *buffer_, sizeof value).ok());
    EXPECT_EQ(value, round_) << "the neighbour's result";
  }

  static RawClient Join(bool with_module = true) {
    const auto must = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); };
    Result<RawClient> client = RawClient::Connect(server_->socket());
    must(client.status());
    ipc::Hello hello;
    hello.name = "hostile";
    must(client->Join(hello));
    if (with_module) {
      const Result<ipc::ModuleLoaded> module = client->LoadModule(kModule, image_);
      must(module.status());
      step_kernel_ = KernelNumber(*module, "step");
    }
    must(client->Resize(kMemoryBytes).status());
    must(client->AddStagingBuffer(ipc::kStagingBufferBytesDefault).status());
    return *std::move(client);
  }

  // Returns the message with which the server ended the session; empty if it has not ended within
  // `limit`.
  static std::string Ending(RawClient& client, std::chrono::milliseconds limit) {
    const Result<ipc::Frame> frame = client.NextFrame(limit);
    if (!frame)
      return frame.status().code() == StatusCode::kTimedOut ? "" : frame.status().ToString();
    if (frame->type != static_cast<std::uint16_t>(ipc::MessageType::kEnded)) return "";
    const Result<ipc::Ended> ended = ipc::Decode<ipc::Ended>(frame->payload);
    return ended.ok() ? ended->status.ToString() : ended.status().ToString();
  }

  static StatusCode StreamError(RawClient& client) {
    (void)client.AwaitFinished(0, 1, 20s);
    return StreamErrorNow(client);
  }
  static StatusCode StreamErrorNow(RawClient& client) {
    const Result<ipc::ErrorText> text = client.Ask<ipc::ErrorText>(ipc::DescribeError{0});
    return text.ok() ? text->status.code() : text.status().code();
  }

  static inline std::unique_ptr<ServerProcess> server_;
  static inline std::unique_ptr<Client> neighbour_;
  static inline std::unique_ptr<DeviceBuffer> buffer_;
  static inline std::string image_;
  static inline std::uint32_t step_kernel_ = 0;
  static inline pid_t worker_ = -1;
  static inline unsigned round_ = 0;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_HOSTILE_HOSTILE_CASE_H_
