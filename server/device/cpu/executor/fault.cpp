// SPDX-License-Identifier: Apache-2.0
// Faults, and address checks that are too rare to be inlined.
#include <algorithm>
#include <cstdio>
#include <string>

#include "server/device/cpu/executor/warp.h"
#include "server/device/shown_name.h"

namespace gpushared::device::executor {
namespace {

std::string Hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Formats a set of lanes of a warp.
std::string Lanes(std::uint32_t lanes) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", lanes);
  return text;
}

std::string Coordinates(const Dim3& at) {
  return "(" + std::to_string(at.x) + "," + std::to_string(at.y) + "," + std::to_string(at.z) + ")";
}

// Describes how far [address, address + bytes) is outside [base, base + size).
std::string Distance(std::uint64_t address, std::uint32_t bytes, std::uint64_t base,
                     std::uint64_t size) {
  if (address < base) return std::to_string(base - address) + " bytes before its start";
  const std::uint64_t end = base + size;
  if (address >= end) return std::to_string(address - end) + " bytes past its end";
  return std::to_string(address + bytes - end) + " bytes too far";
}

std::string FunctionAt(const Code& code, std::uint64_t address) {
  const auto found = std::ranges::find(code.callable, address, &CallableFunction::address);
  return found == code.callable.end() ? "" : ShownName(code.functions[found->function].name);
}

MemoryPiece MappedPart(const BlockContext& block, const MemoryPiece& piece) {
  const std::uint64_t start = block.launch->memory.base;
  const std::uint64_t end = start + block.mapped_bytes;
  const std::uint64_t begin = std::max(piece.base, start);
  if (begin >= end || piece.bytes <= begin - piece.base) return {};
  return {.base = begin, .bytes = std::min(piece.bytes - (begin - piece.base), end - begin)};
}

// Describes the location of an invalid access relative to the memory of the launch.
std::string WhereItMissed(const BlockContext& block, const Fault& fault) {
  const std::uint64_t base = block.launch->memory.base;
  if (!block.has_reach || fault.address - base >= block.mapped_bytes) {
    return " are outside the client's " + std::to_string(block.mapped_bytes) +
           " bytes of memory at " + Hex(base) + ", " +
           Distance(fault.address, fault.bytes, base, block.mapped_bytes);
  }
  const std::string text = " are outside of what the launch may touch: ";
  const auto pieces = block.launch->memory.reach->pieces();
  if (pieces.empty()) return text + "no memory of its client";
  const auto behind = std::ranges::upper_bound(pieces, fault.address, {}, &MemoryPiece::base);
  const MemoryPiece& near = behind == pieces.begin() ? *behind : *(behind - 1);
  return text + std::to_string(pieces.size()) + " pieces to which its parameters point, one of " +
         std::to_string(near.bytes) + " bytes at " + Hex(near.base) + ", " +
         Distance(fault.address, fault.bytes, near.base, near.bytes);
}

std::string WhatIsWrong(const Warp& warp, const Fault& fault) {
  const BlockContext& block = *warp.block;
  const std::string access = std::to_string(fault.bytes) + " bytes at " + Hex(fault.address);
  switch (fault.kind) {
    case Fault::Kind::kGlobalAddress:
      return access + WhereItMissed(block, fault);
    case Fault::Kind::kSharedAddress:
      return access + " are outside the block's " + std::to_string(block.shared_bytes) +
             " bytes of shared memory, " +
             Distance(fault.address, fault.bytes, 0, block.shared_bytes);
    case Fault::Kind::kLocalAddress:
      return access + " are outside the thread's " + std::to_string(block.local_bytes_per_thread) +
             " bytes of local memory, " +
             Distance(fault.address, fault.bytes, 0, block.local_bytes_per_thread);
    case Fault::Kind::kParameterAddress:
      return access + " are outside the kernel's " + std::to_string(block.parameter_bytes) +
             " bytes of parameters, " +
             Distance(fault.address, fault.bytes, 0, block.parameter_bytes);
    case Fault::Kind::kMisaligned:
      return access + " are not aligned to their size";
    case Fault::Kind::kTrap:
      return "the kernel trapped";
    case Fault::Kind::kAssert:
      return "the kernel stopped itself";
    case Fault::Kind::kStackSpace:
      return std::to_string(fault.address) + " bytes are more than is left of the thread's " +
             std::to_string(block.local_bytes_per_thread) + " bytes of local memory";
    case Fault::Kind::kCallDepth:
      return "call at depth " + std::to_string(fault.address) + " exceeds " +
             std::to_string(block.call_depth_max) + " calls, " +
             std::to_string(block.local_bytes_per_thread) +
             " bytes of local memory per thread or " +
             std::to_string(block.register_bytes_per_warp_max) + " bytes of registers per warp";
    case Fault::Kind::kSplitDepth:
      return std::to_string(fault.address) + " nested branches exceed " +
             std::to_string(kSplitsMax);
    case Fault::Kind::kResources:
      return std::to_string(fault.address) + " bytes of local memory for one block exceed " +
             std::to_string(kLocalBytesPerBlockMax);
    case Fault::Kind::kDeadlock:
      return "every thread of the block waits, and none can proceed";
    case Fault::Kind::kNotAMember:
      return "lanes " + Lanes(fault.bytes) + " of the warp name the members " +
             Lanes(static_cast<std::uint32_t>(fault.address)) + ", to which they do not belong";
    case Fault::Kind::kMissingLanes:
      return "lanes " + Lanes(fault.bytes) + " of the warp wait for lanes " +
             Lanes(static_cast<std::uint32_t>(fault.address)) + ", which can never arrive";
    case Fault::Kind::kStalled:
      return "made no progress for " + std::to_string(fault.address) +
             " ms: it waits for memory that nothing changes";
    case Fault::Kind::kInvalidOperand:
      return "operand " + std::to_string(fault.address) + " is out of range";
    case Fault::Kind::kCallTarget:
      return Hex(fault.address) + " is the address of no function that the call may reach";
    case Fault::Kind::kCallPrototype:
      return "function '" + FunctionAt(*block.code, fault.address) + "' at " + Hex(fault.address) +
             " has parameters or results of other sizes than the call";
    case Fault::Kind::kTextureRecord:
      return "at " + Hex(fault.address) + " is no valid texture or surface";
    case Fault::Kind::kSurfaceCoordinate:
      return "coordinate " + std::to_string(static_cast<std::int64_t>(fault.address)) + " along " +
             std::string(1, "xyz"[fault.bytes]) + " is outside of the surface";
    case Fault::Kind::kFreedAddress:
      return Hex(fault.address) + " was not returned by malloc, or was already freed";
  }
  return "unknown fault";
}

Dim3 GetThread(const Warp& warp, std::uint32_t lane) {
  const Dim3& size = warp.block->launch->block;
  const std::uint32_t thread = warp.index * kLanes + lane;
  return {thread % size.x, thread / size.x % size.y, thread / (size.x * size.y)};
}

}  // namespace

