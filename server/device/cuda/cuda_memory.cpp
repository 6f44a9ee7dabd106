// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_memory.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "server/ptx/passes/fence.h"

namespace gpushared::device::cuda {
namespace {

// Memory that clients do not get, because the driver needs it for the code of modules, for printf
// buffers and its own data, and later for local memory that it has not allocated yet. If this
// memory runs out, calls of arbitrary clients fail. How much the driver takes was not measured. On
// a small GPU or a part of one, no more than an eighth of the free memory is kept.
std::uint64_t BytesKept(std::uint64_t free, std::uint64_t untaken_local_bytes) {
  constexpr std::uint64_t kUsual = std::uint64_t{1} << 30;
  return std::min(kUsual + untaken_local_bytes, free / 8);
}

// Number of bytes that are zeroed at a time. Zeroing is invisible to the scheduler and cannot be
// preempted, so this is what the GPU writes in 100 µs: at three quarters of its memory bandwidth,
// with two transfers per clock. 256 MiB on an H200 (4.9 TB/s), 16 MiB on an L4 (0.3 TB/s).
std::uint64_t BytesZeroedAtATime(const CudaContext& context) {
  constexpr std::uint64_t kLeast = std::uint64_t{1} << 20;
  constexpr std::uint64_t kMost = std::uint64_t{256} << 20;
  // Used if the driver does not report the bandwidth; few GPUs write less than this in 100 µs.
  constexpr std::uint64_t kOtherwise = std::uint64_t{16} << 20;
  const int kilohertz = context.Attribute(DeviceAttribute::kMemoryClockKilohertz, 0);
  const int bits = context.Attribute(DeviceAttribute::kMemoryBusBits, 0);
  if (kilohertz <= 0 || bits <= 0) return kOtherwise;
  const std::uint64_t bytes_per_millisecond =
      static_cast<std::uint64_t>(kilohertz) * 2 * static_cast<std::uint64_t>(bits) / 8;
  return std::clamp(std::bit_floor(bytes_per_millisecond / 10 * 3 / 4), kLeast, kMost);
}

}  // namespace

Result<std::shared_ptr<CudaMemory>> CudaMemory::Create(std::shared_ptr<CudaContext> context,
                                                       std::uint64_t budget_bytes) {
  const Driver& driver = context->driver();
  const Status without(StatusCode::kUnsupported,
                       "GPU rejected: it has no virtual memory management (driver of CUDA " +
                           VersionText(driver.version()) + ", 10.2 is needed)");
  if (!driver.Has(Feature::kVirtualMemory)) return without;
  const Result<int> has_it =
      context->NeededAttribute(DeviceAttribute::kVirtualMemory, "virtual memory management");
  if (!has_it.ok()) return has_it.status();
  if (*has_it == 0) return without;
  AllocationProperties properties;
  properties.location.id = context->number();
  std::size_t granularity = 0;
  Status status = context->Try("asking for the mapping step", driver.MemGetAllocationGranularity,
                               &granularity, &properties, Granularity::kMinimum);
  if (!status.ok()) return status;
  const Result<std::uint64_t> free = context->FreeBytes();
  if (!free.ok()) return free.status();
  const std::uint64_t spare = *free - BytesKept(*free, context->untaken_local_bytes());
  const std::uint64_t budget = budget_bytes == 0 ? spare : std::min(budget_bytes, spare);
  const std::uint64_t zero_bytes = BytesZeroedAtATime(*context);
  std::shared_ptr<CudaMemory> memory(new CudaMemory(
      std::move(context), std::max<std::uint64_t>(kMapPageBytes, granularity), zero_bytes, budget));
  status = memory->context().Try("making a stream", driver.StreamCreateWithPriority,
                                 &memory->stream_, kStreamNonBlocking, 0);
  if (!status.ok()) return status;
  return memory;
}

CudaMemory::~CudaMemory() {
  if (stream_ == nullptr || context_->is_dead() || !context_->Bind().ok()) return;
  (void)context_->Call(context_->driver().StreamDestroy, stream_);
  if (staging_ == nullptr) return;
  (void)context_->Call(context_->driver().MemFreeHost, static_cast<void*>(staging_));
}

AllocationProperties CudaMemory::Properties() const {
  AllocationProperties properties;
  properties.location.id = context_->number();
  return properties;
}

Result<MemoryHandle> CudaMemory::TakePiece(std::uint64_t bytes) {
  const AllocationProperties properties = Properties();
  MemoryHandle handle = 0;
  Status status = context_->Try("allocating device memory", context_->driver().MemCreate, &handle,
                                bytes, &properties, 0ULL);
  if (!status.ok()) return status;
  return handle;
}

Status CudaMemory::ReleasePiece(MemoryHandle handle) {
  if (context_->is_dead()) return context_->death();
  return context_->Try("returning device memory", context_->driver().MemRelease, handle);
}

Status CudaMemory::MapPieces(std::span<Piece> pieces, std::uint64_t zeroed_before) {
  if (pieces.empty()) return {};
  std::size_t mapped = 0;
  Status status;
  while (status.ok() && mapped < pieces.size()) {
    status = BackPiece(pieces[mapped]);
    if (status.ok()) ++mapped;
  }
  if (status.ok()) status = OpenAndZero(pieces, zeroed_before);
  if (!status.ok()) (void)UnmapPieces(pieces.first(mapped));
  return status;
}

Status CudaMemory::BackPiece(Piece& piece) {
  const Result<MemoryHandle> handle = TakePiece(piece.bytes);
  if (!handle.ok()) return handle.status();
  piece.handle = *handle;
  Status status = MapOnly(piece.address, piece.bytes, piece.handle);
  if (!status.ok()) (void)ReleasePiece(piece.handle);
  return status;
}

Status CudaMemory::OpenAndZero(std::span<const Piece> pieces, std::uint64_t zeroed_before) {
  DeviceAddress zero = pieces.front().address - zeroed_before;
  for (auto piece = pieces.begin(); piece != pieces.end();) {
    const DeviceAddress begin = piece->address;
    DeviceAddress end = begin;
    // The driver enables access for whole pieces only.
    do {
      end += piece->bytes;
      ++piece;
    } while (piece != pieces.end() && end + piece->bytes - zero <= zero_bytes_);
    Status status = Open(begin, end - begin);
    if (status.ok()) status = MakeZero(zero, end - zero);
    if (!status.ok()) return status;
    zero = end;
  }
  return {};
}

Status CudaMemory::MapOnly(DeviceAddress address, std::uint64_t bytes, MemoryHandle handle) {
  return context_->Try("mapping device memory", context_->driver().MemMap, address, bytes,
                       std::size_t{0}, handle, 0ULL);
}

Status CudaMemory::Open(DeviceAddress address, std::uint64_t bytes) {
  const AccessDescription access{.location = Properties().location};
  const IdleWindow window(context_->idle_windows(), Urgency::kAwaited);
  return context_->Try("enabling access to device memory", context_->driver().MemSetAccess, address,
                       bytes, &access, std::size_t{1});
}

Status CudaMemory::Map(DeviceAddress address, std::uint64_t bytes, MemoryHandle handle) {
  Status status = MapOnly(address, bytes, handle);
  if (!status.ok()) return status;
  status = Open(address, bytes);
  if (!status.ok()) (void)Unmap(address, bytes);
  return status;
}

Status CudaMemory::MovePiece(DeviceAddress from, DeviceAddress to, std::uint64_t bytes,
                             MemoryHandle handle) {
  const IdleWindow window(context_->idle_windows(), Urgency::kAwaited);
  Status status =
      context_->Try("unmapping device memory", context_->driver().MemUnmap, from, bytes);
  if (status.ok()) status = Map(to, bytes, handle);
  if (!status.ok()) context_->GiveUp(status);
  return status;
}

Status CudaMemory::MakeZero(DeviceAddress address, std::uint64_t bytes) {
  Status status;
  // Each portion waits for the previous one, so that other work is queued after at most one of
  // them.
  for (std::uint64_t at = 0; status.ok() && at < bytes; at += zero_bytes_) {
    const MutexLock lock(using_stream_);
    const std::size_t count = std::min(zero_bytes_, bytes - at);
    status = Wait(context_->Try("zeroing device memory", context_->driver().MemsetD8Async,
                                address + at, static_cast<unsigned char>(0), count, stream_));
  }
  return status;
}

Status CudaMemory::Write(DeviceAddress address, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const MutexLock lock(using_stream_);
  return Wait(context_->Try("writing device memory", context_->driver().MemcpyHtoDAsync, address,
                            static_cast<const void*>(bytes.data()), bytes.size(), stream_));
}

Status CudaMemory::Wait(Status submitted) {
  // Waits even after a failure, because some of the work may be in flight.
  Status waited =
      context_->Try("waiting for device memory", context_->driver().StreamSynchronize, stream_);
  if (waited.ok()) return submitted;
  // Something may still write to the memory, so it can be neither used nor freed.
  context_->GiveUp(waited);
  return context_->death();
}

Status CudaMemory::Unmap(DeviceAddress address, std::uint64_t bytes) {
  if (context_->is_dead()) return context_->death();
  const IdleWindow window(context_->idle_windows(), Urgency::kAwaited);
  return context_->Try("unmapping device memory", context_->driver().MemUnmap, address, bytes);
}

Status CudaMemory::UnmapPieces(std::span<const Piece> pieces) {
  if (pieces.empty()) return {};
  const DeviceAddress begin = pieces.front().address;
  Status status = Unmap(begin, pieces.back().address + pieces.back().bytes - begin);
  // If unmapping has failed, the memory remains allocated until the range is freed.
  for (const Piece& piece : pieces) {
    Status released = ReleasePiece(piece.handle);
    if (status.ok()) status = std::move(released);
  }
  return status;
}

Result<std::unique_ptr<CudaRange>> CudaRange::Reserve(std::shared_ptr<CudaMemory> memory,
                                                      std::uint64_t quota_bytes,
                                                      Isolation isolation,
                                                      std::uint64_t left_free_bytes,
                                                      std::shared_ptr<SwapStore> store) {
  CudaContext& context = memory->context();
  // Swappable memory may be larger than the device's.
  const std::uint64_t total = memory->budget()->total_bytes();
  const std::uint64_t quota = store == nullptr ? std::min(quota_bytes, total) : quota_bytes;
  const std::uint64_t step = memory->step_bytes();
  const bool has_tail = isolation == Isolation::kContain;
  const std::uint64_t tail = has_tail ? step : 0;
  // Isolated clients get no spare addresses, because a fence of more than 4 GiB makes each access
  // slower.
  const std::uint64_t spare = isolation == Isolation::kOff ? SpareAddresses(quota) : 0;
  const std::uint64_t bytes = std::bit_ceil(
      std::max(kRangeBytesMin, RoundUp(quota, step) + tail + spare + kModuleAreaBytes));
  static_assert(ptx::kFenceMarginBytes <= kMapPageBytes && ptx::kContainTailBytes <= kMapPageBytes);
  // Large enough to contain an aligned range with a margin on both sides, wherever the driver
  // places it. Unused addresses cost nothing.
  Block reserved{.address = 0, .bytes = 2 * bytes + 2 * step};
  Status status =
      context.Try("reserving an address range", context.driver().MemAddressReserve,
                  &reserved.address, reserved.bytes, std::size_t{0}, DeviceAddress{0}, 0ULL);
  if (status.code() == StatusCode::kOutOfMemory) {
    // The address space suffices for about 128 ranges with the size of a large GPU.
    return Status(status.code(), "address range rejected: a quota of " + Mebibytes(quota) +
                                     " takes " + Mebibytes(reserved.bytes) +
                                     " of addresses, and the clients of this GPU have left fewer "
                                     "(a smaller quota takes fewer): " +
                                     status.message());
  }
  if (!status.ok()) {
    return Status(status.code(),
                  "address range of " + Mebibytes(bytes) + " rejected: " + status.message());
  }
  const DeviceAddress base = RoundUp(reserved.address + step, bytes);
  std::unique_ptr<CudaRange> range(new CudaRange(std::move(memory), reserved, base, bytes, quota,
                                                 left_free_bytes, std::move(store)));
  if (!has_tail) return range;
  CudaMemory::Piece piece{.address = base, .bytes = tail};
  status = range->memory_->MapPieces(std::span(&piece, 1));
  if (!status.ok()) {
    return Status(status.code(),
                  "address range of " + Mebibytes(bytes) +
                      " rejected: no memory to contain its kernels: " + status.message());
  }
  range->tail_ = piece;
  return range;
}

CudaRange::~CudaRange() {
  // Drops the slots even if the context is dead, because the store is independent of the driver.
  for (const auto& [step, slot] : slots_) store_->Drop(slot);
  CudaContext& context = memory_->context();
  if (context.is_dead() || !context.Bind().ok()) return;
  const IdleWindow window(context.idle_windows(), Urgency::kAwaited);
  if (!pieces_.empty()) (void)memory_->Unmap(base_, PiecesEnd());
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) {
    if (!slots_.contains(i)) (void)memory_->ReleasePiece(pieces_[i].handle);
  }
  if (stand_in_) (void)memory_->ReleasePiece(*stand_in_);
  if (tail_) (void)memory_->UnmapPieces(std::span(&*tail_, 1));
  for (const auto& [address, step] : module_steps_) {
    (void)memory_->UnmapPieces(std::span(&step.piece, 1));
  }
  for (const auto& [address, mapped] : mappings_) (void)memory_->Unmap(address, mapped);
  (void)context.Call(context.driver().MemAddressFree, reserved_.address, reserved_.bytes);
}

