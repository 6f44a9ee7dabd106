// SPDX-License-Identifier: Apache-2.0
// Kernels that mean harm, on real servers: a neighbour's memory keeps every byte, the worker goes
// on, and who did it is told. The cpu device runs them as the passes make them for a GPU; a GPU of
// the fake driver runs those of contained clients.

#include "tests/support/hostile_kernels.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

constexpr std::size_t kNeighbourBytes = std::size_t{1} << 20;
constexpr const char* kLimit = "low=200ms";

struct Place {
  const char* name;
  const char* passes = nullptr;  // Of the cpu device; null: a GPU.
  bool is_contained = false;
  bool has_compiler = false;
};

std::ostream& operator<<(std::ostream& out, const Place& place) { return out << place.name; }

Client Connect(const ServerProcess& server, const char* name, SchedulingClass its_class) {
  Result<Client> client =
      Client::Connect({.name = name, .scheduling_class = its_class, .socket = server.socket()});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? *std::move(client) : Client();
}

class HostileClient : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (GetParam().passes != nullptr) {
      cpu_ = std::make_unique<ServerProcess>(std::vector<std::string>{
          "--device", "cpu:0", "--cpu-run-passes", GetParam().passes, "--kernel-limit", kLimit});
    } else {
      gpu_ = std::make_unique<GpuServer>(
          GpuServerOptions{.statements = "",
                           .arguments = {"--memory", "contain", "--kernel-limit", kLimit},
                           .has_compiler = GetParam().has_compiler});
    }
  }
  ServerProcess& server() { return gpu_ != nullptr ? gpu_->server() : *cpu_; }

 private:
  std::unique_ptr<ServerProcess> cpu_;
  std::unique_ptr<GpuServer> gpu_;
};

TEST_P(HostileClient, ChangesNoByteOfANeighboursAndEndsNobody) {
  const Client neighbour = Connect(server(), "neighbour", SchedulingClass::kNormal);
  const std::vector<pid_t> workers = server().workers();
  std::vector<std::uint8_t> bytes(kNeighbourBytes), now(kNeighbourBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(0x5e ^ i * 2654435761U >> 13);
  }
  const DeviceBuffer memory = *neighbour.AllocateDevice(bytes.size());
  const Stream& stream = neighbour.default_stream();
  ASSERT_TRUE(stream.CopyToDevice(memory.address(), bytes.data(), bytes.size()).ok());
  const Client client = Connect(server(), "hostile", SchedulingClass::kLow);
  for (const HostileKernel& hostile : HostileKernels()) {
    SCOPED_TRACE(hostile.name);
    const Status status = RunHostile(client, hostile, memory.address() + kNeighbourBytes / 2);
    EXPECT_EQ(WhyNotItsEnd(hostile, GetParam().is_contained, status), "");
    ASSERT_TRUE(stream.CopyToHost(now.data(), memory.address(), now.size()).ok());
    EXPECT_EQ(bytes, now);
  }
  // The neighbour's own kernels still run, and so do those of the client.
  const HostileKernel harmless = {.name = "", .body = "st.global.u32 [%rd1], 1;"};
  EXPECT_TRUE(RunHostile(neighbour, harmless, 0).ok());
  EXPECT_TRUE(RunHostile(client, harmless, 0).ok());
  EXPECT_EQ(server().workers(), workers);
  EXPECT_THAT(server().Log(), ::testing::Not(::testing::HasSubstr("generation 2")));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostileClient,
    ::testing::Values(
        Place{.name = "fence", .passes = "fence"},
        Place{.name = "contain", .passes = "contain", .is_contained = true},
        Place{.name = "claim_fence", .passes = "claim,fence"},
        Place{.name = "claim_contain", .passes = "claim,contain", .is_contained = true},
        Place{.name = "gpu_contain", .is_contained = true},
        Place{.name = "gpu_claim_contain", .is_contained = true, .has_compiler = true}),
    [](const auto& any) { return std::string(any.param.name); });

}  // namespace
}  // namespace gpushared::testing
