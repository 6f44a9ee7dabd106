// SPDX-License-Identifier: Apache-2.0
// Fills of device memory with elements of one, two or four bytes.
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

// Fills host memory on the calling thread, after the work on the stream.
Status FillHost(const Stream& stream, std::uint64_t address, FillElement element,
                const FillShape& shape) {
  if (Status status = stream.Synchronize(); !status.ok()) return status;
  auto* row = reinterpret_cast<std::byte*>(address);
  for (std::size_t y = 0; y < shape.height; ++y, row += shape.pitch_bytes) {
    for (std::size_t x = 0; x < shape.width_elements; ++x) {
      std::memcpy(row + x * element.element_bytes, &element.value, element.element_bytes);
    }
  }
  return Status::Ok();
}

// Returns whether page-locked memory contains the whole range.
bool IsPinned(const AddressBook& addresses, std::uint64_t address, std::size_t bytes) {
  if (!addresses.has_had_host()) return false;
  const std::optional<Block> block = addresses.Find(address);
  return block && block->is_reached_on_demand() && block->Holds(address, bytes);
}

// Returns the device memory that contains [address, address + bytes); no value if there is none.
std::optional<Block> DeviceMemoryAt(const Current& current, DevicePointer address,
                                    std::size_t bytes) {
  const AddressBook& addresses = current->session().addresses();
  return addresses.IsDevice(address, bytes) ? addresses.Find(address) : std::nullopt;
}

Code Fill(DevicePointer destination, FillElement element, FillShape shape, StreamHandle handle) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  const FillNodeParameters given{.destination = destination,
                                 .pitch_bytes = shape.pitch_bytes,
                                 .value = element.value,
                                 .element_bytes = element.element_bytes,
                                 .width_elements = shape.width_elements,
                                 .height = shape.height};
  if (const Code code = CheckShape(given); code != Code::kSuccess) return code;
  if (stream.is_captured()) [[unlikely]]
    return stream.Capture(FillWork{given});
  if (shape.width_elements == 0 || shape.height == 0) return Code::kSuccess;
  const std::size_t width = shape.width_elements * element.element_bytes;
  const bool is_flat = shape.height == 1;
  if (is_flat) shape.pitch_bytes = width;
  const std::size_t bytes = (shape.height - 1) * shape.pitch_bytes + width;
  if (IsPinned(current->session().addresses(), destination, bytes)) {
    const Code code = current->session().TakeBack(destination);
    if (code != Code::kSuccess) return code;
    return stream.RunAndWait(
        [&](const Stream& queue) { return FillHost(queue, destination, element, shape); });
  }
  const std::optional<Block> block = DeviceMemoryAt(current, destination, bytes);
  if (!block) {
    return Reject(Code::kInvalidValue, "fill rejected: its bytes are not inside one allocation");
  }
  const auto fill = [&](const Stream& queue) {
    return is_flat ? queue.Fill(destination, element, shape.width_elements)
                   : queue.Fill2d(destination, element, shape);
  };
  std::shared_ptr<Mirror> mirror = current->session().addresses().MirrorAt(destination);
  // CUDA fills host memory before the call returns.
  return mirror == nullptr ? stream.Run(fill)
                           : stream.RunAndWait(fill, {.named = {{std::move(mirror)}}});
}

Code FillFlat(DevicePointer destination, FillElement element, std::size_t count,
              StreamHandle stream) {
  return Fill(destination, element, {.width_elements = count}, stream);
}

}  // namespace

