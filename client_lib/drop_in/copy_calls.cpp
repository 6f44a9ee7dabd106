// SPDX-License-Identifier: Apache-2.0
// Copies in one, two and three dimensions between host memory, device memory and arrays. An invalid
// device address is an error of the call and never reaches the stream.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/device_attributes.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/program_memory.h"

namespace gpushared::drop_in {
namespace {

enum class HostWaits : bool { kNo, kYes };

// One side of a copy: its first byte and the distances between rows and between slices.
struct Side {
  bool is_device = false;
  bool is_array = false;  // Inside an array whose bounds have already been checked.
  std::uint64_t address = 0;
  std::size_t pitch_bytes = 0;
  std::size_t slice_bytes = 0;
};
struct Extent {
  std::size_t width_bytes = 0;
  std::size_t height = 1;
  std::size_t depth = 1;

  bool is_flat() const { return height == 1 && depth == 1; }
};

// Bounds of the addresses that a program can map.
constexpr std::uint64_t kHostAddressLeast = 65536;  // Default of vm.mmap_min_addr.
constexpr std::uint64_t kHostAddressEnd = std::uint64_t{1} << 47;

void* HostPointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }
std::uint64_t GetAddress(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

// Product and sum of untrusted sizes; no value on overflow.
std::optional<std::size_t> Product(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}
std::optional<std::size_t> Sum(std::optional<std::size_t> a, std::optional<std::size_t> b) {
  std::size_t sum = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &sum)) return std::nullopt;
  return sum;
}

// Returns the bytes from the first to the last one accessed.
std::optional<std::size_t> SpanBytes(const Side& side, const Extent& extent) {
  if (extent.is_flat()) return extent.width_bytes;
  return Sum(Sum(Product(extent.depth - 1, side.slice_bytes),
                 Product(extent.height - 1, side.pitch_bytes)),
             extent.width_bytes);
}

bool IsPinned(Session& session, const Side& side) {
  if (side.is_device || !session.addresses().has_had_host()) return false;
  const std::optional<Block> block = session.addresses().Find(side.address);
  return block && block->kind == BlockKind::kHost;
}

Code CheckSide(Session& session, const Side& side, const Extent& extent) {
  const std::optional<std::size_t> bytes = SpanBytes(side, extent);
  if (!bytes) return Code::kInvalidValue;
  if (extent.height > 1 && side.pitch_bytes < extent.width_bytes) return Code::kInvalidValue;
  if (!extent.is_flat() && !side.is_array) {
    // `most` is 0 if the device does not report the attribute.
    const auto most = AttributeFor(session.client().device(), Attribute::kPitchBytesMax);
    if (most != 0 && side.pitch_bytes > static_cast<std::size_t>(most)) {
      return Reject(Code::kInvalidValue, "copy rejected: pitch of " +
                                             std::to_string(side.pitch_bytes) +
                                             " bytes, the device allows " + std::to_string(most));
    }
  }
  if (side.is_array) return Code::kSuccess;
  if (!side.is_device) {
    const bool can_be_memory = side.address >= kHostAddressLeast &&
                               side.address < kHostAddressEnd &&
                               *bytes <= kHostAddressEnd - side.address &&
                               !session.virtual_memory().IsReserved(side.address);
    if (!can_be_memory) return Code::kInvalidValue;
    // An address in the range of device memory may be freed device memory, or host memory that the
    // program has since mapped there. The program may have unmapped registered memory.
    const bool is_doubtful = session.addresses().IsAmongDevice(side.address) ||
                             session.addresses().IsRegistered(side.address);
    if (!is_doubtful || IsMapped(side.address, *bytes)) return Code::kSuccess;
    return Reject(Code::kInvalidValue, "copy rejected: address " + std::to_string(side.address) +
                                           " is neither memory of the device nor of the program; "
                                           "it may have been freed or unmapped");
  }
  if (session.addresses().IsDevice(side.address, *bytes)) return Code::kSuccess;
  return Reject(Code::kInvalidValue, "copy rejected: " + std::to_string(*bytes) + " bytes at " +
                                         std::to_string(side.address) +
                                         " are not inside one allocation");
}

