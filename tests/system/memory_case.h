// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SYSTEM_MEMORY_CASE_H_
#define GPUSHARED_TESTS_SYSTEM_MEMORY_CASE_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {

inline constexpr std::size_t kMebi = std::size_t{1} << 20;
// A server whose clients have by default a guarantee of a fifth of the device, and a limit of three
// fifths.
class MemoryBeyondTheDevice : public ::testing::Test {
 protected:
  // `gpu_memory`: memory of the modelled GPU; empty for the cpu device. `more`: an additional line
  // of the access rule. `options`: additional options of the server.
  explicit MemoryBeyondTheDevice(const std::string& overcommit = "256MiB",
                                 const std::string& gpu_memory = "",
                                 const std::string& limit = "60%", const std::string& more = "",
                                 const std::string& guarantee = "20%",
                                 const std::vector<std::string>& options = {}) {
    std::ofstream(file_) << "[[access]]\n"
                            "everyone = true\n"
                            "highest_class = \"high\"\n"
                            "max_weight = 1000\n"
                            "client_memory = \""
                         << guarantee
                         << "\"\n"
                            "memory_limit = \""
                         << limit << "\"\n"
                         << more << "\n";
    std::vector<std::string> arguments = {"--config", file_,      "--overcommit",
                                          overcommit, "--policy", "priority"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    if (!gpu_memory.empty()) {
      gpu_.emplace(GpuServerOptions{.statements = "memory " + gpu_memory + "; costs on",
                                    .arguments = arguments});
    } else {
      arguments.insert(arguments.end(), {"--memory", "64MiB"});
      cpu_.emplace(arguments);
    }
  }

  Client Connect(const std::string& name,
                 SchedulingClass scheduling_class = SchedulingClass::kLow) {
    ClientOptions options;
    options.socket = server().socket();
    options.name = name;
    options.scheduling_class = scheduling_class;
    Result<Client> client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return *std::move(client);
  }
  nlohmann::json Row(const std::string& name) const {
    const auto report = nlohmann::json::parse(server().Ctl({"ps", "--json"}).output);
    for (const auto& row : report["clients"]) {
      if (row["name"] == name) return row;
    }
    return nlohmann::json::object();
  }
  std::uint64_t Figure(const std::string& name, const char* figure) const {
    const auto row = Row(name);
    return row.contains(figure) ? row[figure].get<std::uint64_t>() : 0;
  }
  std::uint64_t InStore(const char* figure) const {
    const auto report = nlohmann::json::parse(server().Ctl({"status", "--json"}).output);
    return report["devices"][0]["overcommit"][figure].get<std::uint64_t>();
  }
  const std::string& directory() const { return directory_.path(); }
  ServerProcess& server() { return gpu_ ? gpu_->server() : *cpu_; }
  const ServerProcess& server() const { return gpu_ ? gpu_->server() : *cpu_; }

  const ScratchDirectory directory_;
  const std::string file_ = directory_ / "server.toml";
  std::optional<ServerProcess> cpu_;
  mutable std::optional<GpuServer> gpu_;
};

// A client's buffer of numbers on the device, and their expected values.
class Numbers {
 public:
  Numbers(const Client& client, std::size_t bytes) : client_(client), expected_(bytes / 4) {
    const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    step_.emplace(*module->GetKernel("step"));
    Result<DeviceBuffer> buffer = client.AllocateDevice(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    buffer_.emplace(*std::move(buffer));
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      expected_[i] = static_cast<std::uint32_t>(i * 2654435761u);
    }
    EXPECT_TRUE(Copy(/*to_device=*/true).ok());
  }

  // Runs one kernel on a part of the numbers, a different part in each round.
  Status Step(std::size_t round) {
    const Stream stream = client_.default_stream();
    const Status launched = Launch(stream, round);
    return launched.ok() ? stream.Synchronize() : launched;
  }
  // Runs the kernels of this round and the next one in a graph.
  Status StepInGraph(std::size_t round) {
    const Stream recorder = client_.CreateRecorder().value();
    for (const std::size_t each : {round, round + 1}) {
      if (Status recorded = Launch(recorder, each); !recorded.ok()) return recorded;
    }
    const Graph graph = recorder.MakeGraph().value();
    const Stream stream = client_.default_stream();
    const Status launched = graph.Launch(stream);
    return launched.ok() ? stream.Synchronize() : launched;
  }
  // Replaces the graph's first node by this round's kernel.
  Status SetIn(const Graph& graph, std::size_t round) {
    const DeviceAddress at = Change(round);
    return graph.SetLaunch(0, *step_, kShape, at, static_cast<int>(kCount));
  }
  // Submits the round's kernel to a stream, which may be recording a graph.
  Status Launch(const Stream& stream, std::size_t round) {
    const DeviceAddress at = Change(round);
    return stream.Launch(*step_, kShape, at, static_cast<int>(kCount));
  }
  // Launches a kernel that may access all numbers and changes none.
  Status LaunchNothing(const Stream& stream) const {
    return stream.Launch(*step_, {.grid = {1, 1, 1}, .block = {32, 1, 1}}, buffer_->address(), 0);
  }
  bool AreRight() {
    const std::vector<std::uint32_t> expected = expected_;
    const Status copied = Copy(/*to_device=*/false);
    EXPECT_TRUE(copied.ok()) << copied.ToString();
    return copied.ok() && std::exchange(expected_, expected) == expected;
  }

 private:
  static constexpr std::size_t kCount = 4096;
  static constexpr LaunchShape kShape{.grid = {kCount / 256, 1, 1}, .block = {256, 1, 1}};

  // Applies the effect of the round's kernel to the expected values; returns the address.
  DeviceAddress Change(std::size_t round) {
    const std::size_t first = round * 37 * kCount % (expected_.size() - kCount);
    for (std::size_t i = first; i < first + kCount; ++i) expected_[i] = expected_[i] * 3 + 1;
    return buffer_->address() + first * 4;
  }
  Status Copy(bool to_device) {
    const Stream stream = client_.default_stream();
    const std::size_t bytes = expected_.size() * 4;
    const Status copied = to_device
                              ? stream.CopyToDevice(buffer_->address(), expected_.data(), bytes)
                              : stream.CopyToHost(expected_.data(), buffer_->address(), bytes);
    return copied.ok() ? stream.Synchronize() : copied;
  }

  const Client& client_;
  std::vector<std::uint32_t> expected_;
  std::optional<Kernel> step_;
  std::optional<DeviceBuffer> buffer_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SYSTEM_MEMORY_CASE_H_
