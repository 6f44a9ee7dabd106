// SPDX-License-Identifier: Apache-2.0
#include "server/device/work_checks.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "gpushared/check.h"

#include "server/device/shown_name.h"

namespace gpushared::device {

namespace {

Status Rejected(const KernelInfo& kernel, const std::string& why) {
  return {StatusCode::kInvalidArgument,
          "launch rejected: kernel '" + ShownName(kernel.name) + "' " + why};
}

// A rectangle of device memory.
struct Rectangle {
  std::uint64_t address = 0;
  std::uint64_t width_bytes = 0, height = 0, pitch_bytes = 0;
};

Status CheckRectangle(const Rectangle& rectangle, const MappedRange& range,
                      const MemoryPieces& variables, const char* what) {
  if (rectangle.height > 1 && rectangle.pitch_bytes < rectangle.width_bytes) {
    return {StatusCode::kInvalidArgument,
            std::string(what) + " rejected: pitch of " + std::to_string(rectangle.pitch_bytes) +
                " bytes, rows of " + std::to_string(rectangle.width_bytes) + " bytes"};
  }
  if (rectangle.width_bytes == 0 || rectangle.height == 0) return {};
  // Divides, because a product could overflow.
  const std::uint64_t gaps = rectangle.height - 1;
  const std::uint64_t reach_max =
      range.range_bytes - std::min(range.range_bytes, rectangle.width_bytes);
  const bool fits = gaps == 0 || rectangle.pitch_bytes <= reach_max / gaps;
  const std::uint64_t bytes = fits ? gaps * rectangle.pitch_bytes + rectangle.width_bytes : 0;
  if (!fits || (!range.Contains(rectangle.address, bytes) &&
                !variables.Contains(rectangle.address, bytes))) {
    return {StatusCode::kInvalidArgument,
            std::string(what) + " rejected: " + std::to_string(rectangle.height) + " rows of " +
                std::to_string(rectangle.width_bytes) + " bytes at offset " +
                std::to_string(rectangle.address - range.base) + " leave the mapped " +
                std::to_string(range.mapped_bytes) + " bytes"};
  }
  return {};
}

}  // namespace

Status CheckLaunchAttributes(const LaunchWork& work, const DeviceInfo& device) {
  const KernelInfo& kernel = work.module->kernels()[work.kernel];
  const auto unsupported = [&](const std::string& why) {
    return Status(StatusCode::kUnsupported,
                  "launch rejected: kernel '" + ShownName(kernel.name) + "' " + why + device.id);
  };
  if (work.is_cooperative && !device.can_launch_cooperatively) {
    return unsupported("is launched cooperatively, which is not supported by device ");
  }
  if (work.cluster.x == 0) return {};
  if (device.cluster_blocks_max == 0) {
    return unsupported("is launched in clusters of blocks, which are not supported by device ");
  }
  if (work.cluster.Count() > device.cluster_blocks_max) {
    return Rejected(kernel, "asks for clusters of " + std::to_string(work.cluster.Count()) +
                                " blocks, device " + device.id + " allows " +
                                std::to_string(device.cluster_blocks_max));
  }
  const auto text = [](const Dim3& extent) {
    return std::to_string(extent.x) + "x" + std::to_string(extent.y) + "x" +
           std::to_string(extent.z);
  };
  if (work.grid.x % work.cluster.x != 0 || work.grid.y % work.cluster.y != 0 ||
      work.grid.z % work.cluster.z != 0) {
    return Rejected(kernel, "asks for a grid of " + text(work.grid) +
                                " blocks, which is not made of whole clusters of " +
                                text(work.cluster));
  }
  return {};
}

Status CheckLaunch(const LaunchWork& work, const DeviceInfo& device) {
  if (work.module == nullptr || work.kernel >= work.module->kernels().size()) {
    return {StatusCode::kInvalidArgument,
            "launch rejected: the module has no kernel number " + std::to_string(work.kernel)};
  }
  const KernelInfo& kernel = work.module->kernels()[work.kernel];
  if (!kernel.unsupported.empty()) {
    return {StatusCode::kUnsupported,
            "launch rejected: kernel '" + ShownName(kernel.name) + "' needs " + kernel.unsupported};
  }
  const LaunchExcess excess =
      CheckLaunchLimits({.grid = {work.grid.x, work.grid.y, work.grid.z},
                         .block = {work.block.x, work.block.y, work.block.z},
                         .cluster = {work.cluster.x, work.cluster.y, work.cluster.z},
                         .static_shared_bytes = kernel.static_shared_bytes,
                         .dynamic_shared_bytes = work.dynamic_shared_bytes},
                        GetLimits(kernel, device));
  if (!excess.ok()) {
    return {StatusCode::kInvalidArgument, excess.Message(ShownName(kernel.name), device.id)};
  }
  if (work.parameters.size() != kernel.parameter_bytes) {
    return Rejected(kernel, "takes " + std::to_string(kernel.parameter_bytes) +
                                " bytes of parameters, got " +
                                std::to_string(work.parameters.size()));
  }
  return CheckLaunchAttributes(work, device);
}

Status CheckCopy(const CopyWork& work, const MappedRange& range, const MemoryPieces& variables) {
  using Direction = CopyWork::Direction;
  if (work.direction != Direction::kDeviceToDevice && work.host == nullptr &&
      CopyUnits(work.width_bytes, work.height) != 0) {
    return {StatusCode::kInvalidArgument, "copy rejected: it has no host memory"};
  }
  if (work.direction != Direction::kDeviceToHost) {
    Status checked = CheckRectangle({.address = work.destination,
                                     .width_bytes = work.width_bytes,
                                     .height = work.height,
                                     .pitch_bytes = work.destination_pitch_bytes},
                                    range, variables, "copy destination");
    if (!checked.ok()) return checked;
  }
  if (work.direction != Direction::kHostToDevice) {
    return CheckRectangle({.address = work.source,
                           .width_bytes = work.width_bytes,
                           .height = work.height,
                           .pitch_bytes = work.source_pitch_bytes},
                          range, variables, "copy source");
  }
  return {};
}

Status CheckFill(const FillWork& work, const MappedRange& range, const MemoryPieces& variables) {
  const std::uint64_t element = work.element_bytes;
  if (element != 1 && element != 2 && element != 4) {
    return {StatusCode::kInvalidArgument, "fill rejected: invalid element size of " +
                                              std::to_string(element) +
                                              " bytes: expected 1, 2 or 4"};
  }
  const bool pitched = work.height > 1;
  if (work.destination % element != 0 || work.width_bytes % element != 0 ||
      (pitched && work.pitch_bytes % element != 0)) {
    return {StatusCode::kInvalidArgument,
            "fill rejected: address, width or pitch is no multiple of the element's " +
                std::to_string(element) + " bytes"};
  }
  return CheckRectangle({.address = work.destination,
                         .width_bytes = work.width_bytes,
                         .height = work.height,
                         .pitch_bytes = work.pitch_bytes},
                        range, variables, "fill");
}

}  // namespace gpushared::device
