// SPDX-License-Identifier: Apache-2.0
// Copies between contexts. Those of one device share a session, so such a copy is one on the
// device. Devices cannot reach each other's memory: their copies go through the program's.
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

// A copy between devices takes at most so much of the program's memory.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

// Makes a context current, for its own length.
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
  const StreamScope without_stream_{nullptr};  // Whatever stream the call names.
  const Code code_;
};

Code FindContext(ContextHandle handle, std::shared_ptr<Context>& context) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  context = Driver::Get().contexts.Find(handle);
  return context == nullptr || context->has_ended() ? Code::kInvalidContext : Code::kSuccess;
}

Copy3d OrdinaryOf(const PeerCopy3d& peer) {
  Copy3d copy = peer;
  copy.source_context = copy.destination_context = nullptr;
  return copy;
}

// What a copy leaves out, so that its pieces are laid out as the whole.
void FillIn(Copy3d& copy) {
  for (std::size_t* const pitch : {&copy.source_pitch, &copy.destination_pitch}) {
    if (*pitch == 0) *pitch = copy.width_bytes;
  }
  for (std::size_t* const height : {&copy.source_height, &copy.destination_height}) {
    if (*height == 0) *height = copy.height;
  }
}

// A part of a copy: rows of one slice, or a part of one row.
struct Piece {
  std::size_t slice = 0, row = 0, column_bytes = 0;
  std::size_t rows = 0, width_bytes = 0;
};

// Rows of memory are counted from its begin: a height that is given holds all rows of a copy, and
// that of the whole holds none of a piece in a later slice. Arrays have slices of their own.
// kInvalidValue when a number overflows.
Code PlaceRows(int type, const Piece& piece, std::size_t& y, std::size_t& z, std::size_t& height) {
  std::size_t rows = 0;
  if (__builtin_add_overflow(z, piece.slice, &z) || __builtin_add_overflow(y, piece.row, &y)) {
    return Code::kInvalidValue;
  }
  if (type == kMemoryTypeArray) return Code::kSuccess;
  if (__builtin_mul_overflow(z, height, &rows) || __builtin_add_overflow(y, rows, &y)) {
    return Code::kInvalidValue;
  }
  z = height = 0;
  return Code::kSuccess;
}

// One piece through `room`, which holds it.
Code CopyThrough(std::vector<char>& room, const Copy3d& whole, const Piece& piece, ContextHandle to,
                 ContextHandle from) {
  Copy3d read = whole, write = whole;
  for (Copy3d* const side : {&read, &write}) {
    side->width_bytes = piece.width_bytes;
    side->height = piece.rows;
    side->depth = 1;
  }
  read.source_x_bytes += piece.column_bytes;
  Code code = PlaceRows(read.source_type, piece, read.source_y, read.source_z, read.source_height);
  if (code != Code::kSuccess) return code;
  read.destination_type = kMemoryTypeHost;
  read.destination_host = room.data();
  read.destination_x_bytes = read.destination_y = read.destination_z = 0;
  read.destination_pitch = piece.width_bytes;
  read.destination_height = 0;
  write.destination_x_bytes += piece.column_bytes;
  code = PlaceRows(write.destination_type, piece, write.destination_y, write.destination_z,
                   write.destination_height);
  if (code != Code::kSuccess) return code;
  write.source_type = kMemoryTypeHost;
  write.source_host = room.data();
  write.source_x_bytes = write.source_y = write.source_z = 0;
  write.source_pitch = piece.width_bytes;
  write.source_height = 0;
  {
    const ContextScope scope(from);
    if (scope.code() != Code::kSuccess) return scope.code();
    if (code = Memcpy3d(&read); code != Code::kSuccess) return code;
  }
  const ContextScope scope(to);
  return scope.code() == Code::kSuccess ? Memcpy3d(&write) : scope.code();
}

// Waits for both devices, and for the copy itself.
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
  Copy3d copy{};
  copy.source_type = copy.destination_type = kMemoryTypeDevice;
  copy.source_device = from_address;
  copy.destination_device = to_address;
  copy.width_bytes = bytes;
  copy.height = copy.depth = 1;
  return CopyAcross(copy, to, from);
}

// Whether both contexts are of the current one's device: then a copy is one on that device.
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

// As CUDA orders it: after all work of both contexts, and before all that comes.
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

// In the order of the stream alone. Between devices it has ended when the call returns.
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

// Contexts of one device reach each other's memory as it is; CUDA has no access to enable there.
Code CtxEnablePeerAccess(ContextHandle handle, unsigned flags) {
  if (flags != 0) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  std::shared_ptr<Context> peer;
  if (const Code code = FindContext(handle, peer); code != Code::kSuccess) return code;
  if (peer == current.shared()) return Code::kInvalidContext;
  return Refuse(Code::kPeerAccessUnsupported,
                "access refused: kernels cannot reach another device's memory, copies can");
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
  const Copy3d copy = OrdinaryOf(*peer);
  const ContextHandle to = peer->destination_context, from = peer->source_context;
  return Serialised(
      to, from, [&] { return Memcpy3d(&copy); }, [&] { return CopyAcross(copy, to, from); });
}

Code Memcpy3dPeerAsync(const PeerCopy3d* peer, StreamHandle stream) {
  if (AnyNull(peer)) return Code::kInvalidValue;
  const Copy3d copy = OrdinaryOf(*peer);
  const ContextHandle to = peer->destination_context, from = peer->source_context;
  return InStream(
      to, from, stream, [&] { return Memcpy3dAsync(&copy, stream); },
      [&] { return CopyAcross(copy, to, from); });
}

}  // namespace gpushared::drop_in
