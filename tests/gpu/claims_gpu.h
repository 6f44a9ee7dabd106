// SPDX-License-Identifier: Apache-2.0
// The server's CUDA device, used directly by gpu_claims.

#ifndef GPUSHARED_TESTS_GPU_CLAIMS_GPU_H_
#define GPUSHARED_TESTS_GPU_CLAIMS_GPU_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/device/cuda/cuda_device.h"
#include "tests/support/load_module.h"
#include "tests/support/plain_compiler.h"

namespace gpushared::testing {

// Returns the value. Throws std::runtime_error if the result is an error.
template <typename T>
T Need(Result<T> result, const std::string& what) {
  if (!result.ok()) throw std::runtime_error(what + ": " + result.status().message());
  return *std::move(result);
}

// The server's CUDA device in this process, with one client's memory. All functions except Submit
// and AwaitAny throw std::runtime_error if they fail.
//
// Thread-compatible.
class Gpu {
 public:
  using Clock = std::chrono::steady_clock;
  using Completion = device::Completion;
  using LaunchWork = device::LaunchWork;
  static constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;
  // Longer than any launch takes on any GPU.
  static constexpr std::chrono::seconds kLaunchMax{10};

  Gpu(std::uint64_t group_blocks, device::Isolation isolation) {
    device::cuda::CudaDeviceOptions options;
    options.memory_bytes = 2 * kBytes;
    if (group_blocks > 0) {
      options.limits.claim_group_blocks = group_blocks;
      // A limit so large that the size of a wave does not matter.
      options.limits.claim_group_waves = group_blocks;
    }
    options.make_compiler = [] { return std::make_unique<PlainCompiler>(); };
    options.warn = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
    device_ = Need(device::cuda::CreateCudaDevice(Need(device::cuda::Driver::Load(), "driver"),
                                                  std::move(options), {}),
                   "device");
    space_ =
        Need(device_->CreateSpace({.quota_bytes = 2 * kBytes, .isolation = isolation}), "space");
    (void)Need(space_->Resize(kBytes), "memory");
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    modules_.clear();
    space_.reset();
  }

  device::Device& device() { return *device_; }
  device::Space& space() { return *space_; }
  const device::Module& Load(std::string_view text) {
    modules_.push_back(Need(LoadModule(*space_, text), "module"));
    return *modules_.back();
  }

  LaunchWork Work(const device::Module& module, std::string_view kernel, device::Dim3 grid,
                  device::Dim3 block, std::span<const std::byte> parameters) {
    LaunchWork work;
    work.space = space_.get();
    work.stream = 1;
    work.module = &module;
    const auto kernels = module.kernels();
    const auto found = std::ranges::find(kernels, kernel, &device::KernelInfo::name);
    if (found == kernels.end()) throw std::runtime_error("no kernel " + std::string(kernel));
    work.kernel = static_cast<std::uint32_t>(found - kernels.begin());
    work.grid = grid;
    work.block = block;
    work.parameters = parameters;
    return work;
  }

  void Submit(LaunchWork& work) {
    work.id = ++last_id_;
    device_->Submit(work);
  }
  // Returns the next completion, whether or not the work succeeded. Ends the process if none
  // arrives within kLaunchMax; `of` names the work for the message.
  Completion AwaitAny(const std::string& of) {
    // Reads the clock only now and then, because a read takes as long as a poll of the device.
    constexpr unsigned kPolls = 4096;
    std::array<Completion, 1> one;
    unsigned looks = 0;
    for (const auto begin = Clock::now(); device_->TakeCompletions(one) == 0;) {
      if (++looks % kPolls != 0 || Clock::now() - begin < kLaunchMax) continue;
      // Exits without destructors, because nothing can be destroyed while the work still runs.
      std::fprintf(stderr, "gpu_claims: %s has not ended within %lld s\n", of.c_str(),
                   static_cast<long long>(kLaunchMax.count()));
      std::_Exit(1);
    }
    return one[0];
  }
  Completion Await(const std::string& of = "a launch") {
    Completion completion = AwaitAny(of);
    if (!completion.status.ok()) throw std::runtime_error(completion.status.message());
    return completion;
  }
  std::chrono::nanoseconds GetTime(LaunchWork& work) {
    Submit(work);
    const Completion completion = Await();
    return completion.ended - completion.started;
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Space> space_;
  std::vector<std::shared_ptr<const device::Module>> modules_;
  device::WorkId last_id_ = 0;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_CLAIMS_GPU_H_
