// SPDX-License-Identifier: Apache-2.0
// Copies with hints, single and in batches. They run one after another in stream order; the hints
// permit other orders, but do not require them. If a hint states that the source may be invalid
// after the call, the source must be read before the call returns. Page-locked and device memory is
// read only when the stream reaches the copy, so the call then waits for the copy.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr int kInStreamOrder = 1;
constexpr int kDuringCall = 2;
constexpr int kAnyTime = 3;

bool IsOrder(int order) { return order >= kInStreamOrder && order <= kAnyTime; }

// Returns the result of a batch whose copies returned `code`. Copies before a failed one have been
// submitted.
Code EndBatch(Code code, bool must_wait, StreamHandle stream) {
  // A captured copy reads nothing now, regardless of the hints.
  int capture = 0;
  must_wait &= StreamIsCapturing(stream, &capture) == Code::kSuccess && capture == 0;
  const Code waited = must_wait ? StreamSynchronize(stream) : Code::kSuccess;
  return code == Code::kSuccess ? waited : code;
}

// Returns the bytes of one texel of an array operand; 1 for a pointer.
std::optional<std::size_t> ElementBytes(const Current& current, const CopyOperand& operand) {
  if (operand.type != CopyOperand::kArray) return 1;
  const std::shared_ptr<CudaArray> array = FindArray(current, operand.in.array.array);
  return array == nullptr ? std::nullopt : std::optional(array->texel.bytes());
}

// Converts one side of the copy to bytes and rows. Returns false if its sizes are invalid.
bool MakeRowSide(const CopyOperand& operand, const CopyExtent& extent, std::size_t element_bytes,
                 CopySide& side) {
  side = {};
  if (operand.type == CopyOperand::kArray) {
    const auto& array = operand.in.array;
    side.type = MemoryType::kArray;
    side.array = array.array;
    side.y = array.y;
    side.z = array.z;
    return !__builtin_mul_overflow(array.x, element_bytes, &side.x_bytes);
  }
  const auto& memory = operand.in.memory;
  side.type = MemoryType::kUnified;
  side.device = memory.address;
  side.height = memory.layer_height;
  const bool has_rows = memory.row_length == 0 || memory.row_length >= extent.width;
  const bool has_layers = memory.layer_height == 0 || memory.layer_height >= extent.height;
  return has_rows && has_layers &&
         !__builtin_mul_overflow(memory.row_length, element_bytes, &side.pitch);
}

// Converts the copy to the form of cuMemcpy3D.
Code MakeCopy(const CopyOperation& operation, Copy3d& copy) {
  const Current current;
  if (!current.ok()) return current.code();
  const CopyExtent& extent = operation.extent;
  const bool is_known = IsOrder(operation.source_order) && operation.source.is_known() &&
                        operation.destination.is_known();
  if (!is_known || extent.width == 0 || extent.height == 0 || extent.depth == 0) {
    return Reject(Code::kInvalidValue,
                  "copy rejected: its order, the kind of an operand or its extent is invalid");
  }
  const auto from_bytes = ElementBytes(current, operation.source);
  const auto to_bytes = ElementBytes(current, operation.destination);
  if (!from_bytes || !to_bytes) return Code::kInvalidHandle;
  const bool are_arrays = operation.source.type == CopyOperand::kArray &&
                          operation.destination.type == CopyOperand::kArray;
  if (are_arrays && *from_bytes != *to_bytes) {
    return Reject(Code::kInvalidValue, "copy rejected: texels of " + std::to_string(*from_bytes) +
                                           " bytes cannot be copied to texels of " +
                                           std::to_string(*to_bytes));
  }
  const std::size_t element_bytes = std::max(*from_bytes, *to_bytes);
  copy = {};
  if (__builtin_mul_overflow(extent.width, element_bytes, &copy.width_bytes) ||
      !MakeRowSide(operation.source, extent, element_bytes, copy.source) ||
      !MakeRowSide(operation.destination, extent, element_bytes, copy.destination)) {
    return Reject(Code::kInvalidValue,
                  "copy rejected: an operand's rows or layers are shorter than the extent's, or "
                  "its size exceeds the address space");
  }
  copy.height = extent.height;
  copy.depth = extent.depth;
  return Code::kSuccess;
}

}  // namespace

Code MemcpyBatchAsyncV1(DevicePointer* destinations, DevicePointer* sources, std::size_t* bytes,
                        std::size_t count, CopyHints* hints, std::size_t* hint_starts,
                        std::size_t hint_count, std::size_t* failed, StreamHandle stream) {
  if (failed != nullptr) *failed = ~std::size_t{0};
  if (AnyNull(destinations, sources, bytes, hints, hint_starts)) return Code::kInvalidValue;
  if (count == 0 || hint_count == 0 || hint_count > count || hint_starts[0] != 0) {
    return Code::kInvalidValue;
  }
  bool must_wait = false;
  for (std::size_t i = 0; i < hint_count; ++i) {
    must_wait |= hints[i].source_order == kDuringCall;
    const bool is_in_order = i == 0 || hint_starts[i] > hint_starts[i - 1];
    if (!IsOrder(hints[i].source_order) || !is_in_order || hint_starts[i] >= count)
      return Code::kInvalidValue;
  }
  Code code = Code::kSuccess;
  for (std::size_t i = 0; i < count && code == Code::kSuccess; ++i) {
    code = MemcpyAsync(destinations[i], sources[i], bytes[i], stream);
    if (code != Code::kSuccess && failed != nullptr) *failed = i;
  }
  return EndBatch(code, must_wait, stream);
}
Code MemcpyWithAttributesAsync(DevicePointer destination, DevicePointer source, std::size_t bytes,
                               CopyHints* hints, StreamHandle stream) {
  std::size_t first = 0;
  return MemcpyBatchAsyncV1(&destination, &source, &bytes, 1, hints, &first, 1, nullptr, stream);
}
Code MemcpyBatchAsync(DevicePointer* destinations, DevicePointer* sources, std::size_t* bytes,
                      std::size_t count, CopyHints* hints, std::size_t* hint_starts,
                      std::size_t hint_count, StreamHandle stream) {
  return MemcpyBatchAsyncV1(destinations, sources, bytes, count, hints, hint_starts, hint_count,
                            nullptr, stream);
}

Code Memcpy3dBatchAsyncV1(std::size_t count, CopyOperation* operations, std::size_t* failed,
                          std::uint64_t flags, StreamHandle stream) {
  if (failed != nullptr) *failed = ~std::size_t{0};
  if (AnyNull(operations) || count == 0 || flags != 0) return Code::kInvalidValue;
  Code code = Code::kSuccess;
  bool must_wait = false;
  for (std::size_t i = 0; i < count && code == Code::kSuccess; ++i) {
    Copy3d copy;
    code = MakeCopy(operations[i], copy);
    if (code == Code::kSuccess) code = Memcpy3dAsync(&copy, stream);
    if (code == Code::kSuccess) must_wait |= operations[i].source_order == kDuringCall;
    if (code != Code::kSuccess && failed != nullptr) *failed = i;
  }
  return EndBatch(code, must_wait, stream);
}
Code Memcpy3dBatchAsync(std::size_t count, CopyOperation* operations, std::uint64_t flags,
                        StreamHandle stream) {
  return Memcpy3dBatchAsyncV1(count, operations, nullptr, flags, stream);
}
Code Memcpy3dWithAttributesAsync(CopyOperation* operation, std::uint64_t flags,
                                 StreamHandle stream) {
  return Memcpy3dBatchAsyncV1(1, operation, nullptr, flags, stream);
}

}  // namespace gpushared::drop_in