FaultKind GetKind(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kGlobalAddress:
    case Fault::Kind::kSharedAddress:
    case Fault::Kind::kLocalAddress:
    case Fault::Kind::kParameterAddress:
    case Fault::Kind::kTextureRecord:
      return FaultKind::kIllegalAddress;
    case Fault::Kind::kMisaligned:
      return FaultKind::kMisalignedAddress;
    case Fault::Kind::kAssert:
      return FaultKind::kAssert;
    case Fault::Kind::kStackSpace:
    case Fault::Kind::kCallDepth:
    case Fault::Kind::kSplitDepth:
      return FaultKind::kHardwareStackError;
    case Fault::Kind::kInvalidOperand:
    case Fault::Kind::kNotAMember:
    case Fault::Kind::kCallPrototype:
      return FaultKind::kIllegalInstruction;
    case Fault::Kind::kCallTarget:
      return FaultKind::kInvalidPc;
    case Fault::Kind::kTrap:
    case Fault::Kind::kResources:
    case Fault::Kind::kDeadlock:
    case Fault::Kind::kMissingLanes:
    case Fault::Kind::kStalled:
    case Fault::Kind::kFreedAddress:
    case Fault::Kind::kSurfaceCoordinate:
      break;
  }
  return FaultKind::kLaunchFailure;
}

