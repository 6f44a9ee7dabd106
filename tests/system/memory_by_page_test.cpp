// SPDX-License-Identifier: Apache-2.0
// Clients of a real server that hold more memory than their device has and run with a part of it
// resident.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/raw_client.h"
#include "tests/support/read_file.h"
#include "tests/system/memory_case.h"

namespace gpushared::testing {
namespace {

// A server whose clients may hold three times the device's memory.
class MemoryOfThreeDevices : public MemoryBeyondTheDevice {
 protected:
  // One buffer of this size and a module fill the device.
  static constexpr std::size_t kPart = 58 * kMebi;
  explicit MemoryOfThreeDevices(const std::string& gpu_memory = "", const std::string& more = "")
      : MemoryBeyondTheDevice("448MiB", gpu_memory, "192MiB", more) {}

  struct Worked {
    std::uint64_t swapped_in_bytes = 0;
    std::uint64_t rounds = 0;
  };
  // Works on each part in turn.
  Worked Work(std::vector<std::unique_ptr<Numbers>>& parts, const std::string& name,
              std::size_t rounds, Status (Numbers::*step_of)(std::size_t) = &Numbers::Step) const {
    Worked worked;
    for (std::size_t round = 0; round < rounds; ++round) {
      const std::uint64_t before = Figure(name, "swapped_in_bytes");
      const Status step = (*parts[round % parts.size()].*step_of)(round);
      EXPECT_TRUE(step.ok()) << step.ToString();
      const std::uint64_t moved = Figure(name, "swapped_in_bytes") - before;
      EXPECT_LE(moved, kPart) << "more came in than the launch touches";
      worked.swapped_in_bytes += moved;
      ++worked.rounds;
    }
    return worked;
  }
  static std::vector<std::unique_ptr<Numbers>> Parts(const Client& client) {
    std::vector<std::unique_ptr<Numbers>> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(std::make_unique<Numbers>(client, kPart));
    return parts;
  }
  void RunByThirds();
  void RunGraphsByThirds();
  void RunAGraphThatChanges();
  void RunBesideOneThatIsKilled();
  void RejectAGraphOfTooMuch();
  void LieAboutABuffer(StatusCode comes_of_it);
};

class MemoryOfThreeGpus : public MemoryOfThreeDevices {
 protected:
  // The worker reserves an eighth of the GPU's memory for the driver. This reserve includes the
  // unused ends of pages and the memory mapped in place of swapped-out pages.
  MemoryOfThreeGpus() : MemoryOfThreeDevices("84M", "memory = \"contain\"") {}
};

void MemoryOfThreeDevices::RunByThirds() {
  const Client client = Connect("large");
  auto parts = Parts(client);
  const Worked worked = Work(parts, "large", 9);
  EXPECT_GT(worked.swapped_in_bytes, 4 * kPart) << "nothing was moved";
  EXPECT_GE(Figure("large", "memory_bytes"), 3 * kPart);
  EXPECT_LE(Figure("large", "resident_bytes"), kPart * 3 / 2);
  // The part that the client works on stays resident.
  const std::uint64_t before = Figure("large", "swapped_in_bytes");
  for (std::size_t round = 0; round < 20; ++round) {
    const Status step = parts[0]->Step(round);
    ASSERT_TRUE(step.ok()) << step.ToString();
  }
  EXPECT_LE(Figure("large", "swapped_in_bytes") - before, kPart);
  for (const auto& part : parts) EXPECT_TRUE(part->AreRight());
}

TEST_F(MemoryOfThreeDevices, ClientRunsWithThirdThatItsLaunchTouches) { RunByThirds(); }
TEST_F(MemoryOfThreeGpus, ClientRunsWithThirdThatItsLaunchTouches) { RunByThirds(); }

void MemoryOfThreeDevices::RunGraphsByThirds() {
  const Client client = Connect("large");
  auto parts = Parts(client);
  EXPECT_GT(Work(parts, "large", 6, &Numbers::StepInGraph).swapped_in_bytes, 2 * kPart);
  EXPECT_LE(Figure("large", "resident_bytes"), kPart * 3 / 2);
  for (const auto& part : parts) EXPECT_TRUE(part->AreRight());
}

TEST_F(MemoryOfThreeDevices, GraphRunsWithThirdThatItsNodesTouch) { RunGraphsByThirds(); }
TEST_F(MemoryOfThreeGpus, GraphRunsWithThirdThatItsNodesTouch) { RunGraphsByThirds(); }

void MemoryOfThreeDevices::RunAGraphThatChanges() {
  const Client client = Connect("large");
  auto parts = Parts(client);
  const Stream recorder = client.CreateRecorder().value(), stream = client.default_stream();
  ASSERT_TRUE(parts[0]->Launch(recorder, 0).ok());
  const Graph graph = recorder.MakeGraph().value();
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const Status set = part == 0 ? Status() : parts[part]->SetIn(graph, part);
    ASSERT_TRUE(set.ok()) << set.ToString();
    ASSERT_TRUE(graph.Launch(stream).ok());
    const Status ran = stream.Synchronize();
    EXPECT_TRUE(ran.ok()) << ran.ToString();
  }
  for (const auto& part : parts) EXPECT_TRUE(part->AreRight());
}

TEST_F(MemoryOfThreeDevices, ChangedGraphNeedsItsNewAccessSet) { RunAGraphThatChanges(); }
TEST_F(MemoryOfThreeGpus, ChangedGraphNeedsItsNewAccessSet) { RunAGraphThatChanges(); }

void MemoryOfThreeDevices::RunBesideOneThatIsKilled() {
  const Client client = Connect("large");
  auto parts = Parts(client);
  const std::uint64_t reserved = InStore("reserved_bytes");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ClientOptions options;
    options.socket = server().socket();
    options.name = "doomed";
    options.scheduling_class = SchedulingClass::kLow;
    const Result<Client> doomed = Client::Connect(options);
    if (!doomed.ok()) _exit(1);
    auto own = Parts(*doomed);
    for (std::size_t round = 0;; ++round) (void)own[round % 3]->Step(round);
  }
  EXPECT_TRUE(Eventually([&] { return Figure("doomed", "swapped_in_bytes") > kPart; }));
  Work(parts, "large", 3);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  waitpid(child, nullptr, 0);
  Work(parts, "large", 3);
  EXPECT_TRUE(Eventually([&] { return InStore("reserved_bytes") <= reserved; }));
  for (const auto& part : parts) EXPECT_TRUE(part->AreRight());
}

