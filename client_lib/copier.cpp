// SPDX-License-Identifier: Apache-2.0
#include "client_lib/copier.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "client_lib/streaming_copy.h"

namespace gpushared::client {

namespace {

constexpr std::size_t kWireMax = std::numeric_limits<std::uint32_t>::max();

void CopyRows(std::byte* to, std::size_t to_pitch_bytes, const std::byte* from,
              std::size_t from_pitch_bytes, std::size_t width_bytes, std::size_t height) {
  if (to_pitch_bytes == width_bytes && from_pitch_bytes == width_bytes) {
    std::memcpy(to, from, width_bytes * height);
    return;
  }
  for (std::size_t row = 0; row < height; ++row) {
    std::memcpy(to + row * to_pitch_bytes, from + row * from_pitch_bytes, width_bytes);
  }
}

Status NotInGraph() {
  return Status(StatusCode::kInvalidArgument,
                "recording rejected: a graph copies to and from memory of Client::AllocateHost, "
                "which the server shares, and not ordinary host memory");
}

}  // namespace

Status Copier::ToDevice(DeviceAddress destination, const std::byte* source,
                        const CopyShape& shape) {
  // A copy to the device only reads the source. The cast is needed because Rectangle serves both
  // directions.
  const Rectangle whole = {.host = const_cast<std::byte*>(source),
                           .host_pitch_bytes = shape.source_pitch_bytes,
                           .device = destination,
                           .device_pitch_bytes = shape.destination_pitch_bytes,
                           .width_bytes = shape.width_bytes,
                           .height = shape.height};
  if (const std::optional<StagingPlace> place = InPlace(whole)) {
    return SubmitCopy(ipc::Op::kCopyToDevice, *place, whole.host_pitch_bytes, whole).status();
  }
  if (stream_->recorder() != nullptr) return NotInGraph();
  return ForEachPiece(whole, [this](const Rectangle& piece) { return StageToDevice(piece); });
}

Status Copier::ToHost(std::byte* destination, DeviceAddress source, const CopyShape& shape) {
  const Rectangle whole = {.host = destination,
                           .host_pitch_bytes = shape.destination_pitch_bytes,
                           .device = source,
                           .device_pitch_bytes = shape.source_pitch_bytes,
                           .width_bytes = shape.width_bytes,
                           .height = shape.height};
  if (const std::optional<StagingPlace> place = InPlace(whole)) {
    return SubmitCopy(ipc::Op::kCopyToHost, *place, whole.host_pitch_bytes, whole).status();
  }
  if (stream_->recorder() != nullptr) return NotInGraph();
  is_streamed_ = whole.width_bytes * whole.height >= kStreamedBytes;
  Status status =
      ForEachPiece(whole, [this](const Rectangle& piece) { return StageToHost(piece); });
  while (status.ok() && !in_flight_.empty()) status = FinishOldest();
  // After a failure the device may still write to the remaining blocks.
  for (const InFlight& piece : in_flight_) {
    session_.staging_buffers().Retire(piece.block.data, {{stream_->number(), piece.sequence}});
  }
  return status;
}

template <typename Stage>
Status Copier::ForEachPiece(Rectangle whole, Stage stage) {
  if (whole.host_pitch_bytes == whole.width_bytes &&
      whole.device_pitch_bytes == whole.width_bytes) {
    // If the rows are contiguous, they form a single row.
    whole.width_bytes *= whole.height;
    whole.host_pitch_bytes = whole.device_pitch_bytes = whole.width_bytes;
    whole.height = 1;
  }
  const std::size_t rows_max = std::max<std::size_t>(kPieceBytes / whole.width_bytes, 1);
  for (std::size_t row = 0; row < whole.height; row += rows_max) {
    Rectangle piece = whole;
    piece.height = std::min(rows_max, whole.height - row);
    const std::size_t row_bytes = whole.width_bytes;
    for (std::size_t at = 0; at < row_bytes; at += kPieceBytes) {
      piece.host = whole.host + row * whole.host_pitch_bytes + at;
      piece.device = whole.device + row * whole.device_pitch_bytes + at;
      piece.width_bytes = std::min(kPieceBytes, row_bytes - at);
      if (Status status = stage(piece); !status.ok()) return status;
    }
  }
  return Status::Ok();
}

Result<std::uint64_t> Copier::SubmitCopy(ipc::Op op, StagingPlace place,
                                         std::size_t staging_pitch_bytes, const Rectangle& piece) {
  return session_.Submit(
      stream_,
      ipc::CopyRecord{.header = {.op = static_cast<std::uint8_t>(op)},
                      .staging_buffer = place.staging_buffer,
                      .device_address = piece.device,
                      .device_pitch_bytes = piece.device_pitch_bytes,
                      .staging_offset = place.offset,
                      .staging_pitch_bytes = static_cast<std::uint32_t>(staging_pitch_bytes),
                      .width_bytes = static_cast<std::uint32_t>(piece.width_bytes),
                      .height = static_cast<std::uint32_t>(piece.height)});
}

std::optional<StagingPlace> Copier::InPlace(const Rectangle& rectangle) const {
  if (rectangle.width_bytes > kWireMax || rectangle.height > kWireMax ||
      rectangle.host_pitch_bytes > kWireMax) {
    return {};
  }
  // Cannot overflow, because both factors fit into 32 bits.
  const std::size_t bytes =
      (rectangle.height - 1) * rectangle.host_pitch_bytes + rectangle.width_bytes;
  return session_.staging_buffers().Find(rectangle.host, bytes);
}

Result<StagingBlock> Copier::AllocateStaging(std::size_t bytes) {
  for (;;) {
    Result<std::optional<StagingBlock>> block =
        session_.staging_buffers().TryAllocateStaging(bytes);
    if (block.ok() && *block) return **block;
    // A failed allocation is an error only if this copy has no blocks in flight that it can reuse.
    if (!block.ok() && in_flight_.empty()) return block.status();
    // Waits for blocks of this copy first, because these are not on the list of retired blocks.
    Status status =
        in_flight_.empty() ? session_.staging_buffers().WaitForOldest() : FinishOldest();
    if (!status.ok()) return status;
  }
}

Status Copier::StageToDevice(const Rectangle& piece) {
  const Result<StagingBlock> block = AllocateStaging(piece.width_bytes * piece.height);
  if (!block.ok()) return block.status();
  CopyRows(block->data, piece.width_bytes, piece.host, piece.host_pitch_bytes, piece.width_bytes,
           piece.height);
  const Result<std::uint64_t> sequence =
      SubmitCopy(ipc::Op::kCopyToDevice, block->place, piece.width_bytes, piece);
  if (!sequence.ok()) {
    session_.staging_buffers().Free(block->data);
    return sequence.status();
  }
  session_.staging_buffers().Retire(block->data, {{stream_->number(), *sequence}});
  return Status::Ok();
}

Status Copier::StageToHost(const Rectangle& piece) {
  if (in_flight_.size() >= kPiecesInFlight) {
    if (Status status = FinishOldest(); !status.ok()) return status;
  }
  const Result<StagingBlock> block = AllocateStaging(piece.width_bytes * piece.height);
  if (!block.ok()) return block.status();
  const Result<std::uint64_t> sequence =
      SubmitCopy(ipc::Op::kCopyToHost, block->place, piece.width_bytes, piece);
  if (!sequence.ok()) {
    session_.staging_buffers().Free(block->data);
    return sequence.status();
  }
  in_flight_.push_back({.block = *block, .piece = piece, .sequence = *sequence});
  return Status::Ok();
}

Status Copier::FinishOldest() {
  const InFlight oldest = in_flight_.front();
  // On failure the block remains in the list, because the device may still write to it.
  if (Status status = session_.Await(*stream_, oldest.sequence); !status.ok()) return status;
  in_flight_.pop_front();
  const Rectangle& piece = oldest.piece;
  if (is_streamed_ && piece.height == 1) {
    StreamingCopy(piece.host, oldest.block.data, piece.width_bytes);
  } else {
    CopyRows(piece.host, piece.host_pitch_bytes, oldest.block.data, piece.width_bytes,
             piece.width_bytes, piece.height);
  }
  session_.staging_buffers().Free(oldest.block.data);
  return Status::Ok();
}

}  // namespace gpushared::client
