// SPDX-License-Identifier: Apache-2.0
#include "server/device/swap_backend.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "gpushared/check.h"

#include "server/device/memory_budget.h"

namespace gpushared::device {
namespace {

// Returns the page to Linux; it reads as zeros afterwards.
void DropStep(std::byte* step) {
  // Aborts on failure, because otherwise the next client could read the data.
  Check(::madvise(step, kMapPageBytes, MADV_DONTNEED) == 0, "pages of our own mapping drop");
}

// Maps pages of a store. Pages moved by mremap keep the attributes of their old mapping.
bool MapSteps(void* at, std::uint64_t bytes, int fixed) {
  void* const mapped = ::mmap(at, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (mapped != at) return false;
  // Old kernels may not support this advice; the error is ignored.
  for (const int advice : {MADV_DONTDUMP, MADV_DONTFORK, MADV_HUGEPAGE}) {
    ::madvise(at, bytes, advice);
  }
  return true;
}

// Moves the pages of `from` to `to`, leaving `from` without pages. Returns false, without changes,
// if that fails.
bool MovePages(std::byte* from, std::byte* to) {
  constexpr int kKeepsTheSource = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  if (::mremap(from, kMapPageBytes, kMapPageBytes, kKeepsTheSource, to) == to) return true;
  // Some failures leave the destination unmapped.
  Check(MapSteps(to, kMapPageBytes, MAP_FIXED_NOREPLACE) || errno == EEXIST,
        "the place of a moved page is mapped again");
  return false;
}

// ---- in host memory

// Exchanges pages with the clients of the cpu device without copying. Pages of other origin are
// copied. A slot that was filled by a copy keeps its pages, zeroed, for the next use, because the
// first touch of new pages takes at least as long as the copy. Under memory pressure Linux reclaims
// them.
class StepsInMemory final : public SwapBackend {
 public:
  // The pages begin at `base`, inside `reserved`.
  StepsInMemory(std::span<std::byte> reserved, std::byte* base, std::uint64_t bytes)
      : reserved_(reserved), base_(base), bytes_(bytes), has_own_pages_(bytes / kMapPageBytes) {}
  ~StepsInMemory() override { ::munmap(reserved_.data(), reserved_.size()); }

  // Checks nothing, because pages are allocated when they are written; only the limit of the store
  // can be checked in advance.
  Status Back(Slot /*slot*/) override { return {}; }
  void Release(Slot /*slot*/) override {}
  void DropSpare() override {
    if (std::ranges::find(has_own_pages_, 1) == has_own_pages_.end()) return;
    Check(::madvise(base_, bytes_, MADV_DONTNEED) == 0, "pages of our own mapping drop");
    std::ranges::fill(has_own_pages_, 0);
  }
  void Empty(Slot slot) override {
    if (has_own_pages_[slot] == 0) return DropPages(slot);
    std::memset(At(slot), 0, kMapPageBytes);
    if (::madvise(At(slot), kMapPageBytes, MADV_FREE) != 0) DropPages(slot);
  }

  Status Write(Slot slot, std::span<const std::byte> step) override {
    std::memcpy(At(slot), step.data(), kMapPageBytes);
    has_own_pages_[slot] = 1;
    return {};
  }
  Status Read(Slot slot, std::span<std::byte> step) const override {
    std::memcpy(step.data(), At(slot), kMapPageBytes);
    return {};
  }
  // Copies the page if it cannot be moved: before Linux 5.7, or when the process has reached its
  // limit of mappings.
  Status Take(Slot slot, std::span<std::byte> step) override {
    if (MovePages(step.data(), At(slot))) {
      has_own_pages_[slot] = 0;
      return {};
    }
    (void)Write(slot, step);
    DropStep(step.data());
    return {};
  }
  Status Return(Slot slot, std::span<std::byte> step) override {
    // Pages that were allocated here are copied, because moving them would add another mapping to
    // the client's range.
    if (has_own_pages_[slot] == 0 && MovePages(At(slot), step.data())) {
      DropPages(slot);
    } else {
      (void)Read(slot, step);
      Empty(slot);
    }
    return {};
  }

  std::uint64_t populated_bytes() const override {
    std::vector<unsigned char> pages(bytes_ / kPageBytes);
    Check(::mincore(base_, bytes_, pages.data()) == 0, "our own mapping is there");
    return kPageBytes * static_cast<std::uint64_t>(std::ranges::count_if(
                            pages, [](auto page) { return (page & 1) != 0; }));
  }

 private:
  std::byte* At(Slot slot) const { return base_ + slot * kMapPageBytes; }
  void DropPages(Slot slot) {
    DropStep(At(slot));
    has_own_pages_[slot] = 0;
    // Pages that were moved here brought their own mapping. It is replaced by a new one, which
    // merges with its neighbours. If the process has reached its limit of mappings, the old mapping
    // remains, which is empty as well.
    MapSteps(At(slot), kMapPageBytes, MAP_FIXED);
  }

  const std::span<std::byte> reserved_;  // Owned by this object.
  std::byte* const base_;
  const std::uint64_t bytes_;
  // By slot: whether it was filled by a copy. Written by the user of the slot only.
  std::vector<std::uint8_t> has_own_pages_;
};

// ---- in a file

off_t GetOffset(SwapBackend::Slot slot) { return static_cast<off_t>(slot * kMapPageBytes); }

// Transfers `count` bytes at `offset`; returns false and sets errno on failure.
template <typename Call, typename Pointer>
bool Transfer(Call call, int fd, Pointer bytes, std::size_t count, off_t offset) {
  while (count > 0) {
    const ssize_t done = call(fd, bytes, count, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      if (done == 0) errno = EIO;
      return false;
    }
    bytes += done;
    count -= static_cast<std::size_t>(done);
    offset += done;
  }
  return true;
}

class PagesInFile final : public SwapBackend {
 public:
  PagesInFile(std::string directory, int fd) : directory_(std::move(directory)), fd_(fd) {}
  ~PagesInFile() override { ::close(fd_); }

  Status Back(Slot slot) override {
    if (::fallocate(fd_, 0, GetOffset(slot), kMapPageBytes) == 0) return {};
    return {StatusCode::kOutOfMemory, "the file for device memory beyond the guarantees in '" +
                                          directory_ + "' cannot grow by " +
                                          Mebibytes(kMapPageBytes) + ": " + std::strerror(errno)};
  }
  void Release(Slot slot) override {
    ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, GetOffset(slot), kMapPageBytes);
  }
  // Overwrites with zeros, so that the blocks on disk remain allocated.
  void Empty(Slot slot) override {
    constexpr int kZeroes = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
    if (::fallocate(fd_, kZeroes, GetOffset(slot), kMapPageBytes) == 0) return;
    const std::vector<std::byte> zeros(kMapPageBytes);
    // The result is ignored, because a slot is only read after it was written completely.
    (void)Transfer(::pwrite, fd_, zeros.data(), zeros.size(), GetOffset(slot));
  }

  Status Write(Slot slot, std::span<const std::byte> step) override {
    if (Transfer(::pwrite, fd_, step.data(), step.size(), GetOffset(slot))) return {};
    return Failed("swapped out to");
  }
  Status Read(Slot slot, std::span<std::byte> step) const override {
    if (Transfer(::pread, fd_, step.data(), step.size(), GetOffset(slot))) return {};
    return Failed("read back from");
  }
  Status Take(Slot slot, std::span<std::byte> step) override {
    if (Status written = Write(slot, step); !written.ok()) return written;
    DropStep(step.data());
    return {};
  }
  Status Return(Slot slot, std::span<std::byte> step) override {
    if (Status read = Read(slot, step); !read.ok()) return read;
    Empty(slot);
    return {};
  }

  std::uint64_t populated_bytes() const override {
    struct stat facts {};
    Check(::fstat(fd_, &facts) == 0, "our own file is there");
    // Unit of st_blocks in stat(2), independent of the disk.
    constexpr std::uint64_t kBlockBytes = 512;
    return static_cast<std::uint64_t>(facts.st_blocks) * kBlockBytes;
  }
  int fd() const override { return fd_; }

 private:
  Status Failed(const char* way) const {
    const int error = errno;
    return {StatusCode::kInternal, std::string("device memory cannot be ") + way + " a file in '" +
                                       directory_ + "': " + std::strerror(error)};
  }

  const std::string directory_;
  const int fd_;  // Owned by this object.
};

}  // namespace

Result<std::unique_ptr<SwapBackend>> SwapBackend::InMemory(std::uint64_t bytes) {
  // Reserves one more page, so that the pages can be aligned.
  const std::uint64_t reserved_bytes = bytes + kMapPageBytes;
  void* const reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return Status(StatusCode::kInternal, "store rejected: the system has no " +
                                             Mebibytes(reserved_bytes) + " of address space (" +
                                             std::strerror(errno) + ")");
  }
  auto* const begin = static_cast<std::byte*>(reserved);
  const std::uint64_t beyond = reinterpret_cast<std::uintptr_t>(reserved) % kMapPageBytes;
  std::byte* const base = beyond == 0 ? begin : begin + (kMapPageBytes - beyond);
  Check(MapSteps(base, bytes, MAP_FIXED), "addresses of our own are mapped");
  return std::unique_ptr<SwapBackend>(
      std::make_unique<StepsInMemory>(std::span(begin, reserved_bytes), base, bytes));
}

Result<std::unique_ptr<SwapBackend>> SwapBackend::InFile(const std::string& directory) {
  constexpr mode_t kOwnerOnly = 0600;
  int file = ::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, kOwnerOnly);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    // Used if the file system does not support O_TMPFILE.
    std::string name = directory + "/gpushared-XXXXXX";
    file = ::mkostemp(name.data(), O_CLOEXEC);
    if (file >= 0) ::unlink(name.c_str());
  }
  if (file < 0) {
    return Status(StatusCode::kInvalidArgument, "store rejected: no file can be made in '" +
                                                    directory + "': " + std::strerror(errno));
  }
  return std::unique_ptr<SwapBackend>(std::make_unique<PagesInFile>(directory, file));
}

}  // namespace gpushared::device