TEST_F(MemoryOfThreeDevices, KillingOtherClientKeepsResultsCorrect) { RunBesideOneThatIsKilled(); }
TEST_F(MemoryOfThreeGpus, KillingOtherClientKeepsResultsCorrect) { RunBesideOneThatIsKilled(); }

TEST_F(MemoryOfThreeDevices, RejectsLaunchThatTouchesMoreThanDeviceNamingBothSizes) {
  const Client client = Connect("large");
  const Result<DeviceBuffer> buffer = client.AllocateDevice(120 * kMebi);
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  const Result<Stream> stream = client.CreateStream();
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(stream->Fill(buffer->address(), FillElement::U8(1), 120 * kMebi).ok());
  const Status rejected = stream->Synchronize();
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory) << rejected.ToString();
  EXPECT_THAT(rejected.message(),
              ::testing::HasSubstr("fill rejected: it may touch 125829120 bytes"));
  // Work that touches only a part of the memory is allowed.
  const Stream other = client.default_stream();
  ASSERT_TRUE(other.Fill(buffer->address() + 70 * kMebi, FillElement::U8(1), 20 * kMebi).ok());
  EXPECT_TRUE(other.Synchronize().ok());
}

void MemoryOfThreeDevices::RejectAGraphOfTooMuch() {
  const Client client = Connect("large");
  auto parts = Parts(client);
  const Stream recorder = client.CreateRecorder().value();
  for (const auto& part : parts) ASSERT_TRUE(part->LaunchNothing(recorder).ok());
  const Graph graph = recorder.MakeGraph().value();
  const Stream stream = client.CreateStream().value();
  ASSERT_TRUE(graph.Launch(stream).ok());
  const Status rejected = stream.Synchronize();
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory) << rejected.ToString();
  // The sizes are not exact, because buffers begin in the middle of pages.
  EXPECT_THAT(rejected.message(), ::testing::ContainsRegex(
                                      "graph launch rejected: it may touch 18[0-9]{7} bytes of the "
                                      "client's memory, but the device can hold only [0-9]{8} "));
  // The graph's kernels alone are allowed, and so is the same graph with less memory.
  Work(parts, "large", 3);
  EXPECT_GT(Work(parts, "large", 3, &Numbers::StepInGraph).rounds, 0U);
  for (const auto& part : parts) EXPECT_TRUE(part->AreRight());
}

