// SPDX-License-Identifier: Apache-2.0
// A device that has done everything the moment it is asked: what remains is ours.

#ifndef GPUSHARED_TESTS_SUPPORT_NULL_DEVICE_H_
#define GPUSHARED_TESTS_SUPPORT_NULL_DEVICE_H_

#include <array>
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
  Result<std::shared_ptr<const device::Module>> LoadModule(std::span<const std::byte>) override {
    return Status(StatusCode::kUnsupported, "a null device loads nothing");
  }

  static constexpr std::uint64_t kRangeBytes = std::uint64_t{4} << 30;

 private:
  const std::uint64_t base_;
};

// One kernel, with a number of parameter bytes.
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

// Allocates nothing per command. Confined to the device thread, like any device.
class NullDevice : public device::Device {
 public:
  explicit NullDevice(device::WakeFunction wake) : wake_(std::move(wake)) {
    info_.name = "null device";
    info_.id = "null:0";
    info_.kind = "null";
    info_.memory_bytes = NullSpace::kRangeBytes;
    info_.multiprocessors = 1;
    info_.runs_graphs = true;
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
    while (count < out.size() && taken_ != done_) {
      const Done& done = ring_[taken_++ % ring_.size()];
      out[count].id = done.id;
      out[count].status = Status();
      out[count].units_done = done.units;
      out[count].stopped = false;
      out[count].started = out[count].ended = {};
      ++count;
    }
    if (count < out.size()) is_armed_ = true;
    return count;
  }

 private:
  struct Done {
    device::WorkId id = 0;
    std::uint64_t units = 0;
  };

  void Complete(device::WorkId id, std::uint64_t units) {
    ring_[done_++ % ring_.size()] = {id, units};
    if (std::exchange(is_armed_, false)) wake_();
  }

  const device::WakeFunction wake_;
  device::DeviceInfo info_;
  std::array<Done, 1024> ring_;  // More than a lane lets onto a device.
  std::uint64_t done_ = 0, taken_ = 0;
  std::uint64_t spaces_ = 0;
  bool is_armed_ = true;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_NULL_DEVICE_H_
