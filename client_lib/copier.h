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

// A copy between host and device on its way: in place where the host memory lies in a staging
// buffer, else in pieces through staging memory, several at a time.
//
// Confined to the calling thread; lives for one call.
class Copier {
 public:
  // One piece. It is large enough to hide the cost of a command. It is small enough for the few
  // that are under way to stay in a core's cache, and to let host and device side of a copy overlap
  // early.
  static constexpr std::size_t kPieceBytes = std::size_t{256} * 1024;
  // Pieces of a copy to the host that are under way at one time.
  static constexpr std::size_t kPiecesInFlight = 8;
  // A copy to the host of this much or more bypasses the caches, which would keep little of it.
  // From here on it was faster on a processor with 32 MiB of cache; up to half of this memcpy was.
  static constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;

  Copier(Session& session, const std::shared_ptr<StreamRecord>& stream)
      : session_(session), stream_(stream) {}

  // The shapes are checked, not empty, and their pitches are at least their width.
  Status ToDevice(DeviceAddress destination, const std::byte* source, const CopyShape& shape);
  Status ToHost(std::byte* destination, DeviceAddress source, const CopyShape& shape);

 private:
  // A rectangle on the way between host memory and the device.
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

  // Calls `stage` for pieces that fit into kPieceBytes, in order.
  template <typename Stage>
  Status ForEachPiece(Rectangle whole, Stage stage);
  Result<std::uint64_t> SubmitCopy(ipc::Op op, StagingPlace place, std::size_t staging_pitch_bytes,
                                   const Rectangle& piece);
  // Empty: not in one staging buffer, or too large for one command.
  std::optional<StagingPlace> InPlace(const Rectangle& rectangle) const;
  Result<StagingBlock> AllocateStaging(std::size_t bytes);
  Status StageToDevice(const Rectangle& piece);
  Status StageToHost(const Rectangle& piece);
  Status FinishOldest();

  Session& session_;
  const std::shared_ptr<StreamRecord>& stream_;
  std::deque<InFlight> in_flight_;  // ToHost only; oldest first.
  bool is_streamed_ = false;        // ToHost only.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_COPIER_H_