MemoryPiece CudaRange::mapping_area() const {
  if (tail_ || store_ != nullptr) return {};
  const DeviceAddress begin = base_ + RoundUp(quota_bytes_, memory_->step_bytes());
  return {.base = begin, .bytes = module_base() - begin};
}

Result<CudaRange::ChunkMemory> CudaRange::TakeChunk(std::uint64_t bytes) {
  if (store_ != nullptr) return NoChunksWhereMemorySwaps();
  if (bytes % memory_->step_bytes() != 0) {
    return Status(StatusCode::kUnsupported, "memory rejected: " + Mebibytes(bytes) +
                                                " asked, this GPU maps steps of " +
                                                Mebibytes(memory_->step_bytes()));
  }
  if (Status taken = account_.Take(bytes, "memory"); !taken.ok()) return taken;
  const Result<MemoryHandle> handle = memory_->TakePiece(bytes);
  if (!handle.ok()) {
    account_.Return(bytes);
    return Status(handle.status().code(), "memory rejected: " + handle.status().message());
  }
  return ChunkMemory{.handle = *handle, .bytes = bytes};
}

void CudaRange::ReturnChunk(const ChunkMemory& chunk) {
  (void)memory_->ReleasePiece(chunk.handle);
  account_.Return(chunk.bytes);
}

