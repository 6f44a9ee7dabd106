// SPDX-License-Identifier: Apache-2.0
// From checked work to calls of the driver.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_ISSUE_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_ISSUE_H_

#include <cstddef>
#include <cstdint>

#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/preemptible_kernel.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// A run of units of a copy or fill that one call can do: a part of one row, or whole rows.
struct Group {
  std::uint64_t row = 0, rows = 0;
  std::uint64_t column_bytes = 0, width_bytes = 0;
  std::uint64_t end_unit = 0;
  std::uint64_t bytes() const { return rows * width_bytes; }
};

// The group that begins at `unit` and has at most `bytes_max` bytes, which is at least
// kCopyPieceBytes. There is such a unit.
Group GroupAt(std::uint64_t unit, std::uint64_t width_bytes, std::uint64_t height,
              std::uint64_t bytes_max);

// A place in host memory that stands in for the copy's own during one group: rows without gaps.
// Null: the copy's own.
struct Detour {
  std::byte* buffer = nullptr;
};

// These submit to `stream` and return at once; what they name has been checked.
// `multiprocessors`: what the stream may use. A cooperative launch that does not fit onto them is
// rejected here: kInvalidArgument.
Status IssueLaunch(CudaContext& context, const LaunchWork& work, std::uint32_t multiprocessors,
                   Stream stream);
// Issues `blocks` more blocks of the claimed form. `claim` names its words.
Status IssuePreemptible(CudaContext& context, const LaunchWork& work, const PreemptibleKernel& form,
                        const ptx::ClaimParameter& claim, std::uint32_t blocks, Stream stream);
Status IssueCopy(CudaContext& context, const CopyWork& work, const Group& group, Detour detour,
                 Stream stream);
Status IssueFill(CudaContext& context, const FillWork& work, const Group& group, Stream stream);

// Between the copy's own host memory and the detour's.
void FillDetour(const CopyWork& work, const Group& group, Detour detour);
void EmptyDetour(const CopyWork& work, const Group& group, Detour detour);

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_ISSUE_H_
