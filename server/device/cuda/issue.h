// SPDX-License-Identifier: Apache-2.0
// Translates validated work into driver calls.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_ISSUE_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_ISSUE_H_

#include <cstddef>
#include <cstdint>

#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/preemptible_kernel.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// Consecutive units of a copy or fill that one call can perform: part of one row, or whole rows.
struct Group {
  std::uint64_t row = 0, rows = 0;
  std::uint64_t column_bytes = 0, width_bytes = 0;
  std::uint64_t end_unit = 0;
  std::uint64_t bytes() const { return rows * width_bytes; }
};

// Returns the group that begins at `unit` and has at most `bytes_max` bytes. The unit must exist;
// `bytes_max` is at least kCopyPieceBytes.
Group GroupAt(std::uint64_t unit, std::uint64_t width_bytes, std::uint64_t height,
              std::uint64_t bytes_max);

// Host memory that replaces the copy's own memory during one group, with contiguous rows. Null if
// the copy's own memory is used.
struct Detour {
  std::byte* buffer = nullptr;
};

// The functions below submit to `stream` and return immediately; their arguments have been
// validated. IssueLaunch rejects a cooperative launch that does not fit onto `multiprocessors`, the
// number that the stream may use, with kInvalidArgument.
Status IssueLaunch(CudaContext& context, const LaunchWork& work, std::uint32_t multiprocessors,
                   Stream stream);
// Issues `blocks` more blocks of the preemptible form. `claim` contains the addresses of its words.
Status IssuePreemptible(CudaContext& context, const LaunchWork& work, const PreemptibleKernel& form,
                        const ptx::ClaimParameter& claim, std::uint32_t blocks, Stream stream);
Status IssueCopy(CudaContext& context, const CopyWork& work, const Group& group, Detour detour,
                 Stream stream);
Status IssueFill(CudaContext& context, const FillWork& work, const Group& group, Stream stream);

// FillDetour copies from the copy's own host memory to the detour, EmptyDetour in the opposite
// direction.
void FillDetour(const CopyWork& work, const Group& group, Detour detour);
void EmptyDetour(const CopyWork& work, const Group& group, Detour detour);

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_ISSUE_H_
