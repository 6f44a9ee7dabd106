// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/warp.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace gpushared::device::executor {

const MicroOp* PopStack(Warp& warp) {
  while (!warp.stack.empty()) {
    const StackEntry entry = warp.stack.back();
    warp.stack.pop_back();
    if (entry.is_call) {
      warp.activations.pop_back();
      warp.frame = warp.registers + warp.activations.back().frame_offset;
      warp.local_base = warp.activations.back().local_base;
    }
    const std::uint32_t alive = entry.mask & ~warp.exited;
    if (alive != 0) {
      warp.active = alive;
      warp.reconvergence = entry.reconvergence;
      return warp.code + entry.pc;
    }
  }
  warp.active = 0;
  warp.pause = Pause::kFinished;
  return nullptr;
}

const MicroOp* WaitAt(Warp& warp, const MicroOp* op, Pause pause) {
  warp.pc = static_cast<std::uint32_t>(op - warp.code);
  warp.pause = pause;
  return nullptr;
}

std::uint32_t WaitingLanes(const Warp& warp) {
  std::uint32_t lanes = 0;
  for (const StackEntry& entry : warp.stack) lanes |= entry.mask;
  return lanes & ~warp.active & ~warp.exited;
}

std::uint64_t FreeFrameOffset(const Warp& warp) {
  // Only the innermost frame matters, because it is above the path's other frames.
  const auto end_of = [&](const Activation& activation) {
    return activation.frame_offset + warp.block->code->functions[activation.function].frame_bytes;
  };
  std::uint64_t end = end_of(warp.activations.back());
  for (const Path& path : warp.waiting) end = std::max(end, end_of(path.activations.back()));
  return end;
}

bool EnsureRegisters(Warp& warp, std::uint64_t bytes) {
  if (bytes > warp.block->register_bytes_per_warp_max) return false;
  if (bytes > warp.register_memory.bytes()) {
    RegisterMemory larger(std::max(bytes, warp.register_memory.bytes() * 2));
    if (warp.registers_used != 0) {
      std::memcpy(larger.data(), warp.registers, warp.registers_used);
    }
    warp.register_memory = std::move(larger);
    warp.registers = warp.register_memory.data();
    if (!warp.activations.empty()) {
      warp.frame = warp.registers + warp.activations.back().frame_offset;
    }
  }
  warp.registers_used = std::max(warp.registers_used, bytes);
  return true;
}

RegisterMemory::RegisterMemory(std::uint64_t bytes)
    : data_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment}))),
      bytes_(bytes) {
  std::memset(data_, 0, bytes);
}
RegisterMemory::~RegisterMemory() {
  if (data_ != nullptr) ::operator delete (data_, std::align_val_t{kAlignment});
}

namespace {

std::uint32_t SharedBytes(const Warp& warp) {
  return warp.block->code->static_shared_bytes + warp.block->launch->dynamic_shared_bytes;
}

// Returns the value that one lane reads; `thread` is its index in the block.
std::uint64_t SpecialValue(const Warp& warp, SpecialRegister what, std::uint32_t lane) {
  const Launch& launch = *warp.block->launch;
  const std::uint32_t thread = warp.index * kLanes + lane;
  const std::uint32_t below = (1u << lane) - 1, own = 1u << lane;
  switch (what) {
    case SpecialRegister::kThreadX:
      return thread % launch.block.x;
    case SpecialRegister::kThreadY:
      return thread / launch.block.x % launch.block.y;
    case SpecialRegister::kThreadZ:
      return thread / (launch.block.x * launch.block.y);
    case SpecialRegister::kBlockSizeX:
      return launch.block.x;
    case SpecialRegister::kBlockSizeY:
      return launch.block.y;
    case SpecialRegister::kBlockSizeZ:
      return launch.block.z;
    case SpecialRegister::kBlockX:
      return warp.block->index.x;
    case SpecialRegister::kBlockY:
      return warp.block->index.y;
    case SpecialRegister::kBlockZ:
      return warp.block->index.z;
    case SpecialRegister::kGridX:
      return launch.grid.x;
    case SpecialRegister::kGridY:
      return launch.grid.y;
    case SpecialRegister::kGridZ:
      return launch.grid.z;
    case SpecialRegister::kLane:
      return lane;
    case SpecialRegister::kWarp:
      return warp.index;
    case SpecialRegister::kWarpsPerBlock:
      return (launch.block.Count() + kLanes - 1) / kLanes;
    case SpecialRegister::kLaneMaskEqual:
      return own;
    case SpecialRegister::kLaneMaskLess:
      return below;
    case SpecialRegister::kLaneMaskLessEqual:
      return below | own;
    case SpecialRegister::kLaneMaskGreater:
      return ~(below | own);
    case SpecialRegister::kLaneMaskGreaterEqual:
      return ~below;
    case SpecialRegister::kMultiprocessor:
      return launch.multiprocessor;
    case SpecialRegister::kMultiprocessors:
      return launch.multiprocessors;
    case SpecialRegister::kGridId:
      return launch.grid_id;
    case SpecialRegister::kGridWorkspaceLow:
      return launch.is_cooperative ? kGridWindow & 0xffffffff : 0;
    case SpecialRegister::kGridWorkspaceHigh:
      return launch.is_cooperative ? kGridWindow >> 32 : 0;
    case SpecialRegister::kDynamicSharedBytes:
      return launch.dynamic_shared_bytes;
    case SpecialRegister::kTotalSharedBytes:
      return SharedBytes(warp);
    case SpecialRegister::kZero:
      return 0;
    case SpecialRegister::kOne:
      return 1;
  }
  return 0;
}

template <typename Value>
void FillRow(std::uint32_t offset, bool wide, std::byte* frame, Value value_of) {
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t value = value_of(lane);
    const auto narrow = static_cast<std::uint32_t>(value);
    if (wide) {
      std::memcpy(frame + offset + std::size_t{lane} * 8, &value, 8);
    } else {
      std::memcpy(frame + offset + std::size_t{lane} * 4, &narrow, 4);
    }
  }
}

}  // namespace

void BeginFrame(const Warp& warp, const FunctionCode& function, std::byte* frame) {
  std::memcpy(frame + kAlwaysTrue, &kAllLanes, sizeof(kAllLanes));
  std::copy(function.image.begin(), function.image.end(), frame + function.image_offset);
  for (const SpecialRow& row : function.special_rows) FillSpecialRow(warp, row, frame);
  for (const AddressRow& row : function.address_rows) {
    const std::uint64_t address = row.address + warp.block->launch->variables_at;
    FillRow(row.offset, row.wide, frame, [&](std::uint32_t) { return address; });
  }
}

void FillSpecialRow(const Warp& warp, const SpecialRow& row, std::byte* frame) {
  FillRow(row.offset, row.wide, frame,
          [&](std::uint32_t lane) { return SpecialValue(warp, row.what, lane); });
}

}  // namespace gpushared::device::executor