Status CopyPlane(const Stream& stream, const Side& to, const Side& from, const Extent& extent) {
  const CopyShape shape{.width_bytes = extent.width_bytes,
                        .height = extent.height,
                        .destination_pitch_bytes = to.pitch_bytes,
                        .source_pitch_bytes = from.pitch_bytes};
  const bool is_flat = extent.height == 1;
  if (to.is_device && from.is_device) {
    return is_flat ? stream.CopyOnDevice(to.address, from.address, extent.width_bytes)
                   : stream.CopyOnDevice2d(to.address, from.address, shape);
  }
  if (to.is_device) {
    const void* const source = HostPointer(from.address);
    return is_flat ? stream.CopyToDevice(to.address, source, extent.width_bytes)
                   : stream.CopyToDevice2d(to.address, source, shape);
  }
  void* const destination = HostPointer(to.address);
  if (from.is_device) {
    return is_flat ? stream.CopyToHost(destination, from.address, extent.width_bytes)
                   : stream.CopyToHost2d(destination, from.address, shape);
  }
  // A copy from host to host runs here, once all earlier work of the stream has ended.
  if (Status status = stream.Synchronize(); !status.ok()) return status;
  for (std::size_t row = 0; row < extent.height; ++row) {
    std::memmove(HostPointer(to.address + row * to.pitch_bytes),
                 HostPointer(from.address + row * from.pitch_bytes), extent.width_bytes);
  }
  return Status::Ok();
}

// CUDA also accepts page-locked host memory where it expects device memory. Treats such a side as a
// host side, because its bytes are those of the program.
void FindPinned(Session& session, Side& side) {
  if (!side.is_device || side.is_array || !session.addresses().has_had_host()) return;
  const std::optional<Block> block = session.addresses().Find(side.address);
  if (block && block->is_reached_on_demand()) side.is_device = false;
}

// For mirrored memory the copy uses the device's bytes, even for a host address.
void FindMirror(Session& session, Side& side, bool is_written, MirrorUse& use) {
  if (side.is_array || !session.mirrored().has_any()) return;
  std::shared_ptr<Mirror> mirror = session.addresses().MirrorAt(side.address);
  if (mirror == nullptr) return;
  const std::optional<Block> block = session.addresses().Find(side.address);
  if (!block || !block->OnDevice(side.address)) return;
  side.is_device = true;
  side.address = *block->OnDevice(side.address);
  use.named.push_back({std::move(mirror), is_written});
}

Status CopySlices(const Stream& stream, Side to, Side from, const Extent& extent) {
  Status status;
  for (std::size_t slice = 0; slice < extent.depth && status.ok(); ++slice) {
    status = CopyPlane(stream, to, from, extent);
    to.address += to.slice_bytes;
    from.address += from.slice_bytes;
  }
  return status;
}

Code Copy(StreamHandle handle, Side to, Side from, const Extent& extent, HostWaits waits) {
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.ok()) return stream.code();
  if (extent.width_bytes == 0 || extent.height == 0 || extent.depth == 0) return Code::kSuccess;
  Session& session = current->session();
  MirrorUse use;
  for (Side* side : {&to, &from}) {
    FindPinned(session, *side);
    FindMirror(session, *side, side == &to, use);
    const Code code = side->is_device ? Code::kSuccess : session.TakeBack(side->address);
    if (code != Code::kSuccess) return code;
    if (const Code wrong = CheckSide(session, *side, extent); wrong != Code::kSuccess) return wrong;
  }
  const auto submit = [&](const Stream& queue) {
    Status status =
        extent.is_flat() ? CopyPlane(queue, to, from, extent) : CopySlices(queue, to, from, extent);
    if (!status.ok()) return status;
    // For page-locked memory the client library starts the copy and does not wait for its end.
    const bool must_wait = waits == HostWaits::kYes && use.is_none() &&
                           (IsPinned(session, to) || IsPinned(session, from));
    return must_wait ? queue.Synchronize() : Status::Ok();
  };
  if (waits == HostWaits::kYes) return stream.RunAndWait(submit, use);
  const Code code = stream.Run(submit, use);
  if (IsPinned(session, to)) session.mirrored().RecordCopyToHost();
  return code;
}

// Returns whether any stream may currently be in a capture; otherwise no graph node is built.
bool AnyCaptures() { return Driver::Get().captures.Any(); }

// Turns the copy of a captured stream into a node. No value if the stream is not captured or does
// not exist.
std::optional<Code> Capture(StreamHandle handle, const Copy3d& copy) {
  if (!AnyCaptures()) [[likely]]
    return std::nullopt;
  const Current current;
  const StreamChoice stream(current, handle);
  if (!stream.is_captured()) return std::nullopt;
  return stream.Capture(CopyWork{copy});
}

