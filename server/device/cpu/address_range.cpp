// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/address_range.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/check.h"

namespace gpushared::device {
namespace {

// A part of the user space, which has 47 address bits. The lowest addresses are left to programs
// that are loaded at fixed addresses.
constexpr std::uint64_t kAddressesBegin = std::uint64_t{1} << 33;
constexpr std::uint64_t kAddressesEnd = std::uint64_t{1} << 45;

void* Pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

std::span<std::byte> StepAt(std::uint64_t address) {
  return {static_cast<std::byte*>(Pointer(address)), kMapPageBytes};
}

// Drops the pages: Linux reclaims the memory, and the next access reads zeros.
void DropPages(std::uint64_t address, std::uint64_t bytes) {
  if (bytes == 0) return;
  // Aborts on failure, because otherwise the next client could read the data.
  Check(madvise(Pointer(address), bytes, MADV_DONTNEED) == 0, "pages of our own mapping drop");
}

// Keeps clients' data out of core dumps and child processes. Old kernels may not support this
// advice; the error is ignored.
void KeepPrivate(std::uint64_t address, std::uint64_t bytes) {
  madvise(Pointer(address), bytes, MADV_DONTDUMP);
  madvise(Pointer(address), bytes, MADV_DONTFORK);
}

Status NoMapping(std::uint64_t bytes) {
  return {StatusCode::kOutOfMemory, "mapping rejected: the system has no memory mapping left for " +
                                        Mebibytes(bytes) + " (" + std::strerror(errno) + ")"};
}

Status MakeAccessible(std::uint64_t address, std::uint64_t bytes) {
  if (bytes == 0 || mprotect(Pointer(address), bytes, PROT_READ | PROT_WRITE) == 0) return {};
  return NoMapping(bytes);
}

// Returns a naturally aligned free address range; `bytes` is a power of two.
//
// Clients see these addresses, so they are drawn at random from the whole address space: Linux
// would choose addresses next to this process's libraries, and would thus reveal the location of
// these to an attacker.
Result<std::uint64_t> TakeAddresses(std::uint64_t bytes) {
  constexpr int kTriesMax = 4096;
  const std::uint64_t places = (kAddressesEnd - kAddressesBegin) / bytes;
  for (int tries = 0; tries < kTriesMax && places > 0; ++tries) {
    std::uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) continue;
    const std::uint64_t base = kAddressesBegin + drawn % places * bytes;
    void* const found =
        mmap(Pointer(base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == Pointer(base)) return base;
    // Linux picks another place if this one is taken, reserved by a sanitizer, or above the
    // process's address limit.
    if (found != MAP_FAILED) munmap(found, bytes);
  }
  return Status(StatusCode::kOutOfMemory, "address range rejected: the system has no " +
                                              Mebibytes(bytes) + " of address space (" +
                                              std::strerror(errno) + ")");
}

// Takes the range at `base`, which a client brought from another process.
Result<std::uint64_t> TakeAddressesAt(std::uint64_t base, std::uint64_t bytes) {
  if (base % bytes != 0 || base < kAddressesBegin || base > kAddressesEnd - bytes) {
    return Status(StatusCode::kInvalidArgument, "address range rejected: " + Mebibytes(bytes) +
                                                    " cannot begin at " + std::to_string(base));
  }
  void* const found =
      mmap(Pointer(base), bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (found == Pointer(base)) return base;
  const std::string why = std::strerror(errno);
  if (found != MAP_FAILED) munmap(found, bytes);
  return Status(StatusCode::kUnavailable,
                "address range rejected: its addresses are in use here (" + why + ")");
}

Status FileFailed(const char* what) {
  return {StatusCode::kInternal, std::string(what) + " failed: " + std::strerror(errno)};
}

Status WriteTo(int file, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FileFailed("copying a client's memory");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status ReadFrom(int file, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return FileFailed("reading a client's memory");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

// Writes the parts of `bytes` that are not zero.
Status WriteSparse(int file, std::span<const std::byte> bytes, std::uint64_t offset) {
  static constexpr std::array<std::byte, kPageBytes> kZeros{};
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kPageBytes) {
    if (std::memcmp(bytes.data() + at, kZeros.data(), kPageBytes) != 0) continue;
    if (Status written = WriteTo(file, bytes.subspan(begin, at - begin), offset + begin);
        !written.ok()) {
      return written;
    }
    begin = at + kPageBytes;
  }
  return WriteTo(file, bytes.subspan(begin), offset + begin);
}

}  // namespace

Result<std::unique_ptr<AddressRange>> AddressRange::Reserve(std::uint64_t quota_bytes,
                                                            std::shared_ptr<MemoryBudget> budget,
                                                            std::uint64_t left_free_bytes,
                                                            std::shared_ptr<SwapStore> store,
                                                            std::uint64_t wanted_base) {
  // A swappable range may be larger than the device's memory.
  const std::uint64_t quota =
      store == nullptr ? std::min(quota_bytes, budget->total_bytes()) : quota_bytes;
  const std::uint64_t bytes = std::bit_ceil(std::max(
      kRangeBytesMin, RoundUp(quota, kMapPageBytes) + SpareAddresses(quota) + kModuleAreaBytes));
  const Result<std::uint64_t> taken =
      wanted_base == 0 ? TakeAddresses(bytes) : TakeAddressesAt(wanted_base, bytes);
  if (!taken.ok()) return taken.status();
  const std::uint64_t base = *taken;
  KeepPrivate(base, bytes);
  // Huge pages of 2 MiB cause 512 times fewer faults on first use and have three times the fill
  // bandwidth afterwards. Module variables are counted in small pages. Swappable memory uses small
  // pages as well, because work on it must be preemptible at once and the first touch of a page
  // cannot be interrupted.
  const bool may_move = store != nullptr;
  madvise(Pointer(base), bytes - kModuleAreaBytes, may_move ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  return std::unique_ptr<AddressRange>(
      new AddressRange(base, bytes, quota, std::move(budget), left_free_bytes, std::move(store)));
}

AddressRange::AddressRange(std::uint64_t base, std::uint64_t bytes, std::uint64_t quota_bytes,
                           std::shared_ptr<MemoryBudget> budget, std::uint64_t left_free_bytes,
                           std::shared_ptr<SwapStore> store)
    : base_(base),
      bytes_(bytes),
      quota_bytes_(quota_bytes),
      store_(std::move(store)),
      account_(quota_bytes, std::move(budget), left_free_bytes),
      non_resident_(store_ == nullptr ? 0 : quota_bytes) {}

AddressRange::~AddressRange() {
  for (const auto& [step, slot] : slots_) store_->Drop(slot);
  munmap(Pointer(base_), bytes_);
  if (chunk_file_ >= 0) close(chunk_file_);
}

Result<std::uint64_t> AddressRange::Resize(std::uint64_t mapped_bytes) {
  const MutexLock lock(mutex_);
  if (mapped_bytes > account_.quota_bytes()) {
    return Status(StatusCode::kOutOfMemory, "mapping rejected: " + Mebibytes(mapped_bytes) +
                                                " asked, the quota is " +
                                                Mebibytes(account_.quota_bytes()));
  }
  const std::uint64_t before = this->mapped_bytes();
  const std::uint64_t after = RoundUp(mapped_bytes, kMapPageBytes);
  if (after < before) {
    Shrink(before, after);
    return after;
  }
  if (Status taken = account_.Take(after - before, "mapping"); !taken.ok()) return taken;
  // Drops the pages again, because work that accessed returned memory, against the contract, may
  // have written to them.
  if (before < accessible_bytes_) {
    DropPages(base_ + before, std::min(after, accessible_bytes_) - before);
  }
  if (after > accessible_bytes_) {
    if (Status made = MakeAccessible(base_ + accessible_bytes_, after - accessible_bytes_);
        !made.ok()) {
      account_.Return(after - before);
      return made;
    }
    accessible_bytes_ = after;
  }
  mapped_bytes_.store(after, std::memory_order_release);
  return after;
}

void AddressRange::Shrink(std::uint64_t before, std::uint64_t after) {
  // The bound is stored before the pages are dropped, so that no new work starts on them.
  mapped_bytes_.store(after, std::memory_order_release);
  std::uint64_t resident = before - after;
  while (!slots_.empty() && slots_.rbegin()->first * kMapPageBytes >= after) {
    store_->Drop(slots_.rbegin()->second);
    ForgetSlot(slots_.rbegin()->first);
    account_.ReturnSwappedOut(kMapPageBytes);
    resident -= kMapPageBytes;
  }
  DropPages(base_ + after, before - after);
  account_.Return(resident);
}

// ---- swapping

void AddressRange::ForgetSlot(std::uint32_t step) {
  slots_.erase(step);
  non_resident_.Set(step, false);
}

Status AddressRange::PutPage(std::uint32_t step) {
  const Result<SwapStore::Slot> slot = store_->Take(StepAt(base_ + step * kMapPageBytes));
  if (!slot.ok()) return slot.status();
  slots_[step] = *slot;
  non_resident_.Set(step, true);
  account_.SwapOut(kMapPageBytes);
  return {};
}

Status AddressRange::FetchPage(std::uint32_t step) {
  if (Status taken = account_.SwapIn(kMapPageBytes); !taken.ok()) return taken;
  const std::uint64_t address = base_ + step * kMapPageBytes;
  if (Status returned = store_->Return(slots_.at(step), StepAt(address)); !returned.ok()) {
    // A failed read may have left bytes in the page.
    DropPages(address, kMapPageBytes);
    account_.SwapOut(kMapPageBytes);
    return returned;
  }
  ForgetSlot(step);
  return {};
}

Status AddressRange::SwapPageOut(std::uint64_t offset) {
  const MutexLock lock(mutex_);
  Check(store_ != nullptr, "pages are swapped only with a store");
  const auto step = static_cast<std::uint32_t>(offset / kMapPageBytes);
  // Nothing to swap if the client has freed the page in the meantime.
  if (offset >= mapped_bytes() || slots_.contains(step)) return {};
  return PutPage(step);
}

Status AddressRange::SwapPageIn(std::uint64_t offset) {
  const MutexLock lock(mutex_);
  const auto step = static_cast<std::uint32_t>(offset / kMapPageBytes);
  return slots_.contains(step) ? FetchPage(step) : Status();
}

SpaceUse AddressRange::use() {
  const MutexLock lock(mutex_);
  return {.mapped_bytes = mapped_bytes(),
          .resident_bytes = resident_bytes(),
          .pinned_bytes = account_.used_bytes() - mapped_bytes()};
}

// ---- modules

Result<AddressRange::Block> AddressRange::TakeModuleBlock(std::uint64_t bytes,
                                                          std::uint64_t code_bytes) {
  const MutexLock lock(mutex_);
  if (Status taken = account_.Take(code_bytes, "module"); !taken.ok()) return taken;
  Result<Block> block = bytes == 0 ? Result<Block>(Block{}) : TakeBlock(bytes);
  if (!block) account_.Return(code_bytes);
  return block;
}

Result<AddressRange::Block> AddressRange::TakeBlock(std::uint64_t bytes) {
  // First fit suffices, because a client has few modules. Freed blocks are reused.
  std::uint64_t address = module_base();
  const std::uint64_t rounded = bytes > kModuleAreaBytes ? bytes : RoundUp(bytes, kPageBytes);
  for (const auto& [taken, taken_bytes] : module_blocks_) {
    if (taken - address >= rounded) break;
    address = taken + taken_bytes;
  }
  if (rounded > base_ + bytes_ - address) {
    return Status(StatusCode::kOutOfMemory, "module rejected: its variables take " +
                                                Mebibytes(bytes) +
                                                ", a client's modules "
                                                "may take " +
                                                Mebibytes(kModuleAreaBytes) + " together");
  }
  return MakeBlock(address, rounded);
}

Result<AddressRange::Block> AddressRange::MakeBlock(std::uint64_t address, std::uint64_t rounded) {
  if (Status taken = account_.Take(rounded, "module"); !taken.ok()) return taken;
  if (Status made = MakeAccessible(address, rounded); !made.ok()) {
    account_.Return(rounded);
    return made;
  }
  DropPages(address, rounded);
  module_blocks_[address] = rounded;
  pieces_.Add({.base = address, .bytes = rounded});
  return Block{.address = address, .bytes = rounded};
}

Result<AddressRange::Block> AddressRange::TakeModuleBlockAt(std::uint64_t address,
                                                            std::uint64_t bytes,
                                                            std::uint64_t code_bytes) {
  const MutexLock lock(mutex_);
  const std::uint64_t rounded = bytes > kModuleAreaBytes ? bytes : RoundUp(bytes, kPageBytes);
  const std::uint64_t offset = address - module_base();  // Wraps if the address is below.
  bool is_free = address % kPageBytes == 0 && offset <= kModuleAreaBytes &&
                 rounded <= kModuleAreaBytes - offset;
  for (const auto& [taken, taken_bytes] : module_blocks_) {
    is_free = is_free && (taken + taken_bytes <= address || address + rounded <= taken);
  }
  if (!is_free) {
    return Status(StatusCode::kInvalidArgument,
                  "module rejected: its variables cannot be at " + std::to_string(address));
  }
  if (Status taken = account_.Take(code_bytes, "module"); !taken.ok()) return taken;
  Result<Block> block = MakeBlock(address, rounded);
  if (!block) account_.Return(code_bytes);
  return block;
}

// ---- moving

bool AddressRange::IsBlock(const MemoryPiece& piece) const {
  const auto found = module_blocks_.find(piece.base);
  return found != module_blocks_.end() && found->second == piece.bytes;
}

Status AddressRange::CheckPart(const MemoryPiece& part) const {
  const bool is_whole = part.base % kMapPageBytes == 0 && part.bytes % kMapPageBytes == 0;
  if ((is_whole && mapped().Contains(part.base, part.bytes)) || IsBlock(part)) return {};
  return {StatusCode::kInvalidArgument, "memory rejected: the client has none at this place"};
}

Status AddressRange::Save(const MemoryPiece& part, int file) {
  const MutexLock lock(mutex_);
  if (Status wrong = CheckPart(part); !wrong.ok()) return wrong;
  if (IsBlock(part)) {
    const auto* const bytes = static_cast<const std::byte*>(Pointer(part.base));
    return WriteTo(file, std::span(bytes, part.bytes), part.base - base_);
  }
  std::vector<std::byte> absent;
  for (std::uint64_t at = part.base; at < part.base + part.bytes; at += kMapPageBytes) {
    const std::uint64_t offset = at - base_;
    std::span<const std::byte> page = StepAt(at);
    const auto slot = slots_.find(static_cast<std::uint32_t>(offset / kMapPageBytes));
    if (slot != slots_.end()) {
      absent.resize(kMapPageBytes);
      if (Status read = store_->Read(slot->second, absent); !read.ok()) return read;
      page = absent;
    }
    if (Status written = WriteSparse(file, page, offset); !written.ok()) return written;
  }
  return {};
}

Status AddressRange::Load(const MemoryPiece& part, int file) {
  const MutexLock lock(mutex_);
  if (Status wrong = CheckPart(part); !wrong.ok()) return wrong;
  const std::uint64_t begin = part.base - base_, end = begin + part.bytes;
  for (std::uint64_t at = begin; at < end;) {
    const off_t data = lseek(file, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return {};  // No data up to the end of the file.
    if (data < 0) return FileFailed("reading a client's memory");
    const off_t hole = lseek(file, data, SEEK_HOLE);
    if (hole < 0) return FileFailed("reading a client's memory");
    at = static_cast<std::uint64_t>(data);
    if (at >= end) return {};
    const std::uint64_t bytes = std::min(end, static_cast<std::uint64_t>(hole)) - at;
    auto* const to = static_cast<std::byte*>(Pointer(base_ + at));
    if (Status read = ReadFrom(file, std::span(to, bytes), at); !read.ok()) return read;
    at += bytes;
  }
  return {};
}

Result<AddressRange::ChunkPlace> AddressRange::TakeChunk(std::uint64_t bytes) {
  if (store_ != nullptr) return NoChunksWhereMemorySwaps();
  const MutexLock lock(mutex_);
  if (Status taken = account_.Take(bytes, "memory"); !taken.ok()) return taken;
  if (chunk_file_ < 0) chunk_file_ = memfd_create("gpushared chunks", MFD_CLOEXEC);
  const std::uint64_t offset = chunk_file_bytes_;
  if (chunk_file_ < 0 || ftruncate(chunk_file_, static_cast<off_t>(offset + bytes)) != 0) {
    const std::string why = std::strerror(errno);
    account_.Return(bytes);
    return Status(StatusCode::kOutOfMemory, "memory rejected: the system has no file of " +
                                                Mebibytes(offset + bytes) + " (" + why + ")");
  }
  chunk_file_bytes_ += bytes;
  return ChunkPlace{.offset = offset, .bytes = bytes};
}

void AddressRange::ReturnChunk(const ChunkPlace& chunk) {
  const MutexLock lock(mutex_);
  const int punched = fallocate(chunk_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(chunk.offset), static_cast<off_t>(chunk.bytes));
  // Aborts on failure, because the file would retain memory that is not charged to any client.
  Check(punched == 0, "a part of our own file is punched out");
  account_.Return(chunk.bytes);
}

Status AddressRange::MapChunk(const ChunkPlace& chunk, std::uint64_t address) {
  const MutexLock lock(mutex_);
  void* const mapped = mmap(Pointer(address), chunk.bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, chunk_file_, static_cast<off_t>(chunk.offset));
  if (mapped == MAP_FAILED) return NoMapping(chunk.bytes);
  KeepPrivate(address, chunk.bytes);
  pieces_.Add({.base = address, .bytes = chunk.bytes});
  return {};
}

Status AddressRange::Unmap(std::uint64_t address, std::uint64_t bytes) {
  void* const left = mmap(Pointer(address), bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (left == MAP_FAILED) {
    return {StatusCode::kInternal, std::string("unmapping failed: ") + std::strerror(errno)};
  }
  KeepPrivate(address, bytes);
  return {};
}

void AddressRange::ReturnModuleBlock(const Block& block, std::uint64_t code_bytes) {
  const MutexLock lock(mutex_);
  account_.Return(code_bytes);
  if (block.bytes == 0) return;
  Check(module_blocks_.erase(block.address) == 1, "a module block is returned once");
  pieces_.Remove(block.address);
  DropPages(block.address, block.bytes);
  account_.Return(block.bytes);
}

}  // namespace gpushared::device
