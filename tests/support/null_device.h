// SPDX-License-Identifier: Apache-2.0
// A device that finishes all work at once, so that only our own overhead remains. Optionally, its
// work takes a given time, one item after the other, without using CPU time.

#ifndef GPUSHARED_TESTS_SUPPORT_NULL_DEVICE_H_
#define GPUSHARED_TESTS_SUPPORT_NULL_DEVICE_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/device/device.h"

namespace gpushared::testing {

class NullSpace : public device::Space {
 public:
  explicit NullSpace(std::uint64_t base) : base_(base) {}
  std::uint64_t base() const override { return base_; }
  std::uint64_t range_bytes() const override { return kRangeBytes; }
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override { return mapped_bytes; }
  const device::ModuleRecipe& recipe() const override { return recipe_; }
  Result<std::shared_ptr<const device::Module>> PlaceModule(
      std::shared_ptr<const device::PreparedModule>) override {
    return Status(StatusCode::kUnsupported, "a null device loads nothing");
  }

  static constexpr std::uint64_t kRangeBytes = std::uint64_t{4} << 30;

 private:
  const std::uint64_t base_;
  const device::ModuleRecipe recipe_;
};

// A module with one kernel, which has a given number of parameter bytes.
class NullModule : public device::Module {
 public:
  explicit NullModule(std::uint32_t parameter_bytes) {
    kernel_[0].name = "null";
    kernel_[0].parameter_bytes = parameter_bytes;
    kernel_[0].threads_per_block_max = 1024;
  }
  std::span<const device::KernelInfo> kernels() const override { return kernel_; }

 private:
  std::array<device::KernelInfo, 1> kernel_;
};

// Allocates no memory per command. Confined to the device thread, like any device.
class NullDevice : public device::Device {
 public:
  // `work_time`: duration of each command; a graph takes it once.
  explicit NullDevice(device::WakeFunction wake, std::chrono::nanoseconds work_time = {})
      : wake_(std::move(wake)), work_time_(work_time) {
    info_.name = "null device";
    info_.id = "null:0";
    info_.kind = "null";
    info_.memory_bytes = NullSpace::kRangeBytes;
    info_.multiprocessors = 1;
    info_.spinning_pays = true;
  }

  const device::DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<device::Space>> CreateSpace(const device::SpaceOptions&) override {
    return std::unique_ptr<device::Space>(
        std::make_unique<NullSpace>(++spaces_ * NullSpace::kRangeBytes));
  }
  void Submit(const device::LaunchWork& work) override { Complete(work.id, work.grid.Count()); }
  void Submit(const device::CopyWork& work) override {
    Complete(work.id, device::CopyUnits(work.width_bytes, work.height));
  }
  void Submit(const device::FillWork& work) override {
    Complete(work.id, device::CopyUnits(work.width_bytes, work.height));
  }
  void SubmitGraph(const device::GraphWork& work) override { Complete(work.id, work.nodes.size()); }
  void RequestStop(device::WorkId) override {}
  void RequestKill(device::WorkId) override {}

  std::size_t TakeCompletions(std::span<device::Completion> out) override {
    std::size_t count = 0;
    const device::DeviceClock::time_point now = must_be_polled() ? Now() : kAtOnce;
    while (count < out.size() && taken_ != done_) {
      const Done& done = ring_[taken_ % ring_.size()];
      if (done.at > now) break;
      ++taken_;
      out[count].id = done.id;
      out[count].status = Status();
      out[count].units_done = done.units;
      out[count].stopped = false;
      out[count].ended = done.at;
      out[count].started = done.at - work_time_;
      ++count;
    }
    if (count < out.size()) is_armed_ = true;
    return count;
  }
  bool must_be_polled() const override { return work_time_.count() > 0 && taken_ != done_; }

 private:
  static constexpr device::DeviceClock::time_point kAtOnce{};
  struct Done {
    device::WorkId id = 0;
    std::uint64_t units = 0;
    device::DeviceClock::time_point at = kAtOnce;
  };

  static device::DeviceClock::time_point Now() {
    return device::DeviceClock::time_point(std::chrono::steady_clock::now().time_since_epoch());
  }
  void Complete(device::WorkId id, std::uint64_t units) {
    if (work_time_.count() > 0) busy_until_ = std::max(busy_until_, Now()) + work_time_;
    ring_[done_++ % ring_.size()] = {id, units, busy_until_};
    if (std::exchange(is_armed_, false)) wake_();
  }

  const device::WakeFunction wake_;
  const std::chrono::nanoseconds work_time_;
  device::DeviceClock::time_point busy_until_ = kAtOnce;
  device::DeviceInfo info_;
  // Larger than the number of commands that a lane has on a device at once.
  std::array<Done, 1024> ring_{};
  std::uint64_t done_ = 0, taken_ = 0;
  std::uint64_t spaces_ = 0;
  bool is_armed_ = true;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_NULL_DEVICE_H_