// As Capture, for one row. Nodes support rows of memory only, not of arrays.
std::optional<Code> CaptureFlat(StreamHandle stream, const Side& to, const Side& from,
                                std::size_t bytes) {
  if (!AnyCaptures() || to.is_array || from.is_array) return std::nullopt;
  const auto copied = [&](const Side& side) -> CopySide {
    return {.type = side.is_device ? MemoryType::kDevice : MemoryType::kHost,
            .host = side.is_device ? nullptr : HostPointer(side.address),
            .device = side.is_device ? side.address : 0,
            .pitch = bytes,
            .height = 1};
  };
  return Capture(stream, {.source = copied(from), .destination = copied(to), .width_bytes = bytes});
}

Code CopyFlat(StreamHandle stream, const Side& to, const Side& from, std::size_t bytes,
              HostWaits waits) {
  if (const auto captured = CaptureFlat(stream, to, from, bytes)) return *captured;
  return Copy(stream, to, from, {.width_bytes = bytes}, waits);
}

Side DeviceSide(DevicePointer address) { return {.is_device = true, .address = address}; }
Side HostSide(const void* address) { return {.is_device = false, .address = GetAddress(address)}; }

// Returns a side for a pointer of either kind; an address outside all device memory is a host
// address.
Side AnySide(DevicePointer address) {
  const Current current;
  if (!current.ok()) return HostSide(nullptr);
  const std::optional<Block> block = current->session().addresses().Find(address);
  // The memory of a graph's allocation node has its address before it exists, so `addresses` may
  // not contain it yet.
  const bool is_device =
      block ? block->is_device() : current->session().graph_memories()->Holds(address);
  return {.is_device = is_device, .address = address};
}

Code CopyAny(DevicePointer destination, DevicePointer source, std::size_t bytes,
             StreamHandle stream, HostWaits waits) {
  return CopyFlat(stream, AnySide(destination), AnySide(source), bytes, waits);
}

// Returns whether [first, first + count) is within an axis.
bool IsWithin(std::size_t first, std::size_t count, std::size_t all) {
  return count <= all && first <= all - count;
}

// Checks that the copy covers whole texels inside the array.
Code MakeArraySide(const CopySide& request, const Extent& extent, Side& side) {
  const Current current;
  if (!current.ok()) return current.code();
  const std::shared_ptr<CudaArray> array = FindArray(current, request.array);
  if (array == nullptr) return Code::kInvalidHandle;
  const std::size_t texel_bytes = array->texel.bytes();
  const bool is_whole = request.x_bytes % texel_bytes == 0 && extent.width_bytes % texel_bytes == 0;
  if (!is_whole || !IsWithin(request.x_bytes, extent.width_bytes, array->row_bytes()) ||
      !IsWithin(request.y, extent.height, array->Extent(1)) ||
      !IsWithin(request.z, extent.depth, array->Extent(2))) {
    return Reject(Code::kInvalidValue, "copy rejected: its texels are not inside the array");
  }
  side = {.is_device = true,
          .is_array = true,
          .address = array->memory.address() + request.z * array->slice_bytes() +
                     request.y * array->row_bytes() + request.x_bytes,
          .pitch_bytes = array->row_bytes(),
          .slice_bytes = array->slice_bytes()};
  return Code::kSuccess;
}

// Returns a side for bytes of an array in row-major order.
Code MakeFlatSide(ArrayHandle handle, std::size_t offset, std::size_t bytes, Side& side) {
  const Current current;
  if (!current.ok()) return current.code();
  const std::shared_ptr<CudaArray> array = FindArray(current, handle);
  if (array == nullptr) return Code::kInvalidHandle;
  if (!IsWithin(offset, bytes, array->bytes())) {
    return Reject(Code::kInvalidValue, "copy rejected: its bytes are not inside the array");
  }
  side = {.is_device = true, .is_array = true, .address = array->memory.address() + offset};
  return Code::kSuccess;
}

Code MakeSide(const CopySide& request, const Extent& extent, Side& side) {
  if (request.type == MemoryType::kArray) return MakeArraySide(request, extent, side);
  side = request.type == MemoryType::kHost     ? HostSide(request.host)
         : request.type == MemoryType::kDevice ? DeviceSide(request.device)
                                               : AnySide(request.device);
  side.pitch_bytes = request.pitch == 0 ? extent.width_bytes : request.pitch;
  const auto slice =
      Product(side.pitch_bytes, request.height == 0 ? extent.height : request.height);
  if (!slice) return Code::kInvalidValue;
  side.slice_bytes = *slice;
  const auto offset =
      Sum(Sum(Product(request.z, *slice), Product(request.y, side.pitch_bytes)), request.x_bytes);
  const auto address = Sum(side.address, offset);
  if (!address) return Code::kInvalidValue;
  side.address = *address;
  return Code::kSuccess;
}

