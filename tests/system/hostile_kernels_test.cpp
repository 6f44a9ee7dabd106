// SPDX-License-Identifier: Apache-2.0
// Malicious kernels on real servers, each in a process of another user. A neighbour's memory keeps
// every byte and reveals none. The worker survives if kernels are contained, and the culprit is
// notified. All shared and local memory of the fake driver's GPU contains other kernels' data.

#include "tests/support/hostile_kernels.h"

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "ipc/unique_fd.h"
#include "tests/server/other_user.h"
#include "tests/support/gpu_server.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kNeighbourBytes = std::size_t{1} << 20;
// Long compared with the time for which a busy machine keeps harmless kernels off its cores.
constexpr const char* kLimit = "low=2s";

struct Place {
  const char* name;
  HostilePlace place;
  // If false, the driver compiles, in the worker that serves all clients.
  bool has_compiler = false;
};

std::ostream& operator<<(std::ostream& out, const Place& place) { return out << place.name; }

Client Connect(const ServerProcess& server, const char* name, SchedulingClass its_class) {
  Result<Client> client =
      Client::Connect({.name = name, .scheduling_class = its_class, .socket = server.socket()});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? *std::move(client) : Client();
}

// A harmless client whose memory the hostile kernels attack.
class Neighbour {
 public:
  explicit Neighbour(const ServerProcess& server)
      : client_(Connect(server, "neighbour", SchedulingClass::kNormal)),
        memory_(*client_.AllocateDevice(kNeighbourBytes)),
        bytes_(kNeighbourBytes) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<std::uint8_t>(kOthersBit | (i * 2654435761U >> 13));
    }
    const Status written = stream().CopyToDevice(memory_.address(), bytes_.data(), bytes_.size());
    EXPECT_TRUE(written.ok()) << written.ToString();
  }

  const Client& client() const { return client_; }
  DeviceAddress target() const { return memory_.address() + kNeighbourBytes / 2; }
  void ExpectEveryByteAsItWas() const {
    std::vector<std::uint8_t> now(kNeighbourBytes);
    const Status read = stream().CopyToHost(now.data(), memory_.address(), now.size());
    ASSERT_TRUE(read.ok()) << read.ToString();
    EXPECT_EQ(bytes_, now);
  }

 private:
  Stream stream() const { return client_.default_stream(); }

  Client client_;
  DeviceBuffer memory_;
  std::vector<std::uint8_t> bytes_;
};

// A process's report: how its hostile kernel ended, and how a harmless kernel ended afterwards.
struct Told {
  pid_t pid = 0;
  HostileOutcome outcome;
  int harmless_code = -1;
};

class HostileClient : public ::testing::TestWithParam<Place> {
 protected:
  void Start() {
    const Place& place = GetParam();
    std::vector<std::string> arguments = {
        "--memory", place.place == HostilePlace::kContained ? "contain" : "fence", "--kernel-limit",
        kLimit};
    if (!place.has_compiler) arguments.insert(arguments.end(), {"--ptx-compiler", "driver"});
    gpu_ = std::make_unique<GpuServer>(GpuServerOptions{.statements = "leftover 222",
                                                        .arguments = std::move(arguments),
                                                        .has_compiler = place.has_compiler});
    // The server's directory was created for its owner only.
    std::filesystem::permissions(std::filesystem::path(server().socket()).parent_path(),
                                 std::filesystem::perms::all);
    neighbour_ = std::make_unique<Neighbour>(server());
    EXPECT_EQ(LeaveResidue(neighbour_->client()).ToString(), "Ok");
    workers_ = server().workers();
  }
  void Stop() {
    neighbour_.reset();
    gpu_.reset();
  }
  ServerProcess& server() { return gpu_->server(); }

