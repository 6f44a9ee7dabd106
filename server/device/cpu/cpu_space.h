// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpushared/result.h"

#include "server/device/cpu/address_range.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/program.h"
#include "server/device/device.h"

namespace gpushared::device {

// A loaded module with its own instance of every module variable.
//
// Immutable; thread-safe. Uses the memory of its space, which must outlive it.
class CpuModule : public Module {
 public:
  // Parses, places the variables in `range` and decodes.
  static Result<std::shared_ptr<const Module>> Load(std::span<const std::byte> image,
                                                    AddressRange& range);
  CpuModule(const CpuModule&) = delete;
  CpuModule& operator=(const CpuModule&) = delete;
  ~CpuModule() override;

  std::span<const KernelInfo> kernels() const override { return kernels_; }
  const executor::Program& program(std::uint32_t kernel) const { return image_->program(kernel); }
  // What its kernels may touch: the client's mapped memory and this module's variables.
  executor::MemoryWindow window() const;

 private:
  CpuModule(AddressRange& range, const AddressRange::Block& variables)
      : range_(range), variables_(variables) {}

  AddressRange& range_;
  const AddressRange::Block variables_;
  std::unique_ptr<const executor::ModuleImage> image_;
  std::vector<KernelInfo> kernels_;
};

// Space of the cpu device. Device addresses are addresses of this process.
class CpuSpace : public Space {
 public:
  explicit CpuSpace(std::unique_ptr<AddressRange> range) : range_(std::move(range)) {}
  CpuSpace(const CpuSpace&) = delete;
  CpuSpace& operator=(const CpuSpace&) = delete;
  ~CpuSpace() override = default;

  std::uint64_t base() const override { return range_->base(); }
  std::uint64_t range_bytes() const override { return range_->bytes(); }
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override {
    return range_->Resize(mapped_bytes);
  }
  Result<std::shared_ptr<const Module>> LoadModule(std::span<const std::byte> image) override {
    return CpuModule::Load(image, *range_);
  }
  const AddressRange& range() const { return *range_; }

 private:
  const std::unique_ptr<AddressRange> range_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_SPACE_H_
