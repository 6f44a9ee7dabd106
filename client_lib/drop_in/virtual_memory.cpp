// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/virtual_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gpushared/limits.h"

#include "client_lib/drop_in/address_book.h"

namespace gpushared::drop_in {

namespace {

constexpr std::size_t kChunkBytesMax = std::size_t{1} << 30;

// Returns the range that contains [address, address + bytes); null if there is none.
const std::pair<const std::uint64_t, std::size_t>* Holder(
    const std::map<std::uint64_t, std::size_t>& ranges, std::uint64_t address, std::size_t bytes) {
  const auto behind = ranges.upper_bound(address);
  if (behind == ranges.begin()) return nullptr;
  const auto& holder = *std::prev(behind);
  const std::uint64_t offset = address - holder.first;
  const bool holds = offset <= holder.second && bytes <= holder.second - offset;
  return holds ? &holder : nullptr;
}

}  // namespace

HandleTable<Allocation, AllocationHandle, HandleKind::kAllocation>& HeldAllocations() {
  static auto& table = *new HandleTable<Allocation, AllocationHandle, HandleKind::kAllocation>;
  return table;
}

Result<std::shared_ptr<Allocation>> Allocation::Make(const Client& client, int ordinal,
                                                     std::size_t bytes) {
  std::vector<DeviceChunk> chunks;
  for (std::size_t made = 0; made < bytes; made += chunks.back().size()) {
    Result<DeviceChunk> chunk = client.CreateChunk(std::min(bytes - made, kChunkBytesMax));
    if (!chunk.ok()) return chunk.status();
    chunks.push_back(std::move(*chunk));
  }
  return std::shared_ptr<Allocation>(new Allocation(std::move(chunks), ordinal, bytes));
}

AllocationHandle Allocation::Retain(const std::shared_ptr<Allocation>& allocation) {
  const MutexLock lock(allocation->mutex_);
  if (allocation->references_ == 0) {
    allocation->handle_ = HeldAllocations().Insert(allocation);
  }
  if (allocation->handle_ != nullptr) ++allocation->references_;
  return allocation->handle_;
}

bool Allocation::Release() {
  const MutexLock lock(mutex_);
  if (references_ == 0) return false;
  // The caller holds a reference to this object, so the object outlives `lock`.
  if (--references_ == 0) HeldAllocations().Remove(std::exchange(handle_, nullptr));
  return true;
}

VirtualMemory::~VirtualMemory() {
  HeldAllocations().RemoveIf([&](const Allocation& allocation) { return Has(allocation); });
}

Result<AllocationHandle> VirtualMemory::Create(int ordinal, std::size_t bytes) {
  Result<std::shared_ptr<Allocation>> made = Allocation::Make(client_, ordinal, bytes);
  if (!made.ok()) return made.status();
  const AllocationHandle handle = Allocation::Retain(*made);
  if (handle == nullptr) return Status(StatusCode::kOutOfMemory, "too many handles");
  const MutexLock lock(mutex_);
  std::erase_if(allocations_, [](const auto& it) { return it.expired(); });
  allocations_.push_back(*made);
  return handle;
}

bool VirtualMemory::Has(const Allocation& allocation) const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(allocations_,
                             [&](const auto& it) { return it.lock().get() == &allocation; });
}

Code VirtualMemory::Reserve(std::size_t bytes, std::size_t alignment, std::uint64_t wanted,
                            std::uint64_t& address) {
  const AddressArea area = client_.mapping_area();
  alignment = std::max(alignment, kMapPageBytes);
  const MutexLock lock(mutex_);
  const auto is_free = [&](std::uint64_t at) GPUSHARED_REQUIRES(mutex_) {
    const auto next = reserved_.lower_bound(at);
    if (next != reserved_.end() && next->first - at < bytes) return false;
    return next == reserved_.begin() || at - std::prev(next)->first >= std::prev(next)->second;
  };
  const auto is_in_area = [&](std::uint64_t at) {
    return at >= area.base && at - area.base <= area.bytes &&
           bytes <= area.bytes - (at - area.base);
  };
  if (wanted % alignment != 0 || !is_in_area(wanted) || !is_free(wanted)) {
    // Finds the first free range that is large enough.
    const auto aligned = [&](std::uint64_t at) {
      return (at + alignment - 1) / alignment * alignment;
    };
    wanted = aligned(area.base);
    for (const auto& [taken, taken_bytes] : reserved_) {
      if (taken >= wanted && taken - wanted >= bytes) break;
      wanted = std::max(wanted, aligned(taken + taken_bytes));
    }
    if (!is_in_area(wanted)) return Code::kOutOfMemory;
  }
  reserved_[wanted] = bytes;
  address = wanted;
  return Code::kSuccess;
}

