// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/device_suite.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "tests/conformance/rule_images.h"
#include "tests/support/load_module.h"

namespace gpushared::testing {
namespace {

// This limit is far beyond any legitimate time. It turns a hang into a failure that names the work.
constexpr std::chrono::minutes kHangs{4};
// Polling interval for devices that must be polled.
constexpr std::chrono::microseconds kPoll{20};

}  // namespace

std::ostream& operator<<(std::ostream& out, const ConformanceDevice& device) {
  return out << device.name;
}

void DeviceConformance::Start(std::uint64_t memory_bytes) {
  device::DeviceOptions options;
  options.executor_threads = GetParam().multiprocessors;
  options.memory_bytes = memory_bytes;
  options.output = [this](const device::KernelOutput& output) {
    const std::lock_guard lock(mutex_);
    printed_[output.work] += output.text;
  };
  auto created = GetParam().create(options, [this] {
    const std::lock_guard lock(mutex_);
    ++wakes_;
    woken_.notify_all();
  });
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  device_ = std::move(*created);
}

void DeviceConformance::SetUp() {
  if (GetParam().why_skipped) {
    const std::string why = GetParam().why_skipped();
    if (!why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
  Start(kDeviceBytes);
}

void DeviceConformance::TearDown() {
  if (device_ == nullptr) return;
  Collect();
  device_.reset();
}

TestClient DeviceConformance::NewClient(std::uint64_t quota_bytes, std::uint64_t mapped_bytes) {
  TestClient client;
  auto space =
      device_->CreateSpace({.quota_bytes = quota_bytes, .isolation = GetParam().isolation});
  if (!space.ok()) {
    ADD_FAILURE() << space.status().ToString();
    return client;
  }
  client.space = std::move(*space);
  const auto mapped = client.space->Resize(mapped_bytes);
  if (!mapped.ok()) ADD_FAILURE() << mapped.status().ToString();
  return client;
}

TestClient DeviceConformance::NewClientWithKernels() {
  TestClient client = NewClient();
  auto module = Load(*client.space, RulesPtx());
  if (!module.ok()) {
    ADD_FAILURE() << module.status().ToString();
    return client;
  }
  client.module = std::move(*module);
  return client;
}

Result<std::shared_ptr<const device::Module>> DeviceConformance::Load(device::Space& space,
                                                                      std::string_view text) {
  return LoadModule(space, text);
}

std::uint32_t DeviceConformance::KernelNamed(const device::Module& module, std::string_view name) {
  const auto kernels = module.kernels();
  for (std::uint32_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].name == name) return i;
  }
  ADD_FAILURE() << "the module has no kernel " << name;
  return 0;
}

device::GraphNode DeviceConformance::GetNode(const TestClient& client, std::string_view kernel,
                                             const LaunchSpec& spec,
                                             std::vector<std::byte> arguments) {
  return GetWork(client, kernel, spec, std::move(arguments));
}

device::WorkId DeviceConformance::SubmitGraph(const TestClient& client,
                                              std::span<const device::GraphNode* const> nodes,
                                              const LaunchSpec& spec) {
  device::GraphWork work;
  work.id = next_id();
  work.space = client.space.get();
  work.stream = spec.stream;
  work.priority = spec.priority;
  work.first_unit = spec.first_unit;
  work.nodes = nodes;
  work.reach = spec.reach;
  work.version = spec.graph_version;
  // All nodes have the version of the graph.
  node_versions_.emplace_back(nodes.size(), spec.graph_version);
  if (spec.graph_version != 0) work.node_versions = node_versions_.back();
  device_->SubmitGraph(work);
  return work.id;
}

device::WorkId DeviceConformance::Launch(const TestClient& client, std::string_view kernel,
                                         const LaunchSpec& spec, std::vector<std::byte> arguments) {
  const device::LaunchWork work = GetWork(client, kernel, spec, std::move(arguments));
  device_->Submit(work);
  return work.id;
}

device::LaunchWork DeviceConformance::GetWork(const TestClient& client, std::string_view kernel,
                                              const LaunchSpec& spec,
                                              std::vector<std::byte> arguments) {
  device::LaunchWork work;
  work.id = next_id();
  work.space = client.space.get();
  work.stream = spec.stream;
  work.priority = spec.priority;
  work.first_unit = spec.first_unit;
  work.module = client.module.get();
  work.kernel = KernelNamed(*client.module, kernel);
  work.grid = spec.grid;
  work.block = spec.block;
  work.dynamic_shared_bytes = spec.dynamic_shared_bytes;
  work.reach = spec.reach;
  work.parameters = arguments_[work.id] = std::move(arguments);
  return work;
}

device::WorkId DeviceConformance::Submit(device::CopyWork work) {
  work.id = next_id();
  device_->Submit(work);
  return work.id;
}

device::WorkId DeviceConformance::Submit(device::FillWork work) {
  work.id = next_id();
  device_->Submit(work);
  return work.id;
}

device::WorkId DeviceConformance::Plug(const TestClient& client, std::uint64_t offset) {
  return Launch(client, "spin_for_ever",
                {.grid = {GetParam().multiprocessors, 1, 1},
                 .block = {1, 1, 1},
                 .stream = 1000000,
                 .priority = 255},
                Arguments::Pack(client.At(offset)));
}

bool DeviceConformance::IsServedFirst(device::WorkId first, device::WorkId second) {
  const device::Completion one = Await(first), other = Await(second);
  EXPECT_TRUE(one.status.ok() && other.status.ok());
  const auto position = [this](device::WorkId id) { return std::ranges::find(order_, id); };
  return one.started <= other.started || position(first) < position(second);
}

// Collects three completions at a time, so that both full and partial answers occur.
void DeviceConformance::Collect() {
  std::array<device::Completion, 3> portion;
  for (std::size_t count = portion.size(); count == portion.size();) {
    count = device_->TakeCompletions(portion);
    for (std::size_t i = 0; i < count; ++i) {
      const device::WorkId id = portion[i].id;
      order_.push_back(id);
      EXPECT_TRUE(completed_.emplace(id, std::move(portion[i])).second)
          << "work " << id << " completed twice";
    }
  }
}

device::Completion DeviceConformance::Await(device::WorkId id) {
  const auto hangs_at = std::chrono::steady_clock::now() + kHangs;
  for (;;) {
    const std::uint64_t seen = wakes();
    Collect();
    if (const auto found = completed_.find(id); found != completed_.end()) return found->second;
    const auto until = device_->must_be_polled()
                           ? std::min(std::chrono::steady_clock::now() + kPoll, hangs_at)
                           : hangs_at;
    std::unique_lock lock(mutex_);
    const bool is_woken = woken_.wait_until(lock, until, [this, seen] { return wakes_ > seen; });
    if (!is_woken && until == hangs_at) {
      ADD_FAILURE() << "work " << id << " neither completed nor woke anyone";
      return {};
    }
  }
}

void DeviceConformance::AwaitOk(device::WorkId id) {
  const device::Completion completion = Await(id);
  EXPECT_TRUE(completion.status.ok()) << completion.status.ToString();
  EXPECT_FALSE(completion.stopped);
}

bool DeviceConformance::Skips(bool can, const char* what) {
  if (can) return false;
  [&] { GTEST_SKIP() << "this device cannot " << what; }();
  return true;
}

std::uint64_t DeviceConformance::wakes() {
  const std::lock_guard lock(mutex_);
  return wakes_;
}

void DeviceConformance::WaitForWake(std::uint64_t more_than) {
  std::unique_lock lock(mutex_);
  if (!woken_.wait_for(lock, kHangs, [this, more_than] { return wakes_ > more_than; })) {
    ADD_FAILURE() << "nobody was woken";
  }
}

void DeviceConformance::Write(const TestClient& client, std::uint64_t offset,
                              std::span<const std::byte> bytes) {
  std::vector<std::byte> staging(bytes.begin(), bytes.end());
  device::CopyWork work;
  work.space = client.space.get();
  work.stream = 2000000;
  work.direction = device::CopyWork::Direction::kHostToDevice;
  work.host = staging.data();
  work.destination = client.At(offset);
  work.width_bytes = bytes.size();
  AwaitOk(Submit(work));
}

std::vector<std::byte> DeviceConformance::Read(const TestClient& client, std::uint64_t offset,
                                               std::uint64_t bytes) {
  std::vector<std::byte> staging(bytes);
  device::CopyWork work;
  work.space = client.space.get();
  work.stream = 2000000;
  work.direction = device::CopyWork::Direction::kDeviceToHost;
  work.host = staging.data();
  work.source = client.At(offset);
  work.width_bytes = bytes;
  AwaitOk(Submit(work));
  return staging;
}

void DeviceConformance::WriteWords(const TestClient& client, std::uint64_t offset,
                                   std::span<const std::uint32_t> words) {
  Write(client, offset, std::as_bytes(words));
}

std::vector<std::uint32_t> DeviceConformance::ReadWords(const TestClient& client,
                                                        std::uint64_t offset, std::size_t count) {
  const std::vector<std::byte> bytes = Read(client, offset, count * 4);
  std::vector<std::uint32_t> words(count);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

std::string DeviceConformance::Printed(device::WorkId id) {
  const std::lock_guard lock(mutex_);
  return printed_[id];
}

std::uint32_t Mixed(std::uint32_t value, std::uint32_t rounds) {
  for (std::uint32_t i = 0; i < rounds; ++i) {
    value ^= value << 13;
    value ^= value >> 17;
    value ^= value << 5;
  }
  return value;
}

}  // namespace gpushared::testing