// Bounds the sizes of a fill so that they can be multiplied without overflow.
Code CheckShape(const FillNodeParameters& fill) {
  const std::size_t element = fill.element_bytes;
  if (element != 1 && element != 2 && element != 4) {
    return Reject(Code::kInvalidValue, "fill rejected: elements of " + std::to_string(element) +
                                           " bytes, allowed: 1, 2 and 4");
  }
  if (fill.width_elements == 0 || fill.height == 0) return Code::kSuccess;
  const bool is_flat = fill.height == 1;
  std::size_t width = 0, rows = 0, bytes = 0;
  const bool wraps = __builtin_mul_overflow(fill.width_elements, element, &width) ||
                     __builtin_mul_overflow(fill.height - 1, fill.pitch_bytes, &rows) ||
                     __builtin_add_overflow(rows, width, &bytes);
  const bool is_aligned =
      fill.destination % element == 0 && (is_flat || fill.pitch_bytes % element == 0);
  if (!wraps && is_aligned && (is_flat || fill.pitch_bytes >= width)) return Code::kSuccess;
  return Reject(Code::kInvalidValue, "fill rejected: " + std::to_string(fill.height) + " rows of " +
                                         std::to_string(fill.width_elements) + " elements of " +
                                         std::to_string(element) + " bytes, " +
                                         std::to_string(fill.pitch_bytes) + " bytes apart, at " +
                                         std::to_string(fill.destination));
}

Code Replay(const FillWork& work, StreamHandle stream) {
  const FillNodeParameters& fill = work.fill;
  return Fill(fill.destination, {.value = fill.value, .element_bytes = fill.element_bytes},
              {.width_elements = fill.width_elements,
               .height = fill.height,
               .pitch_bytes = fill.pitch_bytes},
              stream);
}

Code MemsetD8(DevicePointer destination, unsigned char value, std::size_t count) {
  return FillFlat(destination, FillElement::U8(value), count, nullptr);
}
Code MemsetD16(DevicePointer destination, unsigned short value, std::size_t count) {
  return FillFlat(destination, FillElement::U16(value), count, nullptr);
}
Code MemsetD32(DevicePointer destination, unsigned value, std::size_t count) {
  return FillFlat(destination, FillElement::U32(value), count, nullptr);
}
Code MemsetD8Async(DevicePointer destination, unsigned char value, std::size_t count,
                   StreamHandle stream) {
  return FillFlat(destination, FillElement::U8(value), count, stream);
}
Code MemsetD16Async(DevicePointer destination, unsigned short value, std::size_t count,
                    StreamHandle stream) {
  return FillFlat(destination, FillElement::U16(value), count, stream);
}
Code MemsetD32Async(DevicePointer destination, unsigned value, std::size_t count,
                    StreamHandle stream) {
  return FillFlat(destination, FillElement::U32(value), count, stream);
}
Code MemsetD2D8Async(DevicePointer destination, std::size_t pitch, unsigned char value,
                     std::size_t width, std::size_t height, StreamHandle stream) {
  return Fill(destination, FillElement::U8(value),
              {.width_elements = width, .height = height, .pitch_bytes = pitch}, stream);
}
Code MemsetD2D16Async(DevicePointer destination, std::size_t pitch, unsigned short value,
                      std::size_t width, std::size_t height, StreamHandle stream) {
  return Fill(destination, FillElement::U16(value),
              {.width_elements = width, .height = height, .pitch_bytes = pitch}, stream);
}
Code MemsetD2D32Async(DevicePointer destination, std::size_t pitch, unsigned value,
                      std::size_t width, std::size_t height, StreamHandle stream) {
  return Fill(destination, FillElement::U32(value),
              {.width_elements = width, .height = height, .pitch_bytes = pitch}, stream);
}
Code MemsetD2D8(DevicePointer destination, std::size_t pitch, unsigned char value,
                std::size_t width, std::size_t height) {
  return MemsetD2D8Async(destination, pitch, value, width, height, nullptr);
}
Code MemsetD2D16(DevicePointer destination, std::size_t pitch, unsigned short value,
                 std::size_t width, std::size_t height) {
  return MemsetD2D16Async(destination, pitch, value, width, height, nullptr);
}
Code MemsetD2D32(DevicePointer destination, std::size_t pitch, unsigned value, std::size_t width,
                 std::size_t height) {
  return MemsetD2D32Async(destination, pitch, value, width, height, nullptr);
}

}  // namespace gpushared::drop_in
