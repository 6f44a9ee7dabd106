// SPDX-License-Identifier: Apache-2.0
// Copies between contexts. Contexts of one device share a session, so copies between them are
// copies on the device. Devices cannot access each other's memory, so copies between them go
// through memory of the program.
#include <algorithm>
#include <memory>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/graph_work.h"
#include "client_lib/drop_in/log.h"
#include "client_lib/drop_in/stream_scope.h"

namespace gpushared::drop_in {
namespace {

// Size of the program's memory that a copy between devices uses.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

// Makes a context current for the duration of a scope.
class ContextScope {
 public:
  explicit ContextScope(ContextHandle context) : code_(CtxPushCurrent(context)) {}
  ~ContextScope() {
    ContextHandle popped = nullptr;
    if (code_ == Code::kSuccess) static_cast<void>(CtxPopCurrent(&popped));
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  Code code() const { return code_; }

 private:
  const StreamScope without_stream_{nullptr};  // Hides the stream that the current call names.
  const Code code_;
};

Code FindContext(ContextHandle handle, std::shared_ptr<Context>& context) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  context = Driver::Get().contexts.Find(handle);
  return context == nullptr || context->has_ended() ? Code::kInvalidContext : Code::kSuccess;
}

Copy3d GetOrdinary(const PeerCopy3d& peer) {
  Copy3d copy = peer;
  copy.source.context = copy.destination.context = nullptr;
  return copy;
}

// Fills in default values, so that the pieces have the layout of the whole copy.
void FillIn(Copy3d& copy) {
  for (CopySide* const side : {&copy.source, &copy.destination}) {
    if (side->pitch == 0) side->pitch = copy.width_bytes;
    if (side->height == 0) side->height = copy.height;
  }
}

// A part of a copy: rows of one slice, or part of one row.
struct Piece {
  std::size_t slice = 0, row = 0, column_bytes = 0;
  std::size_t rows = 0, width_bytes = 0;
};

// Moves one side of the copy to the beginning of the piece. For memory, converts slices to rows and
// counts all rows from the beginning of the memory, because the given height applies to the whole
// copy and not to a piece in a later slice. Arrays have separate slices. kInvalidValue on overflow.
Code Place(CopySide& side, const Piece& piece) {
  side.x_bytes += piece.column_bytes;
  if (__builtin_add_overflow(side.z, piece.slice, &side.z) ||
      __builtin_add_overflow(side.y, piece.row, &side.y)) {
    return Code::kInvalidValue;
  }
  if (side.type == MemoryType::kArray) return Code::kSuccess;
  std::size_t rows = 0;
  if (__builtin_mul_overflow(side.z, side.height, &rows) ||
      __builtin_add_overflow(side.y, rows, &side.y)) {
    return Code::kInvalidValue;
  }
  side.z = side.height = 0;
  return Code::kSuccess;
}

// Copies one piece through `room`, which is large enough.
Code CopyThrough(std::vector<char>& room, const Copy3d& whole, const Piece& piece, ContextHandle to,
                 ContextHandle from) {
  const CopySide between{
      .type = MemoryType::kHost, .host = room.data(), .pitch = piece.width_bytes};
  Copy3d read{.source = whole.source,
              .destination = between,
              .width_bytes = piece.width_bytes,
              .height = piece.rows};
  Copy3d write = read;
  write.source = between;
  write.destination = whole.destination;
  Code code = Place(read.source, piece);
  if (code == Code::kSuccess) code = Place(write.destination, piece);
  if (code != Code::kSuccess) return code;
  {
    const ContextScope scope(from);
    if (scope.code() != Code::kSuccess) return scope.code();
    if (code = Memcpy3d(&read); code != Code::kSuccess) return code;
  }
  const ContextScope scope(to);
  return scope.code() == Code::kSuccess ? Memcpy3d(&write) : scope.code();
}

// Copies and waits for both devices.
Code CopyAcross(Copy3d copy, ContextHandle to, ContextHandle from) {
  if (copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0) return Code::kSuccess;
  if (const Code code = CheckShape(copy); code != Code::kSuccess) return code;
  FillIn(copy);
  const std::size_t width_most = std::min(copy.width_bytes, kPieceBytes);
  const std::size_t rows_most = kPieceBytes / width_most;
  std::vector<char> room(width_most * std::min(rows_most, copy.height));
  Piece piece;
  for (; piece.slice < copy.depth; ++piece.slice) {
    for (piece.row = 0; piece.row < copy.height; piece.row += piece.rows) {
      piece.rows = std::min(rows_most, copy.height - piece.row);
      for (piece.column_bytes = 0; piece.column_bytes < copy.width_bytes;
           piece.column_bytes += piece.width_bytes) {
        piece.width_bytes = std::min(width_most, copy.width_bytes - piece.column_bytes);
        const Code code = CopyThrough(room, copy, piece, to, from);
        if (code != Code::kSuccess) return code;
      }
    }
  }
  return Code::kSuccess;
}

Code CopyAcross(DevicePointer to_address, ContextHandle to, DevicePointer from_address,
                ContextHandle from, std::size_t bytes) {
  return CopyAcross({.source = {.type = MemoryType::kDevice, .device = from_address},
                     .destination = {.type = MemoryType::kDevice, .device = to_address},
                     .width_bytes = bytes},
                    to, from);
}

// Sets `is_one_device` to whether both contexts belong to the current device; the copy then stays
// on that device.
Code Compare(ContextHandle to_handle, ContextHandle from_handle, bool& is_one_device) {
  const Current current;
  if (!current.ok()) return current.code();
  std::shared_ptr<Context> to, from;
  Code code = FindContext(to_handle, to);
  if (code == Code::kSuccess) code = FindContext(from_handle, from);
  if (code != Code::kSuccess) return code;
  is_one_device = to->shared_session() == current->shared_session() &&
                  from->shared_session() == current->shared_session();
  return Code::kSuccess;
}

// Runs after all work of both contexts and before all later work, as in CUDA.
template <typename OnDevice, typename Across>
Code Serialised(ContextHandle to, ContextHandle from, const OnDevice& on_device,
                const Across& across) {
  bool is_one_device = false;
  Code code = Compare(to, from, is_one_device);
  if (code == Code::kSuccess) code = CtxSynchronizeV2(to);
  if (code == Code::kSuccess) code = CtxSynchronizeV2(from);
  if (code != Code::kSuccess) return code;
  if (!is_one_device) return across();
  code = on_device();
  return code == Code::kSuccess ? CtxSynchronize() : code;
}

// Runs in stream order only. A copy between devices has ended when the call returns.
template <typename OnDevice, typename Across>
Code InStream(ContextHandle to, ContextHandle from, StreamHandle stream, const OnDevice& on_device,
              const Across& across) {
  bool is_one_device = false;
  Code code = Compare(to, from, is_one_device);
  if (code != Code::kSuccess) return code;
  if (is_one_device) return on_device();
  code = StreamSynchronize(stream);
  return code == Code::kSuccess ? across() : code;
}

}  // namespace

// Contexts of one device can access each other's memory anyway; CUDA does not enable access between
// them.
Code CtxEnablePeerAccess(ContextHandle handle, unsigned flags) {
  if (flags != 0) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  std::shared_ptr<Context> peer;
  if (const Code code = FindContext(handle, peer); code != Code::kSuccess) return code;
  if (peer == current.shared()) return Code::kInvalidContext;
  return Reject(Code::kPeerAccessUnsupported,
                "access rejected: kernels cannot access another device's memory; use copies");
}

Code CtxDisablePeerAccess(ContextHandle handle) {
  const Current current;
  if (!current.ok()) return current.code();
  std::shared_ptr<Context> peer;
  const Code code = FindContext(handle, peer);
  return code == Code::kSuccess ? Code::kPeerAccessNotEnabled : code;
}

Code MemcpyPeer(DevicePointer destination, ContextHandle to, DevicePointer source,
                ContextHandle from, std::size_t bytes) {
  return Serialised(
      to, from, [&] { return MemcpyDtoD(destination, source, bytes); },
      [&] { return CopyAcross(destination, to, source, from, bytes); });
}

Code MemcpyPeerAsync(DevicePointer destination, ContextHandle to, DevicePointer source,
                     ContextHandle from, std::size_t bytes, StreamHandle stream) {
  return InStream(
      to, from, stream, [&] { return MemcpyDtoDAsync(destination, source, bytes, stream); },
      [&] { return CopyAcross(destination, to, source, from, bytes); });
}

Code Memcpy3dPeer(const PeerCopy3d* peer) {
  if (AnyNull(peer)) return Code::kInvalidValue;
  const Copy3d copy = GetOrdinary(*peer);
  const ContextHandle to = peer->destination.context, from = peer->source.context;
  return Serialised(
      to, from, [&] { return Memcpy3d(&copy); }, [&] { return CopyAcross(copy, to, from); });
}

Code Memcpy3dPeerAsync(const PeerCopy3d* peer, StreamHandle stream) {
  if (AnyNull(peer)) return Code::kInvalidValue;
  const Copy3d copy = GetOrdinary(*peer);
  const ContextHandle to = peer->destination.context, from = peer->source.context;
  return InStream(
      to, from, stream, [&] { return Memcpy3dAsync(&copy, stream); },
      [&] { return CopyAcross(copy, to, from); });
}

}  // namespace gpushared::drop_in