const MicroOp* RaiseFault(Warp& warp, const MicroOp* op, Fault::Kind kind, std::uint32_t lane,
                          std::uint64_t address, std::uint32_t bytes) {
  const Code& code = *warp.block->code;
  const OpSource& source = code.sources[static_cast<std::size_t>(op - warp.code)];
  Fault& fault = *warp.block->fault;
  fault.kind = kind;
  fault.block = warp.block->index;
  fault.thread = GetThread(warp, lane);
  fault.line = source.line;
  fault.instruction = code.spellings[source.spelling];
  fault.address = address;
  fault.bytes = bytes;
  fault.message = "kernel '" + ShownName(code.kernel) + "', block " + Coordinates(fault.block) +
                  " thread " + Coordinates(fault.thread) + ", PTX line " +
                  std::to_string(fault.line) + ", " + ShownName(fault.instruction) + ": " +
                  WhatIsWrong(warp, fault);
  warp.pc = static_cast<std::uint32_t>(op - warp.code);
  warp.pause = Pause::kFaulted;
  return nullptr;
}

bool MoveWindow(BlockContext& block, std::uint64_t address) {
  if (address - block.global_base < block.global_bytes) return false;
  const MemoryPiece* const piece = PieceAt(block.launch->memory.reach->pieces(), address);
  if (piece == nullptr) return false;
  const MemoryPiece mapped = MappedPart(block, *piece);
  if (address - mapped.base >= mapped.bytes) return false;
  block.global_base = mapped.base;
  block.global_bytes = mapped.bytes;
  return true;
}

std::byte* ResolveGeneric(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t address,
                          std::uint32_t bytes, std::uint32_t alignment, Access access) {
  BlockContext& block = *warp.block;
  if (block.has_reach) MoveWindow(block, address);
  std::uint64_t base = block.global_base, size = block.global_bytes;
  std::byte* host = reinterpret_cast<std::byte*>(base);
  Fault::Kind kind = Fault::Kind::kGlobalAddress;
  if (address - kSharedWindow < kWindowBytes) {
    base = kSharedWindow, size = block.shared_bytes, host = block.shared;
    kind = Fault::Kind::kSharedAddress;
  } else if (address - kLocalWindow < kWindowBytes) {
    base = kLocalWindow, size = block.local_bytes_per_thread;
    host = warp.local + lane * block.local_bytes_per_thread;
    kind = Fault::Kind::kLocalAddress;
  } else if (access == Access::kRead && address - kParameterWindow < kWindowBytes) {
    base = kParameterWindow, size = block.parameter_bytes;
    // The cast is safe, because the caller only reads.
    host = const_cast<std::byte*>(block.parameters);
    kind = Fault::Kind::kParameterAddress;
  } else if (address - kGridWindow < kWindowBytes) {
    base = kGridWindow, size = block.state->grid_workspace.size();
    host = block.state->grid_workspace.data();
  } else if (const MemoryWindow& memory = block.launch->memory;
             address - memory.variables_base < memory.variables_bytes) {
    base = memory.variables_base, size = memory.variables_bytes;
    host = reinterpret_cast<std::byte*>(base);
  } else if (const MemoryPiece* const piece = PieceAt(memory.further, address);
             piece != nullptr && address - base >= size) {
    base = piece->base, size = piece->bytes;
    host = reinterpret_cast<std::byte*>(base);
  }
  const std::uint64_t offset = address - base;
  if (offset >= size || size - offset < bytes) {
    const bool window = kind != Fault::Kind::kGlobalAddress;
    RaiseFault(warp, op, kind, lane, window ? offset : address, bytes);
    return nullptr;
  }
  if ((address & (alignment - 1)) != 0) {
    RaiseFault(warp, op, Fault::Kind::kMisaligned, lane, address, bytes);
    return nullptr;
  }
  return host + offset;
}

}  // namespace gpushared::device::executor
