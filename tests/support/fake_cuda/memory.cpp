// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>

namespace gpushared::testing::fake_cuda {
namespace {

using device::cuda::Access;
using device::cuda::Code;

constexpr int kGarbage = 0xA5;

void* Pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}
std::uint64_t GetAddress(const void* pointer) {
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer));
}

bool IsInaccessibleAgain(std::uint64_t address, std::uint64_t bytes) {
  return ::mmap(Pointer(address), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

// Returns the entry whose range contains `address`, or the end.
template <typename Map>
typename Map::const_iterator At(const Map& map, std::uint64_t address) {
  const auto above = map.upper_bound(address);
  return above == map.begin() ? map.end() : std::prev(above);
}

}  // namespace

void Memory::Clear() {
  for (const auto& [address, reservation] : reservations) {
    ::munmap(reservation.mapped, reservation.mapped_bytes);
  }
  for (const auto& [handle, memory] : physical) ::close(memory.fd);
  for (const int fd : spares_) ::close(fd);
  for (const auto& [address, bytes] : allocations) ::munmap(Pointer(address), bytes);
  for (const auto& [address, host] : hosts) {
    if (host.ours) ::munmap(Pointer(address), host.bytes);
  }
  reservations.clear();
  mappings.clear();
  physical.clear();
  spares_.clear();
  allocations.clear();
  hosts.clear();
  used_ = 0;
}

Code Memory::Reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* address) {
  if (alignment == 0) alignment = kGranule;
  const bool power = (alignment & (alignment - 1)) == 0;
  if (bytes == 0 || bytes % kGranule != 0 || !power || alignment < kGranule) {
    return Code::kInvalidValue;
  }
  const std::uint64_t with_slack = bytes + alignment;
  void* mapped =
      ::mmap(nullptr, with_slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return Code::kOutOfMemory;
  const std::uint64_t base = (GetAddress(mapped) + alignment - 1) / alignment * alignment;
  reservations[base] = {.bytes = bytes, .mapped = mapped, .mapped_bytes = with_slack};
  *address = base;
  return Code::kSuccess;
}

Code Memory::FreeReservation(std::uint64_t address, std::uint64_t bytes) {
  const auto found = reservations.find(address);
  if (found == reservations.end() || found->second.bytes != bytes) return Code::kInvalidValue;
  const auto mapping = mappings.lower_bound(address);
  if (mapping != mappings.end() && mapping->first < address + bytes) return Code::kInvalidValue;
  ::munmap(found->second.mapped, found->second.mapped_bytes);
  reservations.erase(found);
  return Code::kSuccess;
}

Code Memory::Create(std::uint64_t bytes, std::uint64_t* handle) {
  if (bytes == 0 || bytes % kGranule != 0) return Code::kInvalidValue;
  if (bytes > limit - used_) return Code::kOutOfMemory;
  const int fd = TakeFilled(bytes);
  if (fd < 0) return Code::kOperatingSystem;
  used_ += bytes;
  *handle = ++last_handle_;
  physical[*handle] = {.bytes = bytes, .fd = fd};
  return Code::kSuccess;
}

int Memory::TakeFilled(std::uint64_t bytes) {
  int fd = -1;
  if (bytes == kGranule && !spares_.empty()) {
    fd = spares_.back();
    spares_.pop_back();
  } else {
    fd = ::memfd_create("fake gpu memory", MFD_CLOEXEC);
    if (fd < 0) return fd;
  }
  // Huge pages need aligned addresses.
  void* const around = ::mmap(nullptr, bytes + kGranule, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* whole = MAP_FAILED;
  if (around != MAP_FAILED && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    whole = ::mmap(Pointer((GetAddress(around) + kGranule - 1) / kGranule * kGranule), bytes,
                   PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  }
  if (whole != MAP_FAILED) {
    ::madvise(whole, bytes, MADV_HUGEPAGE);  // A hint: without it the kernel uses small pages.
    std::memset(whole, kGarbage, bytes);
  } else {
    ::close(fd);
    fd = -1;
  }
  if (around != MAP_FAILED) ::munmap(around, bytes + kGranule);
  return fd;
}

void Memory::Drop(std::uint64_t handle) {
  const auto found = physical.find(handle);
  if (found->second.held || found->second.mappings > 0) return;
  used_ -= found->second.bytes;
  if (found->second.bytes == kGranule && spares_.size() < kSparesMax) {
    spares_.push_back(found->second.fd);
  } else {
    ::close(found->second.fd);
  }
  physical.erase(found);
}

Code Memory::Release(std::uint64_t handle) {
  const auto found = physical.find(handle);
  if (found == physical.end() || !found->second.held) return Code::kInvalidValue;
  found->second.held = false;
  Drop(handle);
  return Code::kSuccess;
}

bool Memory::InReservation(std::uint64_t address, std::uint64_t bytes) const {
  const auto found = At(reservations, address);
  return found != reservations.end() && address - found->first <= found->second.bytes &&
         bytes <= found->second.bytes - (address - found->first);
}

Code Memory::Map(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset,
                 std::uint64_t handle) {
  const auto found = physical.find(handle);
  if (found == physical.end() || !found->second.held) return Code::kInvalidValue;
  // Real drivers do not accept an offset yet.
  if (bytes == 0 || bytes % kGranule != 0 || address % kGranule != 0 || offset != 0 ||
      bytes > found->second.bytes || !InReservation(address, bytes)) {
    return Code::kInvalidValue;
  }
  const auto next = mappings.lower_bound(address);
  if (next != mappings.end() && next->first < address + bytes) return Code::kAlreadyMapped;
  const auto before = At(mappings, address);
  if (before != mappings.end() && before->first + before->second.bytes > address) {
    return Code::kAlreadyMapped;
  }
  if (::mmap(Pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.fd, 0) ==
      MAP_FAILED) {
    return Code::kMapFailed;
  }
  ++found->second.mappings;
  mappings[address] = {.bytes = bytes, .handle = handle};
  return Code::kSuccess;
}

Code Memory::Unmap(std::uint64_t address, std::uint64_t bytes) {
  // The range must consist of whole mappings without gaps.
  std::uint64_t end = address;
  for (auto at = mappings.find(address);
       at != mappings.end() && at->first == end && end < address + bytes; ++at) {
    end += at->second.bytes;
  }
  if (bytes == 0 || end != address + bytes) return Code::kInvalidValue;
  if (!IsInaccessibleAgain(address, bytes)) return Code::kUnmapFailed;
  while (!mappings.empty()) {
    const auto at = mappings.lower_bound(address);
    if (at == mappings.end() || at->first >= end) break;
    const std::uint64_t handle = at->second.handle;
    mappings.erase(at);
    --physical.at(handle).mappings;
    Drop(handle);
  }
  return Code::kSuccess;
}

Code Memory::SetAccess(std::uint64_t address, std::uint64_t bytes, Access access) {
  std::uint64_t end = address;
  for (auto at = mappings.find(address);
       at != mappings.end() && at->first == end && end < address + bytes; ++at) {
    end += at->second.bytes;
  }
  if (bytes == 0 || end != address + bytes) return Code::kInvalidValue;
  const int protection = access == Access::kNone   ? PROT_NONE
                         : access == Access::kRead ? PROT_READ
                                                   : PROT_READ | PROT_WRITE;
  if (::mprotect(Pointer(address), bytes, protection) != 0) return Code::kOperatingSystem;
  for (auto at = mappings.find(address); at != mappings.end() && at->first < end; ++at) {
    at->second.access = access;
  }
  return Code::kSuccess;
}

Code Memory::Allocate(std::uint64_t bytes, std::uint64_t* address) {
  if (bytes == 0) return Code::kInvalidValue;
  if (bytes > limit - used_) return Code::kOutOfMemory;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return Code::kOutOfMemory;
  std::memset(mapped, kGarbage, bytes);
  *address = GetAddress(mapped);
  allocations[*address] = bytes;
  used_ += bytes;
  return Code::kSuccess;
}

Code Memory::Free(std::uint64_t address) {
  const auto found = allocations.find(address);
  if (found == allocations.end()) return Code::kInvalidValue;
  ::munmap(Pointer(address), found->second);
  used_ -= found->second;
  allocations.erase(found);
  return Code::kSuccess;
}

Code Memory::AllocateHost(std::uint64_t bytes, void** address) {
  if (bytes == 0) return Code::kInvalidValue;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return Code::kOutOfMemory;
  hosts[GetAddress(mapped)] = {.bytes = bytes, .ours = true};
  *address = mapped;
  return Code::kSuccess;
}

Code Memory::FreeHost(void* address) {
  const auto found = hosts.find(GetAddress(address));
  if (found == hosts.end() || !found->second.ours) return Code::kInvalidValue;
  ::munmap(address, found->second.bytes);
  hosts.erase(found);
  return Code::kSuccess;
}

Code Memory::Register(void* address, std::uint64_t bytes) {
  const std::uint64_t first = GetAddress(address);
  if (address == nullptr || bytes == 0) return Code::kInvalidValue;
  const auto next = hosts.lower_bound(first);
  const auto before = At(hosts, first);
  if ((next != hosts.end() && next->first < first + bytes) ||
      (before != hosts.end() && before->first + before->second.bytes > first)) {
    return Code::kHostMemoryAlreadyRegistered;
  }
  hosts[first] = {.bytes = bytes};
  return Code::kSuccess;
}

Code Memory::Unregister(void* address) {
  const auto found = hosts.find(GetAddress(address));
  if (found == hosts.end() || found->second.ours) return Code::kHostMemoryNotRegistered;
  hosts.erase(found);
  return Code::kSuccess;
}

bool Memory::Pinned(const void* address, std::uint64_t bytes) const {
  const std::uint64_t first = GetAddress(address);
  const auto found = At(hosts, first);
  return found != hosts.end() && first - found->first < found->second.bytes &&
         bytes <= found->second.bytes - (first - found->first);
}

bool Memory::Accessible(std::uint64_t address, std::uint64_t bytes) const {
  const auto allocation = At(allocations, address);
  if (allocation != allocations.end() && address - allocation->first < allocation->second) {
    return bytes <= allocation->second - (address - allocation->first);
  }
  std::uint64_t at = address;
  for (auto mapping = At(mappings, address); mapping != mappings.end(); ++mapping) {
    const std::uint64_t end = mapping->first + mapping->second.bytes;
    if (at < mapping->first || at >= end || mapping->second.access != Access::kReadWrite) {
      return false;
    }
    if (address + bytes <= end) return true;
    at = end;
  }
  return false;
}

Memory::Piece Memory::Around(std::uint64_t address) const {
  const auto allocation = At(allocations, address);
  if (allocation != allocations.end() && address - allocation->first < allocation->second) {
    return {.base = allocation->first, .bytes = allocation->second};
  }
  for (const Piece& piece : Reachable()) {
    if (address - piece.base < piece.bytes) return piece;
  }
  return {};
}

std::vector<Memory::Piece> Memory::Reachable() const {
  std::vector<Piece> pieces;
  for (const auto& [address, mapping] : mappings) {
    if (mapping.access != Access::kReadWrite) continue;
    const bool goes_on = !pieces.empty() && !reservations.contains(address) &&
                         pieces.back().base + pieces.back().bytes == address;
    if (!goes_on) pieces.push_back({.base = address, .bytes = 0});
    pieces.back().bytes += mapping.bytes;
  }
  for (const auto& [address, bytes] : allocations) pieces.push_back({address, bytes});
  for (const auto& [address, host] : hosts) pieces.push_back({address, host.bytes});
  return pieces;
}

}  // namespace gpushared::testing::fake_cuda
