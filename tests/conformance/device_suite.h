// SPDX-License-Identifier: Apache-2.0
// Rules for all devices, regardless of their implementation. A new device is one line in
// device_conformance_test.cpp; real GPUs are in cuda_conformance_test.cpp.

#ifndef GPUSHARED_TESTS_CONFORMANCE_DEVICE_SUITE_H_
#define GPUSHARED_TESTS_CONFORMANCE_DEVICE_SUITE_H_

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/result.h"

#include "server/device/device.h"
#include "server/device/device_catalog.h"

namespace gpushared::testing {

inline constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
// Size with which every device of the suite is created.
inline constexpr std::uint64_t kDeviceBytes = 64 * kMebibyte;

struct ConformanceDevice {
  std::string name;
  std::uint32_t multiprocessors = 1;
  // It interprets PTX itself, so it knows which instructions it lacks, and has access to printed
  // text.
  bool interprets_ptx = true;
  bool is_polled = false;                                 // must_be_polled() while it has work.
  device::Isolation isolation = device::Isolation::kOff;  // For every space.
  // Kernels run in their preemptible form, so a fault does not name the kernel's own block.
  bool claims = false;
  std::function<Result<std::unique_ptr<device::Device>>(const device::DeviceOptions&,
                                                        device::WakeFunction)>
      create;
  // Returns why this machine lacks the device. No function, or an empty text: it has the device.
  std::function<std::string()> why_skipped = {};
};

std::ostream& operator<<(std::ostream& out, const ConformanceDevice& device);

// Arguments of a kernel, each at the next offset that its type allows.
class Arguments {
 public:
  template <typename... Values>
  static std::vector<std::byte> Pack(const Values&... values) {
    std::vector<std::byte> bytes;
    (Append(bytes, values), ...);
    return bytes;
  }

 private:
  template <typename Value>
  static void Append(std::vector<std::byte>& bytes, const Value& value) {
    const std::size_t offset =
        (bytes.size() + alignof(Value) - 1) / alignof(Value) * alignof(Value);
    bytes.resize(offset + sizeof(Value));
    std::memcpy(bytes.data() + offset, &value, sizeof(Value));
  }
};

// A space with some memory, and the suite's kernels if they were requested.
struct TestClient {
  std::unique_ptr<device::Space> space;
  // Declared after the space, and so destroyed before it.
  std::shared_ptr<const device::Module> module;
  std::uint64_t At(std::uint64_t offset) const { return space->base() + offset; }
};

struct LaunchSpec {
  device::Dim3 grid{1, 1, 1};
  device::Dim3 block{64, 1, 1};
  std::uint32_t dynamic_shared_bytes = 0;
  device::StreamKey stream = 1;
  std::uint8_t priority = 0;
  std::uint64_t first_unit = 0;
  std::uint64_t graph_version = 0;  // Version of a whole graph: see device::GraphWork.
  const device::Reach* reach = nullptr;
};

class DeviceConformance : public ::testing::TestWithParam<ConformanceDevice> {
 protected:
  void SetUp() override;
  void TearDown() override;

  void Start(std::uint64_t memory_bytes);
  device::Device& gpu() { return *device_; }

  // Creates a client. Fails the test, and returns an empty client, if the device rejects the
  // request.
  TestClient NewClient(std::uint64_t quota_bytes = 16 * kMebibyte,
                       std::uint64_t mapped_bytes = 8 * kMebibyte);
  // Like NewClient, with the module of kernels/rules.cu.
  TestClient NewClientWithKernels();
  static Result<std::shared_ptr<const device::Module>> Load(device::Space& space,
                                                            std::string_view text);
  static std::uint32_t KernelNamed(const device::Module& module, std::string_view name);