  // Runs the kernel in a separate process, as another user if this process may switch.
  Told RunInAProcess(const HostileKernel& hostile) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    ipc::UniqueFd from(ends[0]), to(ends[1]);
    const auto body = [&] {
      const Client client = Connect(server(), "hostile", SchedulingClass::kLow);
      const HostileOutcome outcome = RunHostile(client, hostile, neighbour_->target());
      const Status harmless = RunHarmless(client);
      std::ostringstream said;
      said << ::getpid() << ' ' << static_cast<int>(outcome.status.code()) << ' '
           << outcome.found_others << ' ' << static_cast<int>(harmless.code()) << ' '
           << outcome.status.message();
      const std::string text = said.str();
      return ::write(to.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0
                                                                                              : 1;
    };
    EXPECT_EQ(::geteuid() == 0 ? AsNobody(body) : InAProcess(body), 0);
    to.Reset();
    std::string text(std::size_t{1} << 16, '\0');
    const ssize_t got = ::read(from.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    Told told;
    int code = -1;
    std::istringstream words(text);
    words >> told.pid >> code >> told.outcome.found_others >> told.harmless_code;
    EXPECT_TRUE(words) << "it said: " << text;
    std::string message;
    std::getline(words >> std::ws, message, '\0');
    told.outcome.status = Status(static_cast<StatusCode>(code), message);
    return told;
  }

  // Expects that the worker has ended with the kernel, and that the neighbour's error and the log
  // name the culprit.
  void ExpectCulpritNamedToAll(pid_t pid) {
    const std::string who = " 'hostile' pid " + std::to_string(pid) + " stream";
    const Status lost = RunHarmless(neighbour_->client());
    EXPECT_EQ(lost.code(), StatusCode::kDeviceLost) << lost.ToString();
    EXPECT_THAT(std::string(lost.message()),
                AllOf(HasSubstr("caused by kernel 'k' [client "), HasSubstr(who)));
    EXPECT_TRUE(Eventually([&] { return LogContains("caused by kernel 'k'", who); }));
  }
  // Expects that only the culprit has been affected.
  void ExpectNobodyHurt(const HostileKernel& hostile, const Told& told) {
    neighbour_->ExpectEveryByteAsItWas();
    EXPECT_EQ(told.harmless_code, static_cast<int>(StatusCode::kOk)) << "its next kernel";
    EXPECT_EQ(server().workers(), workers_);
    const auto end =
        GetParam().place == HostilePlace::kContained ? hostile.contained : hostile.fenced;
    if (end != HostileKernel::End::kIsEnded) return;
    const std::string who = " 'hostile' pid " + std::to_string(told.pid) + " stream";
    EXPECT_TRUE(Eventually([&] {
      return LogContains("kernel 'k' ended by force: it has run ", who);
    })) << "the operator is told who ran longer than its class may";
  }
  // Returns whether one line of the log contains both texts.
  bool LogContains(const std::string& what, const std::string& who) {
    std::istringstream log(server().Log());
    for (std::string line; std::getline(log, line);) {
      const std::size_t at = line.find(what);
      if (at != std::string::npos && line.find(who, at) != std::string::npos) return true;
    }
    return false;
  }

  std::unique_ptr<Neighbour> neighbour_;
  std::vector<pid_t> workers_;

 private:
  std::unique_ptr<GpuServer> gpu_;
};

TEST_P(HostileClient, CannotAccessOtherClientsBytesAndIsNamed) {
  Start();
  for (const HostileKernel& hostile : HostileKernels()) {
    SCOPED_TRACE(hostile.name);
    const Told told = RunInAProcess(hostile);
    EXPECT_EQ(WhyNotItsEnd(hostile, GetParam().place, told.outcome.status), "");
    EXPECT_FALSE(told.outcome.found_others);
    if (told.outcome.status.code() == StatusCode::kDeviceLost) {
      ExpectCulpritNamedToAll(told.pid);
      Stop();
      Start();
    } else {
      ExpectNobodyHurt(hostile, told);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(RunHarmless(neighbour_->client()).ToString(), "Ok");
  EXPECT_THAT(server().Log(), Not(HasSubstr("generation 2")));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileClient,
    ::testing::Values(
        Place{.name = "fence", .place = HostilePlace::kFenced},
        Place{.name = "claim_fence", .place = HostilePlace::kFenced, .has_compiler = true},
        Place{.name = "contain", .place = HostilePlace::kContained},
        Place{.name = "claim_contain", .place = HostilePlace::kContained, .has_compiler = true}),
    [](const auto& any) { return std::string(any.param.name); });

}  // namespace
}  // namespace gpushared::testing
