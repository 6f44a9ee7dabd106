// SPDX-License-Identifier: Apache-2.0
// Fixture for the broker alone: real sockets and real worker processes, but workers without
// devices.

#ifndef GPUSHARED_TESTS_SERVER_BROKER_CASE_H_
#define GPUSHARED_TESTS_SERVER_BROKER_CASE_H_

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "ipc/unix_socket.h"
#include "server/broker/broker.h"
#include "server/telemetry/admin/ask.h"
#include "tests/server/other_user.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

inline ipc::Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

inline ipc::Hello Hello(const std::string& name, const std::string& device = "",
                        std::optional<SchedulingClass> client_class = std::nullopt) {
  ipc::Hello hello;
  hello.name = name;
  hello.device = device;
  hello.client_class = client_class;
  return hello;
}

inline ipc::Admin Verb(ipc::AdminVerb verb) {
  ipc::Admin admin;
  admin.verb = verb;
  return admin;
}

// A broker on its own thread, with one fake worker per device.
class BrokerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::chmod(directory_.path().c_str(), 0755);
    options_.socket_path = directory_ / "s";
    options_.devices = {{.id = "fake:0"}};
    options_.own_uid = ::geteuid();
    options_.policy = "priority";
    options_.version = "test";
    options_.stop_grace = std::chrono::milliseconds(200);
    options_.drain_grace = std::chrono::milliseconds(200);
    options_.launch = [this](const device::SelectedDevice& device, std::uint32_t generation) {
      return WorkerProcess::Launch{
          .program = GPUSHARED_FAKE_WORKER,
          .arguments = {std::to_string(generation), behaviour_(device.id, generation)}};
    };
  }

  void TearDown() override {
    Stop();
    Stop();
    WaitForEnd();
  }

  void StartBroker() {
    auto log = std::make_shared<spdlog::logger>(
        "broker", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_text_));
    log->set_level(spdlog::level::debug);
    broker_ = std::make_unique<Broker>(context_, options_, log);
    const Status status = broker_->Start();
    ASSERT_TRUE(status.ok()) << status.message();
    thread_ = std::thread([this] { context_.run(); });
  }

  void Stop() {
    if (broker_) boost::asio::post(context_, [this] { broker_->Stop("the test"); });
  }

  void WaitForEnd() {
    if (thread_.joinable()) thread_.join();
  }

  ipc::UniqueFd ConnectOnly() { return ConnectTo(options_.socket_path); }
  static ipc::UniqueFd ConnectTo(const std::string& path) {
    Result<ipc::UniqueFd> socket = ipc::ConnectUnix(path, Soon());
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    return socket.ok() ? std::move(*socket) : ipc::UniqueFd();
  }

  ipc::UniqueFd ConnectAs(uid_t uid) {
    const testing::ActingAs user(uid);
    EXPECT_TRUE(user.is_acting());
    return ConnectOnly();
  }

  template <typename T>
  static Result<ipc::Frame> Ask(const ipc::UniqueFd& socket, const T& message) {
    const Status sent = ipc::SendMessage(socket.get(), 5, message, Soon());
    if (!sent.ok()) return sent;
    return ipc::ReceiveFrame(socket.get(), ipc::ServerFrameRules, Soon());
  }

  // Returns the connection of a client that a worker has accepted, or the rejection.
  Result<ipc::UniqueFd> Join(const ipc::Hello& hello) {
    return JoinAt(options_.socket_path, hello);
  }
  static Result<ipc::UniqueFd> JoinAt(const std::string& path, const ipc::Hello& hello) {
    ipc::UniqueFd socket = ConnectTo(path);
    const Result<ipc::Frame> frame = Ask(socket, hello);
    if (!frame.ok()) return frame.status();
    const Result<ipc::Done> welcomed = ipc::DecodeReply<ipc::Done>(*frame);
    if (!welcomed.ok()) return welcomed.status();
    return socket;
  }

  // Returns the only page of the answer.
  Result<ipc::AdminReply> Admin(const ipc::Admin& admin) {
    const ipc::UniqueFd socket = ConnectOnly();
    const Result<ipc::Frame> frame = Ask(socket, admin);
    if (!frame.ok()) return frame.status();
    return ipc::DecodeReply<ipc::AdminReply>(*frame);
  }
  // Returns the complete answer.
  Result<nlohmann::json> Answer(ipc::AdminVerb verb) {
    return admin::Ask(options_.socket_path, Verb(verb));
  }

  Status Why(std::uint64_t session) {
    const ipc::UniqueFd socket = ConnectOnly();
    const Result<ipc::Frame> frame = Ask(socket, ipc::Why{session});
    if (!frame.ok()) return frame.status();
    const Result<ipc::Ended> ended = ipc::DecodeReply<ipc::Ended>(*frame);
    return ended.ok() ? ended->status : ended.status();
  }

  nlohmann::json Device(std::size_t index) {
    const Result<ipc::AdminReply> reply = Admin(Verb(ipc::AdminVerb::kDevices));
    if (!reply.ok()) return nlohmann::json::object();
    return nlohmann::json::parse(reply->text).at("devices").at(index);
  }
  std::size_t Sessions(std::size_t device) { return Device(device).at("sessions"); }
  pid_t WorkerPid() { return Device(0).at("worker_pid"); }

  testing::ProgramOutcome Ctl(const std::vector<std::string>& arguments,
                              const std::string& program = GPUSHARED_CTL) {
    std::vector<std::string> command = {program, "--socket", options_.socket_path};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return testing::RunProgram(command);
  }
  // Returns the exit code of gpusharedctl for a user who may not enter the build directory. Needs
  // root.
  int CtlOfNobody(const std::vector<std::string>& arguments) {
    const std::string copy = directory_ / "gpusharedctl";
    std::filesystem::copy_file(GPUSHARED_CTL, copy, std::filesystem::copy_options::skip_existing);
    return testing::AsNobody([&] { return Ctl(arguments, copy).exit_code; });
  }

  std::function<std::string(const std::string&, std::uint32_t)> behaviour_ =
      [](const std::string&, std::uint32_t) { return "normal"; };
  testing::ScratchDirectory directory_;
  BrokerOptions options_;
  boost::asio::io_context context_;
  std::ostringstream log_text_;  // Read after WaitForEnd only.
  std::unique_ptr<Broker> broker_;
  std::thread thread_;
};

inline bool AtEof(const ipc::UniqueFd& socket) {
  const Result<ipc::Frame> frame = ipc::ReceiveFrame(socket.get(), ipc::ServerFrameRules, Soon());
  return !frame.ok() && frame.status().code() == StatusCode::kDisconnected;
}

inline StatusCode RejectionOn(const ipc::UniqueFd& socket) {
  const Result<ipc::Frame> frame = ipc::ReceiveFrame(socket.get(), ipc::ServerFrameRules, Soon());
  return frame.ok() ? ipc::DecodeReply<ipc::Done>(*frame).status().code() : frame.status().code();
}

}  // namespace gpushared::server

#endif  // GPUSHARED_TESTS_SERVER_BROKER_CASE_H_