TEST_F(MemoryOfThreeDevices, RejectsGraphThatTouchesMoreThanDeviceNamingBothSizes) {
  RejectAGraphOfTooMuch();
}
TEST_F(MemoryOfThreeGpus, RejectsGraphThatTouchesMoreThanDeviceNamingBothSizes) {
  RejectAGraphOfTooMuch();
}

// The device thread looks up the memory of a graph's nodes whenever buffers change, so it bounds
// the number of lookups; beyond the bound, the graph may touch all of the client's memory.
TEST_F(MemoryOfThreeDevices, GraphOfMoreThan8192LookupsMayTouchEverything) {
  const Client client = Connect("large");
  const Module module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS).value();
  // Allocated first, because otherwise the address of this buffer would also be the end of the
  // large one.
  const DeviceBuffer few = client.AllocateDevice(2 * kMebi).value();
  const Result<DeviceBuffer> large = client.AllocateDevice(100 * kMebi);
  ASSERT_TRUE(large.ok()) << large.status().ToString();
  const Kernel add = module.GetKernel("add").value();
  const auto run = [&](std::size_t nodes) {
    const Stream recorder = client.CreateRecorder().value();
    for (std::size_t node = 0; node < nodes; ++node) {
      const Status recorded = recorder.Launch(add, {.grid = {1, 1, 1}, .block = {32, 1, 1}},
                                              few.address(), few.address(), few.address(), 0);
      if (!recorded.ok()) return recorded;
    }
    const Graph graph = recorder.MakeGraph().value();
    const Stream stream = client.CreateStream().value();
    const Status launched = graph.Launch(stream);
    return launched.ok() ? stream.Synchronize() : launched;
  };
  // One lookup for the kernel, and three for the words through which it accesses memory.
  const Status ran = run(2048);
  EXPECT_TRUE(ran.ok()) << ran.ToString();
  const Status rejected = run(2049);
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory) << rejected.ToString();
  EXPECT_THAT(rejected.message(), ::testing::HasSubstr("graph launch rejected: it may touch"));
}

// The launch may access the memory that its client declared, and never memory that is not resident.
void MemoryOfThreeDevices::LieAboutABuffer(StatusCode comes_of_it) {
  const Client neighbour = Connect("neighbour");
  Numbers numbers(neighbour, 20 * kMebi);
  Result<RawClient> liar = RawClient::Connect(server().socket());
  ASSERT_TRUE(liar.ok());
  ipc::Hello hello;
  hello.name = "liar";
  ASSERT_TRUE(liar->Join(hello).ok());
  const auto module = liar->LoadModule(0, ReadFile(GPUSHARED_SYSTEM_KERNELS));
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  ASSERT_TRUE(liar->Resize(120 * kMebi).ok());
  const std::uint64_t base = liar->base();
  liar->NameBuffer(base, 2 * kMebi);
  liar->NameBuffer(base + 60 * kMebi, 2 * kMebi);
  const std::uint32_t kernel = KernelNumber(*module, "store_at");
  const auto store_at = [&](std::uint64_t offset) {
    std::vector<std::byte> parameters = ParametersAt(base + 60 * kMebi, 16);
    std::memcpy(parameters.data() + 8, &offset, sizeof offset);
    liar->Launch(0, 0, kernel, {}, parameters);
    EXPECT_TRUE(liar->AwaitFinished(0, liar->published(0), std::chrono::seconds(20)));
    return liar->Ask<ipc::ErrorText>(ipc::DescribeError{.stream = 0});
  };
  EXPECT_EQ(store_at(2 * kMebi - 4)->status.code(), StatusCode::kOk);
  // Stores beyond the end of the declared buffer.
  const auto error = store_at(2 * kMebi);
  ASSERT_TRUE(error.ok()) << error.status().ToString();
  EXPECT_EQ(error->status.code(), comes_of_it) << error->status.ToString();
  EXPECT_TRUE(numbers.Step(0).ok());
  EXPECT_TRUE(numbers.AreRight());
}

TEST_F(MemoryOfThreeDevices, FalseBufferSizeFailsOnlyItsClient) {
  LieAboutABuffer(StatusCode::kKernelFault);
}
// A GPU does not report the access, because other memory of the same client is mapped in place of
// swapped-out pages.
TEST_F(MemoryOfThreeGpus, FalseBufferSizeAffectsNoOtherClient) { LieAboutABuffer(StatusCode::kOk); }

}  // namespace
}  // namespace gpushared::testing
