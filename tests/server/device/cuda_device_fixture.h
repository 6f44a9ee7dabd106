// SPDX-License-Identifier: Apache-2.0
// A CUDA device on the fake driver, for tests of its parts.

#ifndef GPUSHARED_TESTS_SERVER_DEVICE_CUDA_DEVICE_FIXTURE_H_
#define GPUSHARED_TESTS_SERVER_DEVICE_CUDA_DEVICE_FIXTURE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/cuda/cuda_device.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/load_module.h"

namespace gpushared::device::cuda {

inline constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

// store(address, value): stores one word.
inline constexpr std::string_view kStorePtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .b8 table[5000];
.visible .entry store(.param .u64 address, .param .u32 value)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r1, [value];
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry odd(.param .u8 a, .param .u64 b, .param .u16 c)
{
  ret;
}
)";

// A client's space with the module above.
struct Tenant {
  std::unique_ptr<Space> space;
  std::shared_ptr<const device::Module> module;
  std::uint64_t At(std::uint64_t offset) const { return space->base() + offset; }
};

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PrepareEnvironment();
    fake_cuda_reset();
  }
  void TearDown() override {
    device_.reset();
    EXPECT_STREQ(fake_cuda_take_mistakes(), "");
    fake_cuda_reset();
  }

  static void Script(const std::string& statements) {
    const char* const wrong = fake_cuda_script(statements.c_str());
    ASSERT_EQ(wrong, nullptr) << wrong;
  }
  Result<std::unique_ptr<Device>> Create(CudaDeviceOptions options = {}) {
    auto driver = Driver::Load();
    if (!driver.ok()) return driver.status();
    return CreateCudaDevice(*driver, std::move(options), [this] { ++wakes_; });
  }
  void Start(CudaDeviceOptions options = {}) {
    auto device = Create(std::move(options));
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    device_ = *std::move(device);
    std::array<Completion, 1> none;
    ASSERT_EQ(device_->TakeCompletions(none), 0U);
  }
  Device& gpu() { return *device_; }

  static Result<std::shared_ptr<const device::Module>> Load(Space& space, std::string_view text) {
    return testing::LoadModule(space, text);
  }
  Tenant NewTenant(std::uint64_t mapped = 4 * kMebibyte) {
    Tenant tenant;
    auto space = gpu().CreateSpace({.quota_bytes = 512 * kMebibyte});
    if (!space.ok()) {
      ADD_FAILURE() << space.status().ToString();
      return tenant;
    }
    tenant.space = *std::move(space);
    EXPECT_TRUE(tenant.space->Resize(mapped).ok());
    auto module = Load(*tenant.space, kStorePtx);
    if (!module.ok()) {
      ADD_FAILURE() << module.status().ToString();
      return tenant;
    }
    tenant.module = *std::move(module);
    return tenant;
  }

  LaunchWork StoreWork(const Tenant& tenant, std::uint64_t address, StreamKey stream,
                       std::uint8_t priority = 0) {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = tenant.space.get();
    work.stream = stream;
    work.priority = priority;
    work.module = tenant.module.get();
    work.kernel = KernelNamed(*tenant.module, "store");
    std::vector<std::byte>& bytes = parameters_[work.id];
    bytes.resize(12);
    const auto value = static_cast<std::uint32_t>(work.id);
    std::memcpy(bytes.data(), &address, 8);
    std::memcpy(bytes.data() + 8, &value, 4);
    work.parameters = bytes;
    return work;
  }
  WorkId Store(const Tenant& tenant, std::uint64_t address, StreamKey stream,
               std::uint8_t priority = 0) {
    const LaunchWork work = StoreWork(tenant, address, stream, priority);
    gpu().Submit(work);
    return work.id;
  }
  WorkId Copy(const Tenant& tenant, CopyWork::Direction direction, std::span<std::byte> host,
              std::uint64_t offset, std::uint8_t priority = 0) {
    CopyWork work;
    work.id = ++last_id_;
    work.space = tenant.space.get();
    work.stream = 1;
    work.priority = priority;
    work.direction = direction;
    work.host = host.data();
    (direction == CopyWork::Direction::kHostToDevice ? work.destination : work.source) =
        tenant.At(offset);
    work.width_bytes = host.size();
    gpu().Submit(work);
    return work.id;
  }
  static std::uint32_t KernelNamed(const device::Module& module, std::string_view name) {
    const auto kernels = module.kernels();
    for (std::uint32_t i = 0; i < kernels.size(); ++i) {
      if (kernels[i].name == name) return i;
    }
    ADD_FAILURE() << "no kernel " << name;
    return 0;
  }

  void Poll() {
    std::array<Completion, 7> portion;
    for (std::size_t count = portion.size(); count == portion.size();) {
      count = gpu().TakeCompletions(portion);
      for (std::size_t i = 0; i < count; ++i) {
        const WorkId id = portion[i].id;
        order_.push_back(id);
        EXPECT_TRUE(completed_.emplace(id, std::move(portion[i])).second) << "twice: " << id;
      }
    }
  }
  Completion Await(WorkId id) {
    for (;;) {
      Poll();
      if (const auto found = completed_.find(id); found != completed_.end()) return found->second;
      if (!gpu().must_be_polled()) {
        ADD_FAILURE() << "work " << id << " is lost";
        return {};
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  bool IsDone(WorkId id) {
    Poll();
    return completed_.contains(id);
  }

  std::unique_ptr<Device> device_;
  std::map<WorkId, std::vector<std::byte>> parameters_;
  std::map<WorkId, Completion> completed_;
  std::vector<WorkId> order_;
  WorkId last_id_ = 0;
  std::atomic<int> wakes_ = 0;
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_TESTS_SERVER_DEVICE_CUDA_DEVICE_FIXTURE_H_