bool VirtualMemory::IsReserved(std::uint64_t address) const {
  const AddressArea area = client_.mapping_area();
  // The difference wraps for addresses below the area. Most calls return here, without the lock.
  if (address - area.base >= area.bytes) return false;
  const MutexLock lock(mutex_);
  return Holder(reserved_, address, 1) != nullptr;
}

Code VirtualMemory::FreeReserved(std::uint64_t address, std::size_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = reserved_.find(address);
  if (found == reserved_.end() || found->second != bytes) return Code::kInvalidValue;
  const auto placed = placements_.lower_bound(address);
  if (placed != placements_.end() && placed->first - address < bytes) return Code::kInvalidValue;
  reserved_.erase(found);
  return Code::kSuccess;
}

Code VirtualMemory::Place(std::uint64_t address, const std::shared_ptr<Allocation>& allocation) {
  const std::size_t bytes = allocation->bytes();
  const MutexLock lock(mutex_);
  if (Holder(reserved_, address, bytes) == nullptr) return Code::kInvalidValue;
  const auto next = placements_.lower_bound(address);
  if (next != placements_.end() && next->first - address < bytes) return Code::kInvalidValue;
  if (next != placements_.begin()) {
    const auto& [before, placement] = *std::prev(next);
    if (address - before < placement.allocation->bytes()) return Code::kInvalidValue;
  }
  placements_[address] = {.allocation = allocation};
  return Code::kSuccess;
}

bool VirtualMemory::AreWhole(std::uint64_t address, std::size_t bytes) const {
  while (bytes > 0) {
    const auto found = placements_.find(address);
    if (found == placements_.end() || found->second.allocation->bytes() > bytes) return false;
    address += found->second.allocation->bytes();
    bytes -= found->second.allocation->bytes();
  }
  return true;
}

Status VirtualMemory::Open(std::uint64_t address, Placement& placement) {
  std::uint64_t at = address;
  for (const DeviceChunk& chunk : placement.allocation->chunks()) {
    if (Status status = client_.MapChunk(chunk, at); !status.ok()) {
      for (const DeviceChunk& mapped : placement.allocation->chunks()) {
        if (address == at) break;
        static_cast<void>(client_.UnmapChunk(address));
        address += mapped.size();
      }
      return status;
    }
    at += chunk.size();
  }
  // The block belongs to no context: it remains until it is unmapped or the session ends.
  const bool is_free = addresses_.Insert({.address = address,
                                          .bytes = placement.allocation->bytes(),
                                          .kind = BlockKind::kPlaced,
                                          .buffer_id = NextBufferId()},
                                         {});
  placement.is_accessible = true;
  if (is_free) return Status::Ok();
  static_cast<void>(Close(address, placement));
  return {StatusCode::kOutOfMemory, "this process has host memory at the device's address"};
}

Status VirtualMemory::Close(std::uint64_t address, Placement& placement) {
  addresses_.Remove(address, BlockKind::kPlaced);
  Status status = Status::Ok();
  for (const DeviceChunk& chunk : placement.allocation->chunks()) {
    if (Status closed = client_.UnmapChunk(address); !closed.ok()) status = std::move(closed);
    address += chunk.size();
  }
  placement.is_accessible = false;
  return status;
}

Code VirtualMemory::Remove(std::uint64_t address, std::size_t bytes, Status& why) {
  const MutexLock lock(mutex_);
  if (bytes == 0 || !AreWhole(address, bytes)) return Code::kInvalidValue;
  for (const std::uint64_t end = address + bytes; address != end;) {
    const auto found = placements_.find(address);
    if (found->second.is_accessible) why = Close(address, found->second);
    if (!why.ok()) return Code::kUnknown;
    address += found->second.allocation->bytes();
    placements_.erase(found);
  }
  return Code::kSuccess;
}

Code VirtualMemory::SetAccess(std::uint64_t address, std::size_t bytes, bool may_access,
                              Status& why) {
  const MutexLock lock(mutex_);
  if (bytes == 0 || !AreWhole(address, bytes)) return Code::kInvalidValue;
  for (const std::uint64_t end = address + bytes; address != end;) {
    Placement& placement = placements_.find(address)->second;
    if (placement.is_accessible != may_access) {
      why = may_access ? Open(address, placement) : Close(address, placement);
    }
    if (!why.ok()) return Code::kUnknown;
    address += placement.allocation->bytes();
  }
  return Code::kSuccess;
}

std::optional<VirtualMemory::Placement> VirtualMemory::At(std::uint64_t address) const {
  const MutexLock lock(mutex_);
  const auto behind = placements_.upper_bound(address);
  if (behind == placements_.begin()) return std::nullopt;
  const auto& [begin, placement] = *std::prev(behind);
  if (address - begin >= placement.allocation->bytes()) return std::nullopt;
  return placement;
}

}  // namespace gpushared::drop_in