Code CopyFromArray(StreamHandle stream, const Side& to, ArrayHandle from, std::size_t offset,
                   std::size_t bytes, HostWaits waits) {
  Side side;
  const Code code = MakeFlatSide(from, offset, bytes, side);
  return code == Code::kSuccess ? CopyFlat(stream, to, side, bytes, waits) : code;
}

Code CopyToArray(StreamHandle stream, ArrayHandle to, std::size_t offset, const Side& from,
                 std::size_t bytes, HostWaits waits) {
  Side side;
  const Code code = MakeFlatSide(to, offset, bytes, side);
  return code == Code::kSuccess ? CopyFlat(stream, side, from, bytes, waits) : code;
}

// Rules of cuda.h: a nonzero pitch must be at least `x_bytes` plus the width, and a nonzero height
// at least `y` plus the number of rows. MakeArraySide checks arrays. Like NVIDIA's driver, allows
// `x_bytes` to exceed the pitch and counts only the remainder, because Dr.Jit addresses parts of
// its staging memory in this way.
Code CheckRows(const Copy3d& copy, const CopySide& side, const char* name) {
  if (side.type < MemoryType::kHost || side.type > MemoryType::kUnified) {
    return Reject(Code::kInvalidValue, std::string("copy rejected: the ") + name +
                                           " has memory type " +
                                           std::to_string(static_cast<int>(side.type)) +
                                           ", allowed: 1 to 4 (CUmemorytype)");
  }
  if (side.type == MemoryType::kArray || copy.width_bytes == 0 || copy.height == 0 ||
      copy.depth == 0) {
    return Code::kSuccess;
  }
  const auto row_end = Sum(side.pitch == 0 ? 0 : side.x_bytes % side.pitch, copy.width_bytes);
  const auto last_row = Sum(side.y, copy.height);
  const bool has_rows = side.pitch == 0 || (row_end && *row_end <= side.pitch);
  const bool has_slices = side.height == 0 || (last_row && *last_row <= side.height);
  if (has_rows && has_slices) return Code::kSuccess;
  return Reject(Code::kInvalidValue, std::string("copy rejected: the ") + name + "'s pitch of " +
                                         std::to_string(side.pitch) + " bytes and height of " +
                                         std::to_string(side.height) + " rows cannot hold " +
                                         std::to_string(copy.height) + " rows of " +
                                         std::to_string(copy.width_bytes) +
                                         " bytes at an offset of " + std::to_string(side.y) +
                                         " rows and " + std::to_string(side.x_bytes) + " bytes");
}

Copy3d GetBox(const Copy2d& plane) {
  return {.source = {.x_bytes = plane.source_x_bytes,
                     .y = plane.source_y,
                     .type = plane.source_type,
                     .host = const_cast<void*>(plane.source_host),
                     .device = plane.source_device,
                     .array = plane.source_array,
                     .pitch = plane.source_pitch},
          .destination = {.x_bytes = plane.destination_x_bytes,
                          .y = plane.destination_y,
                          .type = plane.destination_type,
                          .host = plane.destination_host,
                          .device = plane.destination_device,
                          .array = plane.destination_array,
                          .pitch = plane.destination_pitch},
          .width_bytes = plane.width_bytes,
          .height = plane.height};
}

Code CopyBox(const Copy3d* copy, StreamHandle stream, HostWaits waits) {
  if (AnyNull(copy)) return Code::kInvalidValue;
  if (const Code code = CheckShape(*copy); code != Code::kSuccess) return code;
  if (const auto captured = Capture(stream, *copy)) return *captured;
  const Extent extent{
      .width_bytes = copy->width_bytes, .height = copy->height, .depth = copy->depth};
  Side to, from;
  Code code = MakeSide(copy->destination, extent, to);
  if (code == Code::kSuccess) code = MakeSide(copy->source, extent, from);
  return code == Code::kSuccess ? Copy(stream, to, from, extent, waits) : code;
}

}  // namespace

Code CheckShape(const Copy3d& copy) {
  if (copy.source.level != 0 || copy.destination.level != 0) {
    return Reject(Code::kInvalidValue, "copy rejected: srcLOD and dstLOD must be 0");
  }
  const Code code = CheckRows(copy, copy.source, "source");
  return code == Code::kSuccess ? CheckRows(copy, copy.destination, "destination") : code;
}

Code Replay(const CopyWork& work, StreamHandle stream) { return Memcpy3dAsync(&work.copy, stream); }

