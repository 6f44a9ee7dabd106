// SPDX-License-Identifier: Apache-2.0
// Two-stage loading of modules for the cpu device. An unprivileged process parses and decodes the
// client's image and writes bytes. The worker validates these bytes and places the module in the
// client's range.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_CPU_PREPARED_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CPU_PREPARED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cpu/executor/program.h"
#include "server/device/device.h"
#include "server/device/flat.h"
#include "server/device/flat_module.h"

namespace gpushared::device {

// A module that can be placed in any range.
//
// Immutable; thread-safe.
class CpuPrepared : public PreparedModule {
 public:
  // Reads the output of PrepareCpuModule and validates everything. Fails with kInvalidArgument for
  // any bytes that PrepareCpuModule does not write.
  static Result<std::shared_ptr<const CpuPrepared>> Take(std::span<const std::byte> flat);
  CpuPrepared(const CpuPrepared&) = delete;
  CpuPrepared& operator=(const CpuPrepared&) = delete;
  ~CpuPrepared() override = default;

  std::span<const KernelInfo> kernel_infos() const override { return infos_; }
  std::span<const VariableInfo> variable_infos() const override { return variables_; }
  std::uint64_t bytes() const override { return bytes_; }

  // Returns the programs, parallel to the kernels.
  const std::vector<std::unique_ptr<const executor::Program>>& programs() const {
    return programs_;
  }
  // Returns the size of the module's block in the module area.
  std::uint64_t variable_bytes() const { return variable_bytes_; }
  // Returns the initial contents of the module's block.
  const VariableContents& contents() const { return contents_; }

 private:
  CpuPrepared() = default;
  void CountBytes();

  std::uint64_t variable_bytes_ = 0;
  VariableContents contents_;
  std::vector<VariableInfo> variables_;
  std::vector<std::unique_ptr<const executor::Program>> programs_;
  std::vector<KernelInfo> infos_;  // Parallel to programs_.
  std::uint64_t bytes_ = 0;
};

// Parses and decodes PTX text or a fatbin. No later stage reads the client's image. The output is
// meaningless if the call fails.
Status PrepareCpuModule(std::span<const std::byte> image, FlatWriter& to);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_PREPARED_H_
