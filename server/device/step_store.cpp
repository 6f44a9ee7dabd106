// SPDX-License-Identifier: Apache-2.0
#include "server/device/step_store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "gpushared/check.h"

#include "server/device/memory_budget.h"

namespace gpushared::device {

namespace {

off_t OffsetOf(StepStore::Slot slot) { return static_cast<off_t>(slot * kMapStepBytes); }

// A file without a name, which nobody else can open.
Result<int> OpenUnnamed(const std::string& folder) {
  if (folder.empty()) {
    const int memory = ::memfd_create("gpushared moved out", MFD_CLOEXEC);
    if (memory >= 0) return memory;
    return Status(StatusCode::kInternal,
                  std::string("store refused: no memory file: ") + std::strerror(errno));
  }
  constexpr mode_t kOwnerOnly = 0600;
  int file = ::open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, kOwnerOnly);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    // A file system that has no such files.
    std::string name = folder + "/gpushared-XXXXXX";
    file = ::mkostemp(name.data(), O_CLOEXEC);
    if (file >= 0) ::unlink(name.c_str());
  }
  if (file >= 0) return file;
  return Status(StatusCode::kInvalidArgument,
                "store refused: no file can be made in '" + folder + "': " + std::strerror(errno));
}

// All of `bytes`, at `offset`; false with errno.
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

}  // namespace

Result<std::shared_ptr<StepStore>> StepStore::Create(const StepStoreOptions& options) {
  const Result<int> fd = OpenUnnamed(options.folder);
  if (!fd.ok()) return fd.status();
  return std::shared_ptr<StepStore>(new StepStore(options, *fd));
}

StepStore::StepStore(const StepStoreOptions& options, int fd)
    : total_bytes_(options.bytes), folder_(options.folder), fd_(fd) {}

StepStore::~StepStore() { ::close(fd_); }

std::uint64_t StepStore::reserved_bytes() const {
  const MutexLock lock(mutex_);
  return reserved_bytes_;
}

std::uint64_t StepStore::used_bytes() const {
  const MutexLock lock(mutex_);
  return reserved_bytes_ - free_.size() * kMapStepBytes;
}

Status StepStore::Reserve(std::uint64_t bytes) {
  Check(bytes % kMapStepBytes == 0, "whole steps are reserved");
  const MutexLock lock(mutex_);
  const std::uint64_t left = total_bytes_ - reserved_bytes_;
  if (bytes > left) {
    return {StatusCode::kOutOfMemory, Mebibytes(bytes) +
                                          " asked of the host memory for device "
                                          "memory beyond the guarantees, " +
                                          Mebibytes(left) + " of " + Mebibytes(total_bytes_) +
                                          " are left"};
  }
  for (std::uint64_t done = 0; done < bytes; done += kMapStepBytes) {
    const bool is_new = unbacked_.empty();
    const Slot slot = is_new ? slots_ : unbacked_.back();
    if (Status backed = Back(slot); !backed.ok()) {
      for (; done > 0; done -= kMapStepBytes) {
        Empty(free_.back());
        unbacked_.push_back(free_.back());
        free_.pop_back();
      }
      return backed;
    }
    if (is_new) {
      ++slots_;
    } else {
      unbacked_.pop_back();
    }
    free_.push_back(slot);
  }
  reserved_bytes_ += bytes;
  return {};
}

Status StepStore::Back(Slot slot) const {
  // A memory file has pages as they are written; its limit is all that can be said ahead.
  if (IsInMemory()) return {};
  if (::fallocate(fd_, 0, OffsetOf(slot), kMapStepBytes) == 0) return {};
  return {StatusCode::kOutOfMemory, "the file for device memory beyond the guarantees in '" +
                                        folder_ + "' cannot grow by " + Mebibytes(kMapStepBytes) +
                                        ": " + std::strerror(errno)};
}

void StepStore::GiveBack(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  Check(bytes <= reserved_bytes_ && bytes <= free_.size() * kMapStepBytes,
        "slots are emptied before they are given back");
  reserved_bytes_ -= bytes;
  for (; bytes > 0; bytes -= kMapStepBytes) {
    const Slot slot = free_.back();
    free_.pop_back();
    ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, OffsetOf(slot), kMapStepBytes);
    unbacked_.push_back(slot);
  }
}

Result<StepStore::Slot> StepStore::Put(std::span<const std::byte> step) {
  Check(step.size() == kMapStepBytes, "a slot holds one step");
  Slot slot = 0;
  {
    const MutexLock lock(mutex_);
    Check(!free_.empty(), "a step is put where room was reserved for it");
    slot = free_.back();
    free_.pop_back();
  }
  if (Transfer(::pwrite, fd_, step.data(), step.size(), OffsetOf(slot))) return slot;
  const int error = errno;
  Drop(slot);
  return Status(StatusCode::kInternal,
                "device memory cannot be moved out to " +
                    (IsInMemory() ? std::string("host memory") : "a file in '" + folder_ + "'") +
                    ": " + std::strerror(error));
}

Status StepStore::Read(Slot slot, std::span<std::byte> step) const {
  Check(step.size() == kMapStepBytes, "a slot holds one step");
  if (Transfer(::pread, fd_, step.data(), step.size(), OffsetOf(slot))) return {};
  return {StatusCode::kInternal,
          "device memory cannot be read back from " +
              (IsInMemory() ? std::string("host memory") : "a file in '" + folder_ + "'") + ": " +
              std::strerror(errno)};
}

void StepStore::Drop(Slot slot) {
  Empty(slot);
  const MutexLock lock(mutex_);
  free_.push_back(slot);
}

void StepStore::Empty(Slot slot) const {
  const off_t offset = OffsetOf(slot);
  // Host memory goes back to the machine; blocks of a file stay reserved.
  const int mode = IsInMemory() ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
                                : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
  if (::fallocate(fd_, mode, offset, kMapStepBytes) == 0) return;
  const std::vector<std::byte> zeros(kMapStepBytes);
  // What fails here is never read: a slot is read after it was written as a whole.
  (void)Transfer(::pwrite, fd_, zeros.data(), zeros.size(), offset);
}

}  // namespace gpushared::device