Code Memcpy(DevicePointer destination, DevicePointer source, std::size_t bytes) {
  return CopyAny(destination, source, bytes, nullptr, HostWaits::kYes);
}
Code MemcpyAsync(DevicePointer destination, DevicePointer source, std::size_t bytes,
                 StreamHandle stream) {
  return CopyAny(destination, source, bytes, stream, HostWaits::kNo);
}
Code MemcpyHtoD(DevicePointer destination, const void* source, std::size_t bytes) {
  return CopyFlat(nullptr, DeviceSide(destination), HostSide(source), bytes, HostWaits::kYes);
}
Code MemcpyHtoDAsync(DevicePointer destination, const void* source, std::size_t bytes,
                     StreamHandle stream) {
  return CopyFlat(stream, DeviceSide(destination), HostSide(source), bytes, HostWaits::kNo);
}
Code MemcpyDtoH(void* destination, DevicePointer source, std::size_t bytes) {
  return CopyFlat(nullptr, HostSide(destination), DeviceSide(source), bytes, HostWaits::kYes);
}
Code MemcpyDtoHAsync(void* destination, DevicePointer source, std::size_t bytes,
                     StreamHandle stream) {
  return CopyFlat(stream, HostSide(destination), DeviceSide(source), bytes, HostWaits::kNo);
}
Code MemcpyDtoD(DevicePointer destination, DevicePointer source, std::size_t bytes) {
  return CopyFlat(nullptr, DeviceSide(destination), DeviceSide(source), bytes, HostWaits::kNo);
}
Code MemcpyDtoDAsync(DevicePointer destination, DevicePointer source, std::size_t bytes,
                     StreamHandle stream) {
  return CopyFlat(stream, DeviceSide(destination), DeviceSide(source), bytes, HostWaits::kNo);
}
Code MemcpyAtoA(ArrayHandle destination, std::size_t destination_offset, ArrayHandle source,
                std::size_t source_offset, std::size_t bytes) {
  Side from;
  const Code code = MakeFlatSide(source, source_offset, bytes, from);
  if (code != Code::kSuccess) return code;
  return CopyToArray(nullptr, destination, destination_offset, from, bytes, HostWaits::kNo);
}
Code MemcpyAtoD(DevicePointer destination, ArrayHandle source, std::size_t source_offset,
                std::size_t bytes) {
  return CopyFromArray(nullptr, DeviceSide(destination), source, source_offset, bytes,
                       HostWaits::kNo);
}
Code MemcpyDtoA(ArrayHandle destination, std::size_t destination_offset, DevicePointer source,
                std::size_t bytes) {
  return CopyToArray(nullptr, destination, destination_offset, DeviceSide(source), bytes,
                     HostWaits::kNo);
}
Code MemcpyAtoH(void* destination, ArrayHandle source, std::size_t source_offset,
                std::size_t bytes) {
  return CopyFromArray(nullptr, HostSide(destination), source, source_offset, bytes,
                       HostWaits::kYes);
}
Code MemcpyAtoHAsync(void* destination, ArrayHandle source, std::size_t source_offset,
                     std::size_t bytes, StreamHandle stream) {
  return CopyFromArray(stream, HostSide(destination), source, source_offset, bytes, HostWaits::kNo);
}
Code MemcpyHtoA(ArrayHandle destination, std::size_t destination_offset, const void* source,
                std::size_t bytes) {
  return CopyToArray(nullptr, destination, destination_offset, HostSide(source), bytes,
                     HostWaits::kYes);
}
Code MemcpyHtoAAsync(ArrayHandle destination, std::size_t destination_offset, const void* source,
                     std::size_t bytes, StreamHandle stream) {
  return CopyToArray(stream, destination, destination_offset, HostSide(source), bytes,
                     HostWaits::kNo);
}

Code Memcpy2d(const Copy2d* copy) {
  if (AnyNull(copy)) return Code::kInvalidValue;
  const Copy3d box = GetBox(*copy);
  return CopyBox(&box, nullptr, HostWaits::kYes);
}
Code Memcpy2dAsync(const Copy2d* copy, StreamHandle stream) {
  if (AnyNull(copy)) return Code::kInvalidValue;
  const Copy3d box = GetBox(*copy);
  return CopyBox(&box, stream, HostWaits::kNo);
}
Code Memcpy3d(const Copy3d* copy) { return CopyBox(copy, nullptr, HostWaits::kYes); }
Code Memcpy3dAsync(const Copy3d* copy, StreamHandle stream) {
  return CopyBox(copy, stream, HostWaits::kNo);
}

}  // namespace gpushared::drop_in