Status CudaRange::MapChunk(ChunkMemory& chunk, DeviceAddress address) {
  Status status = memory_->Map(address, chunk.bytes, chunk.handle);
  if (!status.ok()) return status;
  if (!chunk.is_zero) {
    if (status = memory_->MakeZero(address, chunk.bytes); !status.ok()) {
      (void)memory_->Unmap(address, chunk.bytes);
      return status;
    }
    chunk.is_zero = true;
  }
  variables_.Add({.base = address, .bytes = chunk.bytes});
  mappings_[address] = chunk.bytes;
  return {};
}

Status CudaRange::Unmap(DeviceAddress address, std::uint64_t bytes) {
  mappings_.erase(address);
  return memory_->Unmap(address, bytes);
}

Result<CudaRange::Block> CudaRange::TakeModuleBlock(std::uint64_t bytes) {
  if (bytes == 0) return Block{};
  // First fit suffices, because a client has few modules. Freed blocks are reused.
  DeviceAddress address = module_base();
  const std::uint64_t rounded = bytes > kModuleAreaBytes ? bytes : RoundUp(bytes, kPageBytes);
  for (const auto& [taken, taken_bytes] : module_blocks_) {
    if (taken - address >= rounded) break;
    address = taken + taken_bytes;
  }
  if (rounded > base_ + bytes_ - address) {
    return Status(StatusCode::kOutOfMemory,
                  "module rejected: its variables take " + Mebibytes(bytes) +
                      ", a client's modules may take " + Mebibytes(kModuleAreaBytes) + " together");
  }
  const std::uint64_t step_bytes = memory_->step_bytes();
  const DeviceAddress first = address / step_bytes * step_bytes;
  for (DeviceAddress step = first; step < address + rounded; step += step_bytes) {
    Status status = EnterStep(step);
    if (status.ok()) continue;
    while (step > first) LeaveStep(step -= step_bytes);
    return status;
  }
  module_blocks_[address] = rounded;
  return Block{.address = address, .bytes = rounded};
}

