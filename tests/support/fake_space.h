// SPDX-License-Identifier: Apache-2.0
// Memory and modules of the fake device.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_SPACE_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "server/device/cpu/address_range.h"
#include "server/device/device.h"
#include "tests/support/fake_device.h"

namespace gpushared::testing {

using FakeKernels = std::map<std::string, FakeKernel, std::less<>>;

// What the PTX says of names, parameters and variables; no code.
class FakeModule : public device::Module {
 public:
  static Result<std::shared_ptr<const device::Module>> Load(std::span<const std::byte> image,
                                                            device::AddressRange& range,
                                                            const FakeKernels& kernels);
  FakeModule(const FakeModule&) = delete;
  FakeModule& operator=(const FakeModule&) = delete;
  ~FakeModule() override { range_.ReturnModuleBlock(block_); }

  std::span<const device::KernelInfo> kernels() const override { return kernels_; }
  // Null when the module has no such variable.
  std::byte* Variable(std::string_view name) const;

 private:
  FakeModule(device::AddressRange& range, const device::AddressRange::Block& block)
      : range_(range), block_(block) {}

  device::AddressRange& range_;
  const device::AddressRange::Block block_;
  std::vector<device::KernelInfo> kernels_;
  std::map<std::string, std::uint64_t, std::less<>> offsets_;
};

class FakeSpace : public device::Space {
 public:
  static Result<std::unique_ptr<device::Space>> Create(const device::SpaceOptions& options,
                                                       std::shared_ptr<device::MemoryBudget> budget,
                                                       const FakeKernels& kernels);
  FakeSpace(std::unique_ptr<device::AddressRange> range, const FakeKernels& kernels)
      : range_(std::move(range)), kernels_(kernels) {}

  std::uint64_t base() const override { return range_->base(); }
  std::uint64_t range_bytes() const override { return range_->bytes(); }
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) override {
    return range_->Resize(mapped_bytes);
  }
  Result<std::shared_ptr<const device::Module>> LoadModule(
      std::span<const std::byte> image) override {
    return FakeModule::Load(image, *range_, kernels_);
  }
  const device::AddressRange& range() const { return *range_; }

 private:
  const std::unique_ptr<device::AddressRange> range_;
  const FakeKernels& kernels_;  // The device's.
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_SPACE_H_
