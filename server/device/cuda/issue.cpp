// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/issue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "server/device/cuda/cuda_module.h"
#include "server/device/shown_name.h"

namespace gpushared::device::cuda {
namespace {

using Direction = CopyWork::Direction;

// CU_DEVICE_ATTRIBUTE_MAX_PITCH of all existing GPUs.
constexpr std::uint64_t kPitchMax = std::numeric_limits<std::int32_t>::max();

// Source or destination of a group: address of its first byte and distance of the rows.
template <typename Address>
struct Side {
  Address start{};
  std::uint64_t pitch = 0;
  Side Row(std::uint64_t row) const { return {.start = start + row * pitch, .pitch = pitch}; }
};
using HostSide = Side<std::byte*>;
using DeviceSide = Side<DeviceAddress>;

HostSide GetHost(const CopyWork& work, const Group& group, Detour detour) {
  if (detour.buffer != nullptr) return {.start = detour.buffer, .pitch = group.width_bytes};
  const std::uint64_t pitch = work.direction == Direction::kHostToDevice
                                  ? work.source_pitch_bytes
                                  : work.destination_pitch_bytes;
  return {.start = work.host + group.row * pitch + group.column_bytes, .pitch = pitch};
}

DeviceSide GetSource(const CopyWork& work, const Group& group) {
  return {.start = work.source + group.row * work.source_pitch_bytes + group.column_bytes,
          .pitch = work.source_pitch_bytes};
}

DeviceSide GetDestination(const CopyWork& work, const Group& group) {
  return {.start = work.destination + group.row * work.destination_pitch_bytes + group.column_bytes,
          .pitch = work.destination_pitch_bytes};
}

// Copies a group of one row.
Status CopyRow(CudaContext& context, Direction direction, HostSide host, DeviceSide from,
               DeviceSide to, std::uint64_t bytes, Stream stream) {
  const Driver& driver = context.driver();
  switch (direction) {
    case Direction::kHostToDevice:
      return context.Try("copy to the device", driver.MemcpyHtoDAsync, to.start,
                         static_cast<const void*>(host.start), bytes, stream);
    case Direction::kDeviceToHost:
      return context.Try("copy to the host", driver.MemcpyDtoHAsync, static_cast<void*>(host.start),
                         from.start, bytes, stream);
    case Direction::kDeviceToDevice:
      break;
  }
  return context.Try("copy on the device", driver.MemcpyDtoDAsync, to.start, from.start, bytes,
                     stream);
}

Copy2d Rectangle(Direction direction, HostSide host, DeviceSide from, DeviceSide to,
                 const Group& group) {
  Copy2d copy;
  copy.width_bytes = group.width_bytes;
  copy.height = group.rows;
  if (direction == Direction::kHostToDevice) {
    copy.source_host = host.start;
    copy.source_pitch = host.pitch;
  } else {
    copy.source_type = MemoryType::kDevice;
    copy.source_device = from.start;
    copy.source_pitch = from.pitch;
  }
  if (direction == Direction::kDeviceToHost) {
    copy.destination_host = host.start;
    copy.destination_pitch = host.pitch;
  } else {
    copy.destination_type = MemoryType::kDevice;
    copy.destination_device = to.start;
    copy.destination_pitch = to.pitch;
  }
  return copy;
}

Status FillRow(CudaContext& context, const FillWork& work, DeviceSide to, std::uint64_t bytes,
               Stream stream) {
  const Driver& driver = context.driver();
  const std::size_t elements = bytes / work.element_bytes;
  switch (work.element_bytes) {
    case 1:
      return context.Try("fill", driver.MemsetD8Async, to.start,
                         static_cast<unsigned char>(work.value), elements, stream);
    case 2:
      return context.Try("fill", driver.MemsetD16Async, to.start,
                         static_cast<unsigned short>(work.value), elements, stream);
    default:
      return context.Try("fill", driver.MemsetD32Async, to.start, work.value, elements, stream);
  }
}

Status FillRows(CudaContext& context, const FillWork& work, DeviceSide to, const Group& group,
                Stream stream) {
  const Driver& driver = context.driver();
  const std::size_t elements = group.width_bytes / work.element_bytes;
  switch (work.element_bytes) {
    case 1:
      return context.Try("fill", driver.MemsetD2D8Async, to.start, to.pitch,
                         static_cast<unsigned char>(work.value), elements, group.rows, stream);
    case 2:
      return context.Try("fill", driver.MemsetD2D16Async, to.start, to.pitch,
                         static_cast<unsigned short>(work.value), elements, group.rows, stream);
    default:
      return context.Try("fill", driver.MemsetD2D32Async, to.start, to.pitch, work.value, elements,
                         group.rows, stream);
  }
}

}  // namespace

Group GroupAt(std::uint64_t unit, std::uint64_t width_bytes, std::uint64_t height,
              std::uint64_t bytes_max) {
  const std::uint64_t units_per_row = CopyUnits(width_bytes, 1);
  Group group;
  group.row = unit / units_per_row;
  const std::uint64_t first = unit % units_per_row;
  if (first == 0 && width_bytes <= bytes_max) {
    group.rows = std::min(height - group.row, bytes_max / width_bytes);
    group.width_bytes = width_bytes;
    group.end_unit = unit + group.rows * units_per_row;
    return group;
  }
  const std::uint64_t units = std::min(units_per_row - first, bytes_max / kCopyPieceBytes);
  group.rows = 1;
  group.column_bytes = first * kCopyPieceBytes;
  group.width_bytes = std::min(units * kCopyPieceBytes, width_bytes - group.column_bytes);
  group.end_unit = unit + units;
  return group;
}

namespace {

Status CheckFitsAtOnce(CudaContext& context, const LaunchWork& work,
                       std::uint32_t multiprocessors) {
  const auto& module = static_cast<const CudaModule&>(*work.module);
  int blocks = 0;
  Status status = context.Try("asking how many blocks fit",
                              context.driver().OccupancyMaxActiveBlocksPerMultiprocessor, &blocks,
                              module.function(work.kernel), static_cast<int>(work.block.Count()),
                              static_cast<std::size_t>(work.dynamic_shared_bytes));
  if (!status.ok()) return status;
  const std::uint64_t most = static_cast<std::uint64_t>(std::max(blocks, 0)) * multiprocessors;
  if (work.grid.Count() <= most) return {};
  return {StatusCode::kInvalidArgument,
          "launch rejected: kernel '" + ShownName(module.kernels()[work.kernel].name) +
              "' is launched cooperatively with " + std::to_string(work.grid.Count()) +
              " blocks, " + std::to_string(most) + " fit at once (" + std::to_string(blocks) +
              " on each of " + std::to_string(multiprocessors) + " multiprocessors)"};
}

Code CallWithAttributes(CudaContext& context, const LaunchWork& work, Function function,
                        Stream stream, void** extra) {
  std::array<LaunchAttribute, 2> attributes;
  LaunchConfig config = {.grid_x = work.grid.x,
                         .grid_y = work.grid.y,
                         .grid_z = work.grid.z,
                         .block_x = work.block.x,
                         .block_y = work.block.y,
                         .block_z = work.block.z,
                         .shared_bytes = work.dynamic_shared_bytes,
                         .stream = stream,
                         .attributes = attributes.data(),
                         .attribute_count = 0};
  if (work.cluster.x != 0) {
    LaunchAttribute& cluster = attributes.at(config.attribute_count++);
    cluster.id = LaunchAttributeId::kClusterDimension;
    cluster.value.cluster = {.x = work.cluster.x, .y = work.cluster.y, .z = work.cluster.z};
  }
  if (work.is_cooperative) {
    LaunchAttribute& cooperative = attributes.at(config.attribute_count++);
    cooperative.id = LaunchAttributeId::kCooperative;
    cooperative.value.cooperative = 1;
  }
  return context.Call(context.driver().LaunchKernelEx, static_cast<const LaunchConfig*>(&config),
                      function, static_cast<void**>(nullptr), extra);
}

}  // namespace

Status IssueLaunch(CudaContext& context, const LaunchWork& work, std::uint32_t multiprocessors,
                   Stream stream) {
  if (work.is_cooperative) {
    if (Status status = CheckFitsAtOnce(context, work, multiprocessors); !status.ok()) {
      return status;
    }
  }
  const bool has_attributes = work.is_cooperative || work.cluster.x != 0;
  const auto& module = static_cast<const CudaModule&>(*work.module);
  std::size_t bytes = work.parameters.size();
  const auto key = [](std::uintptr_t value) { return reinterpret_cast<void*>(value); };
  std::array<void*, 5> extra = {key(kLaunchBuffer), const_cast<std::byte*>(work.parameters.data()),
                                key(kLaunchBufferBytes), &bytes, key(kLaunchEnd)};
  void** const given = bytes == 0 ? nullptr : extra.data();
  const Function function = module.function(work.kernel);
  const Code code =
      has_attributes
          ? CallWithAttributes(context, work, function, stream, given)
          : context.Call(context.driver().LaunchKernel, function, work.grid.x, work.grid.y,
                         work.grid.z, work.block.x, work.block.y, work.block.z,
                         work.dynamic_shared_bytes, stream, static_cast<void**>(nullptr), given);
  if (code == Code::kSuccess) [[likely]]
    return {};
  const std::string doing =
      "launch of kernel '" + ShownName(module.kernels()[work.kernel].name) + "'";
  const std::string_view call = has_attributes ? context.driver().LaunchKernelEx.name()
                                               : context.driver().LaunchKernel.name();
  return context.Explain(doing.c_str(), call, code);
}

Status IssuePreemptible(CudaContext& context, const LaunchWork& work, const PreemptibleKernel& form,
                        const ptx::ClaimParameter& claim, std::uint32_t blocks, Stream stream) {
  std::vector<std::byte> parameters(form.parameter_offset + sizeof claim);
  std::ranges::copy(work.parameters, parameters.begin());
  std::memcpy(parameters.data() + form.parameter_offset, &claim, sizeof claim);
  std::size_t bytes = parameters.size();
  const auto key = [](std::uintptr_t value) { return reinterpret_cast<void*>(value); };
  std::array<void*, 5> extra = {key(kLaunchBuffer), static_cast<void*>(parameters.data()),
                                key(kLaunchBufferBytes), &bytes, key(kLaunchEnd)};
  const Code code =
      context.Call(context.driver().LaunchKernel, form.function, blocks, 1U, 1U, work.block.x,
                   work.block.y, work.block.z, work.dynamic_shared_bytes + ptx::kClaimSharedBytes,
                   stream, static_cast<void**>(nullptr), extra.data());
  if (code == Code::kSuccess) [[likely]]
    return {};
  const std::string doing =
      "launch of kernel '" + ShownName(work.module->kernels()[work.kernel].name) + "'";
  return context.Explain(doing.c_str(), context.driver().LaunchKernel.name(), code);
}

Status IssueCopy(CudaContext& context, const CopyWork& work, const Group& group, Detour detour,
                 Stream stream) {
  const HostSide host = GetHost(work, group, detour);
  const DeviceSide from = GetSource(work, group);
  const DeviceSide to = GetDestination(work, group);
  if (group.rows == 1) {
    return CopyRow(context, work.direction, host, from, to, group.width_bytes, stream);
  }
  const Copy2d copy = Rectangle(work.direction, host, from, to, group);
  Code code = Code::kInvalidValue;
  if (copy.source_pitch <= kPitchMax && copy.destination_pitch <= kPitchMax) {
    code = context.Call(context.driver().Memcpy2DAsync, &copy, stream);
  }
  if (code == Code::kSuccess) return {};
  if (code != Code::kInvalidValue) {
    return context.Explain("copy of a rectangle", context.driver().Memcpy2DAsync.name(), code);
  }
  // Copies row by row if the rows are too far apart for the driver's call, or if the call does not
  // support the pitch on the device.
  for (std::uint64_t row = 0; row < group.rows; ++row) {
    Status status = CopyRow(context, work.direction, host.Row(row), from.Row(row), to.Row(row),
                            group.width_bytes, stream);
    if (!status.ok()) return status;
  }
  return {};
}

Status IssueFill(CudaContext& context, const FillWork& work, const Group& group, Stream stream) {
  const DeviceSide to = {
      .start = work.destination + group.row * work.pitch_bytes + group.column_bytes,
      .pitch = work.pitch_bytes};
  if (group.rows == 1) return FillRow(context, work, to, group.width_bytes, stream);
  if (to.pitch <= kPitchMax) return FillRows(context, work, to, group, stream);
  for (std::uint64_t row = 0; row < group.rows; ++row) {
    Status status = FillRow(context, work, to.Row(row), group.width_bytes, stream);
    if (!status.ok()) return status;
  }
  return {};
}

void FillDetour(const CopyWork& work, const Group& group, Detour detour) {
  const HostSide own = GetHost(work, group, {});
  for (std::uint64_t row = 0; row < group.rows; ++row) {
    std::memcpy(detour.buffer + row * group.width_bytes, own.Row(row).start, group.width_bytes);
  }
}

void EmptyDetour(const CopyWork& work, const Group& group, Detour detour) {
  const HostSide own = GetHost(work, group, {});
  for (std::uint64_t row = 0; row < group.rows; ++row) {
    std::memcpy(own.Row(row).start, detour.buffer + row * group.width_bytes, group.width_bytes);
  }
}

}  // namespace gpushared::device::cuda
