// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_COPIER_H_
#define GPUSHARED_CLIENT_LIB_COPIER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "gpushared/client.h"
#include "gpushared/status.h"

#include "client_lib/session.h"

namespace gpushared::client {

// One copy between host and device: in place if a staging buffer contains the host memory,
// otherwise in pieces through staging memory, several at a time.
//
// Confined to the calling thread; exists for one call.
class Copier {
 public:
  // Size of a piece: large enough to hide the cost of a command, small enough for the pieces in
  // flight to stay in a core's cache and for the host and device sides of a copy to overlap early.
  static constexpr std::size_t kPieceBytes = std::size_t{256} * 1024;
  // Limit of concurrent pieces of a copy to the host.
  static constexpr std::size_t kPiecesInFlight = 8;
  // Copies to the host of at least this size bypass the caches, which would keep little of such a
  // copy. On a processor with 32 MiB of cache, bypassing was faster from this size on, and memcpy
  // was faster up to half of this size.
  static constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;

  Copier(Session& session, const std::shared_ptr<StreamRecord>& stream)
      : session_(session), stream_(stream) {}

  // Copies in one direction. The shapes have been checked, are not empty, and have pitches of at
  // least their width.
  Status ToDevice(DeviceAddress destination, const std::byte* source, const CopyShape& shape);
  Status ToHost(std::byte* destination, DeviceAddress source, const CopyShape& shape);

 private:
  // A rectangle of bytes, as it is laid out in host memory and in device memory.
  struct Rectangle {
    std::byte* host = nullptr;
    std::size_t host_pitch_bytes = 0;
    DeviceAddress device = 0;
    std::size_t device_pitch_bytes = 0;
    std::size_t width_bytes = 0;
    std::size_t height = 1;
  };
  struct InFlight {
    StagingBlock block;
    Rectangle piece;
    std::uint64_t sequence;
  };

  // Calls `stage` in order for pieces of at most kPieceBytes.
  template <typename Stage>
  Status ForEachPiece(Rectangle whole, Stage stage);
  Result<std::uint64_t> SubmitCopy(ipc::Op op, StagingPlace place, std::size_t staging_pitch_bytes,
                                   const Rectangle& piece);
  // Returns the location of the host memory, or no value if no staging buffer contains it or if the
  // copy is too large for one command.
  std::optional<StagingPlace> InPlace(const Rectangle& rectangle) const;
  Result<StagingBlock> AllocateStaging(std::size_t bytes);
  Status StageToDevice(const Rectangle& piece);
  Status StageToHost(const Rectangle& piece);
  Status FinishOldest();

  Session& session_;
  const std::shared_ptr<StreamRecord>& stream_;
  std::deque<InFlight> in_flight_;  // Pieces of ToHost whose bytes have not arrived; oldest first.
  bool is_streamed_ = false;        // Whether ToHost bypasses the caches.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_COPIER_H_