void CudaRange::ReturnModuleBlock(const Block& block) {
  if (module_blocks_.erase(block.address) == 0) return;
  const std::uint64_t step_bytes = memory_->step_bytes();
  for (DeviceAddress step = block.address / step_bytes * step_bytes;
       step < block.address + block.bytes; step += step_bytes) {
    LeaveStep(step);
  }
}

Status CudaRange::EnterStep(DeviceAddress step) {
  const auto found = module_steps_.find(step);
  if (found != module_steps_.end()) {
    ++found->second.blocks;
    return {};
  }
  CudaMemory::Piece piece{.address = step, .bytes = memory_->step_bytes()};
  if (Status taken = account_.Take(piece.bytes, "module"); !taken.ok()) return taken;
  if (Status mapped = memory_->MapPieces(std::span(&piece, 1)); !mapped.ok()) {
    account_.Return(piece.bytes);
    return {mapped.code(), "module rejected: " + mapped.message()};
  }
  module_steps_.emplace(step, Step{.piece = piece, .blocks = 1});
  return {};
}

void CudaRange::LeaveStep(DeviceAddress step) {
  const auto found = module_steps_.find(step);
  if (--found->second.blocks > 0) return;
  (void)memory_->UnmapPieces(std::span(&found->second.piece, 1));
  account_.Return(memory_->step_bytes());
  module_steps_.erase(found);
}