  // Each submits work and returns its id. Arguments live until TearDown.
  device::WorkId Launch(const TestClient& client, std::string_view kernel, const LaunchSpec& spec,
                        std::vector<std::byte> arguments);
  device::WorkId Submit(device::CopyWork work);
  device::WorkId Submit(device::FillWork work);
  // Submits a graph of these nodes, which must outlive it.
  device::WorkId SubmitGraph(const TestClient& client,
                             std::span<const device::GraphNode* const> nodes,
                             const LaunchSpec& spec);
  // A launch as a node of a graph. Arguments live until TearDown.
  device::GraphNode GetNode(const TestClient& client, std::string_view kernel,
                            const LaunchSpec& spec, std::vector<std::byte> arguments);
  bool SkipsUnlessItTakes(std::span<const device::GraphNode* const> nodes) {
    const auto is_taken = [&](const device::GraphNode* node) { return gpu().TakesNode(*node); };
    return Skips(std::all_of(nodes.begin(), nodes.end(), is_taken), "take these nodes in a graph");
  }
  // Skips the test if the device reports that it cannot do what the rule needs.
  bool Skips(bool can, const char* what);
  bool SkipsUnlessLaunchesStop() {
    return Skips(gpu().info().preemption == device::Preemption::kWithinCommand, "stop launches");
  }
  bool SkipsUnlessItKills() { return Skips(gpu().info().can_kill, "end running kernels"); }
  // Contained kernels end without a kill.
  bool SkipsUnlessItEndsKernels() {
    return Skips(gpu().info().can_kill || GetParam().isolation == device::Isolation::kContain,
                 "end running kernels");
  }
  bool SkipsUnlessItIsolates() {
    return Skips(gpu().info().isolates_clients, "isolate its clients");
  }
  // Contained kernels access harmless memory instead.
  bool SkipsWhereNoAddressFaults() {
    return Skips(GetParam().isolation != device::Isolation::kContain, "fault at an address");
  }
  bool SkipsUnlessItInterprets() { return Skips(GetParam().interprets_ptx, "interpret PTX"); }

  // Submits a launch that occupies every multiprocessor until it is killed, so that no work
  // submitted later runs before. Uses the word at `offset`, which must remain zero.
  device::WorkId Plug(const TestClient& client, std::uint64_t offset);

  // Waits for the work, and stores other completions that arrive meanwhile.
  device::Completion Await(device::WorkId id);
  // Like Await, and fails the test unless the status is ok and nothing was stopped.
  void AwaitOk(device::WorkId id);
  // Returns whether the device served `first` before `second`; both must succeed. Start time or
  // order of completion suffices, because a thread of the device may be descheduled between serving
  // a work item and recording its time.
  bool IsServedFirst(device::WorkId first, device::WorkId second);
  // Returns the ids of the completed work in order of completion.
  const std::vector<device::WorkId>& order() const { return order_; }
  std::uint64_t wakes();
  void WaitForWake(std::uint64_t more_than);

  void Write(const TestClient& client, std::uint64_t offset, std::span<const std::byte> bytes);
  std::vector<std::byte> Read(const TestClient& client, std::uint64_t offset, std::uint64_t bytes);
  void WriteWords(const TestClient& client, std::uint64_t offset,
                  std::span<const std::uint32_t> words);
  std::vector<std::uint32_t> ReadWords(const TestClient& client, std::uint64_t offset,
                                       std::size_t count);
  // Returns all text printed by the work.
  std::string Printed(device::WorkId id);

  device::WorkId next_id() { return ++last_id_; }

 private:
  void Collect();
  device::LaunchWork GetWork(const TestClient& client, std::string_view kernel,
                             const LaunchSpec& spec, std::vector<std::byte> arguments);

  std::mutex mutex_;
  std::condition_variable woken_;
  std::uint64_t wakes_ = 0;                        // Protected by mutex_.
  std::map<device::WorkId, std::string> printed_;  // Protected by mutex_.

  device::WorkId last_id_ = 0;
  std::map<device::WorkId, std::vector<std::byte>> arguments_;
  std::deque<std::vector<std::uint64_t>> node_versions_;
  std::map<device::WorkId, device::Completion> completed_;
  std::vector<device::WorkId> order_;
  std::unique_ptr<device::Device> device_;
};

// Returns the result of kernel `mix` for the thread whose initial value is `value`.
std::uint32_t Mixed(std::uint32_t value, std::uint32_t rounds);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CONFORMANCE_DEVICE_SUITE_H_
