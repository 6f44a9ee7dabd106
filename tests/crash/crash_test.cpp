// SPDX-License-Identifier: Apache-2.0
// Clients are killed at every step of the protocol, a thousand in total, while a neighbour keeps
// working. Afterwards the server must be in its initial state.

#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/crash/dying_client.h"
#include "tests/support/raw_client.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

// Sanitizers make processes slow to start, so the sweep has fewer rounds but still covers every
// step.
std::size_t Kills() {
  const char* wanted = std::getenv("GPUSHARED_CRASH_KILLS");
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : GPUSHARED_CRASH_KILLS;
}

// Works in a separate session until told to stop, checking every result.
class Neighbour {
 public:
  explicit Neighbour(const std::string& socket)
      : thread_([this, socket](const std::stop_token& stop) { Work(socket, stop); }) {}

  std::size_t rounds() const { return rounds_; }
  std::size_t wrong() const { return wrong_; }
  bool ready() const { return rounds_ > 0; }

 private:
  void Work(const std::string& socket, const std::stop_token& stop) {
    Result<Client> client = Client::Connect({.name = "neighbour", .socket = socket});
    if (!client) return;
    const Result<Module> module = client->LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    if (!module) return;
    const Result<Kernel> step = module->GetKernel("step");
    const Result<DeviceBuffer> out = client->AllocateDevice(256 * 4);
    if (!step || !out) return;
    const Stream stream = client->default_stream();
    while (!stop.stop_requested()) {
      unsigned result = 0, expected = 7;
      bool ok = stream.Fill(*out, FillElement::U32(7), 256).ok();
      for (int i = 0; i < 5; ++i, expected = expected * 3 + 1) {
        ok = ok && stream.Launch(*step, {.grid = {2, 1, 1}, .block = {128, 1, 1}}, *out, 256).ok();
      }
      ok = ok && stream.CopyToHost(&result, out->address() + 255 * 4, 4).ok();
      if (!ok || result != expected) ++wrong_;
      ++rounds_;
    }
  }

  std::atomic<std::size_t> rounds_ = 0, wrong_ = 0;
  std::jthread thread_;
};

// glibc gives each thread that allocates concurrently an arena of two mappings, up to eight arenas
// per core, and keeps them. Threads for closes and loads may first run concurrently in a later
// round. 200 leaks would exceed this.
constexpr std::size_t kMappingsOfLaterThreads = 16;

struct Footprint {
  std::size_t worker_fds = 0, worker_mappings = 0, broker_fds = 0;
  std::size_t sessions = 0;
};

Footprint Measure(const ServerProcess& server) {
  const pid_t worker = server.workers().at(0);
  Footprint footprint{OpenFileDescriptors(worker), MemoryMappings(worker),
                      OpenFileDescriptors(server.pid()), 0};
  const ProgramOutcome ps = server.Ctl({"ps", "--json"});
  const auto json = nlohmann::json::parse(ps.output, nullptr, false);
  if (!json.is_discarded() && json.contains("clients")) footprint.sessions = json["clients"].size();
  return footprint;
}

// Returns the device memory that one more client can have, in MiB, which is less than before if the
// budget has leaked memory.
std::size_t FreeDeviceMiB(const ServerProcess& server) {
  Result<RawClient> client = RawClient::Connect(server.socket());
  if (!client || !client->Join(ipc::Hello{.name = "probe", .device = {}}).ok()) return 0;
  std::size_t mib = 0;
  while (client->Resize((mib + 1) << 20).ok()) ++mib;
  return mib;
}

TEST(Crash, KilledClientsLeakNothingAndDisturbNoNeighbour) {
  // So little device and staging memory that either is exhausted after a few leaks.
  ServerProcess server({"--policy", "priority", "--log-level", "warn", "--memory", "64MiB",
                        "--staging-memory", "128MiB"});
  Neighbour neighbour(server.socket());
  ASSERT_TRUE(Eventually([&] { return neighbour.ready(); })) << server.Log();
  const pid_t worker = server.workers().at(0);
  const std::size_t free_before = FreeDeviceMiB(server);
  ASSERT_GE(free_before, 32u) << "at most a few MiB belong to the neighbour";

  std::vector<std::size_t> kills(kDeathSteps.size());
  std::size_t with_kernels = 0, not_killed = 0, total = 0;
  Footprint before;
  const std::size_t wanted = Kills();
  for (std::size_t round = 0; total < wanted; ++round) {
    for (std::size_t step = 0; step < kDeathSteps.size() && total < wanted; ++step) {
      // From the first step that can have kernels on, the client always launches kernels, so that
      // they run during more than half of all kills.
      const bool kernels = step >= kFirstStepWithKernels;
      const pid_t pid =
          StartProgram({GPUSHARED_DYING_CLIENT, server.socket(), GPUSHARED_SYSTEM_KERNELS,
                        std::to_string(step), kernels ? "1" : "0"},
                       "");
      int status = 0;
      ::waitpid(pid, &status, 0);
      if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        ++not_killed;
        ADD_FAILURE() << "the client did not reach '" << kDeathSteps[step] << "', exit " << status;
      }
      ++kills[step];
      ++total;
      with_kernels += kernels;
      ASSERT_EQ(server.workers(), std::vector<pid_t>{worker})
          << "after '" << kDeathSteps[step] << "'";
    }
    if (round == 0) {
      // Caches are warm and lazily created objects exist: later rounds must match this state.
      ASSERT_TRUE(Eventually([&] { return Measure(server).sessions == 1; }))
          << server.Ctl({"ps"}).output;
      before = Measure(server);
    }
  }

  ASSERT_TRUE(Eventually([&] { return Measure(server).sessions == 1; }))
      << server.Ctl({"ps"}).output;
  Footprint after;
  EXPECT_TRUE(Eventually([&] {
    after = Measure(server);
    return after.worker_fds <= before.worker_fds && after.broker_fds <= before.broker_fds &&
           after.worker_mappings <= before.worker_mappings + kMappingsOfLaterThreads;
  }));
  std::size_t free_after = 0;
  EXPECT_TRUE(Eventually([&] {
    free_after = FreeDeviceMiB(server);
    return free_after == free_before;
  })) << free_after
      << " MiB of device memory are free, before the kills " << free_before;
  const std::size_t rounds = neighbour.rounds();
  EXPECT_TRUE(Eventually([&] { return neighbour.rounds() > rounds; }))
      << "the neighbour makes no progress";
  EXPECT_EQ(neighbour.wrong(), 0u) << "of " << neighbour.rounds() << " results of the neighbour";
  EXPECT_EQ(not_killed, 0u);
  EXPECT_GE(with_kernels * 2, total) << "at least half of the kills happen with kernels running";

  std::printf(
      "%zu clients killed, %zu with kernels on the device; the neighbour checked %zu results "
      "meanwhile\n",
      total, with_kernels, neighbour.rounds());
  for (std::size_t step = 0; step < kDeathSteps.size(); ++step) {
    std::printf("  %4zu at '%.*s'\n", kills[step], static_cast<int>(kDeathSteps[step].size()),
                kDeathSteps[step].data());
  }
  std::printf(
      "worker: %zu fds before, %zu after; %zu mappings before, %zu after; broker: %zu fds before, "
      "%zu after; device memory free: %zu MiB before, %zu after\n",
      before.worker_fds, after.worker_fds, before.worker_mappings, after.worker_mappings,
      before.broker_fds, after.broker_fds, free_before, free_after);
}

}  // namespace
}  // namespace gpushared::testing