Result<std::uint64_t> CudaRange::Resize(std::uint64_t mapped_bytes) {
  if (mapped_bytes > account_.quota_bytes()) {
    return Status(StatusCode::kOutOfMemory, "mapping rejected: " + Mebibytes(mapped_bytes) +
                                                " asked, the quota is " +
                                                Mebibytes(account_.quota_bytes()));
  }
  const std::uint64_t after = RoundUp(mapped_bytes, memory_->step_bytes());
  const std::uint64_t before = PiecesEnd();
  Status status;
  if (after < before) status = ShrinkTo(after);
  if (after > before) status = GrowTo(after);
  const bool is_told = limits_are_right_ && PiecesEnd() == mapped().mapped_bytes;
  if (status.ok() && !is_told) status = SetMapped(PiecesEnd());
  if (!status.ok()) return status;
  return mapped().mapped_bytes;
}

Status CudaRange::SetMapped(std::uint64_t mapped_bytes) {
  limits_are_right_ = false;
  for (const DeviceAddress word : limits_) {
    if (Status status = WriteLimit(word, mapped_bytes); !status.ok()) return status;
  }
  limits_are_right_ = true;
  // Release: a thread that sees the size may use the memory.
  mapped_bytes_.store(mapped_bytes, std::memory_order_release);
  return {};
}

Status CudaRange::KeepLimit(DeviceAddress word) {
  Status status = WriteLimit(word, mapped().mapped_bytes);
  if (status.ok()) limits_.push_back(word);
  return status;
}

