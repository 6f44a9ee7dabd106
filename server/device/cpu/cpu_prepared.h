// SPDX-License-Identifier: Apache-2.0
// Modules of the cpu device in two steps. A process that can do no harm reads and decodes what a
// client wrote, to bytes. The worker checks those bytes and places them in the client's range.

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
  // Verifies all of it. kInvalidArgument when it is not what Prepare writes, whatever it is.
  static Result<std::shared_ptr<const CpuPrepared>> Take(std::span<const std::byte> flat);
  CpuPrepared(const CpuPrepared&) = delete;
  CpuPrepared& operator=(const CpuPrepared&) = delete;
  ~CpuPrepared() override = default;

  std::span<const KernelInfo> kernel_infos() const override { return infos_; }
  std::span<const VariableInfo> variable_infos() const override { return variables_; }
  std::uint64_t bytes() const override { return bytes_; }

  // One per kernel, in their order.
  const std::vector<std::unique_ptr<const executor::Program>>& programs() const {
    return programs_;
  }
  // Size of its block in the module area.
  std::uint64_t variable_bytes() const { return variable_bytes_; }
  const VariableContents& contents() const { return contents_; }  // Of the block.

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

// Reads an image, PTX text or a fatbin, and decodes: all that touches what the client wrote. What
// is written so far means nothing when it fails.
Status PrepareCpuModule(std::span<const std::byte> image, FlatWriter& to);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_PREPARED_H_