Status CudaRange::WriteLimit(DeviceAddress word, std::uint64_t mapped_bytes) {
  const DeviceAddress limit = base_ + mapped_bytes;
  return memory_->Write(word, std::as_bytes(std::span(&limit, 1)));
}

std::uint64_t CudaRange::PieceBytes(std::uint64_t mapped, std::uint64_t missing) const {
  if (store_ != nullptr) return memory_->step_bytes();
  const std::uint64_t most =
      std::clamp(std::bit_floor(mapped / kPiecesPerMapped), memory_->step_bytes(), kPieceBytesMax);
  return std::min(most, missing);
}

Status CudaRange::GrowTo(std::uint64_t mapped_bytes) {
  const std::uint64_t before = PiecesEnd();
  if (Status taken = account_.Take(mapped_bytes - before, "mapping"); !taken.ok()) return taken;
  // The tail now belongs to the client: stray writes in it are zeroed, and a new tail follows the
  // end.
  const std::uint64_t tail_bytes = tail_ ? tail_->bytes : 0;
  std::vector<Piece> added;
  for (std::uint64_t at = before + tail_bytes; at < mapped_bytes; at += added.back().bytes) {
    added.push_back({.address = base_ + at, .bytes = PieceBytes(at, mapped_bytes - at)});
  }
  if (tail_) added.push_back({.address = base_ + mapped_bytes, .bytes = tail_bytes});
  if (Status mapped = memory_->MapPieces(added, tail_bytes); !mapped.ok()) {
    account_.Return(mapped_bytes - before);
    return {mapped.code(), "mapping rejected: " + Mebibytes(mapped_bytes - before) +
                               " more asked: " + mapped.message()};
  }
  if (tail_) {
    pieces_.push_back(*tail_);
    tail_ = added.back();
    added.pop_back();
  }
  pieces_.insert(pieces_.end(), added.begin(), added.end());
  return {};
}

Status CudaRange::ShrinkTo(std::uint64_t mapped_bytes) {
  std::size_t kept = pieces_.size();
  while (kept > 0 && pieces_[kept - 1].address - base_ >= mapped_bytes) --kept;
  if (kept == pieces_.size()) return {};
  // The bound is stored before the memory is freed, so that no new work starts on it.
  const DeviceAddress end = pieces_[kept].address;
  if (Status status = SetMapped(end - base_); !status.ok()) return status;
  // Running kernels may use the old limit and stray up to it.
  if (launches_.load(std::memory_order_seq_cst) > 0) return SetMapped(PiecesEnd());
  const Status dropped = DropPieces(kept);
  if (tail_ && pieces_.size() == kept) {
    // Moves the tail's memory, because allocating another tail could fail.
    Status moved = memory_->MovePiece(tail_->address, end, tail_->bytes, tail_->handle);
    if (!moved.ok()) return moved;
    tail_->address = end;
  }
  if (dropped.ok()) return {};
  return {dropped.code(), "shrinking failed: " + dropped.message()};
}

Status CudaRange::DropPieces(std::size_t kept) {
  const DeviceAddress begin = pieces_[kept].address;
  // If this call fails, nothing was freed, so the next shrink tries again.
  Status status = memory_->Unmap(begin, base_ + PiecesEnd() - begin);
  if (!status.ok()) return status;
  while (pieces_.size() > kept) {
    const Piece piece = pieces_.back();
    pieces_.pop_back();
    const auto step = static_cast<std::uint32_t>(pieces_.size());
    Status returned;
    if (const auto found = slots_.find(step); found != slots_.end()) {
      store_->Drop(found->second);
      account_.ReturnSwappedOut(piece.bytes);
      returned = ForgetSlot(step);
    } else {
      returned = memory_->ReleasePiece(piece.handle);
      account_.Return(piece.bytes);
    }
    if (status.ok()) status = std::move(returned);
  }
  return status;
}

}  // namespace gpushared::device::cuda
