// SPDX-License-Identifier: Apache-2.0
#include "ipc/shared_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Since Linux 5.14; older C libraries do not define it.
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Since Linux 5.1; older C libraries do not define it.
#endif

namespace gpushared::ipc {
namespace {

namespace interprocess = boost::interprocess;

constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t kCopyBytes = 1u << 20;  // Size of the copy buffer.

// Adapter with the interface that mapped_region expects: a descriptor and a mode.
class MappableFd {
 public:
  MappableFd(int fd, interprocess::mode_t mode) : handle_{fd, false}, mode_(mode) {}
  interprocess::mapping_handle_t get_mapping_handle() const { return handle_; }
  interprocess::mode_t get_mode() const { return mode_; }

 private:
  interprocess::mapping_handle_t handle_;
  interprocess::mode_t mode_;
};

Status MachineFailed(const std::string& what) {
  const int error = errno;
  const bool no_memory = error == ENOMEM || error == ENOSPC;
  return Status(no_memory ? StatusCode::kOutOfMemory : StatusCode::kInternal,
                what + " failed: " + std::generic_category().message(error));
}

Result<UniqueFd> MakeMemfd(const char* name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return MachineFailed("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return MachineFailed("sizing shared memory of " + std::to_string(bytes) + " bytes");
  }
  return fd;
}

Status WriteAt(int fd, std::span<const std::byte> bytes, std::size_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return MachineFailed("writing " + std::to_string(bytes.size()) + " bytes of shared memory");
    }
    done += static_cast<std::size_t>(written);
  }
  return Status::Ok();
}

}  // namespace

struct SharedSegment::Mapping {
  interprocess::mapped_region region;
};

SharedSegment::SharedSegment() = default;
SharedSegment::~SharedSegment() = default;

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::move(other.fd_)),
      mapping_(std::move(other.mapping_)),
      address_(std::exchange(other.address_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  fd_ = std::move(other.fd_);
  mapping_ = std::move(other.mapping_);
  address_ = std::exchange(other.address_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Status SharedSegment::MapWith(Access access, bool populate, const char* what) {
  const auto mode =
      access == Access::kReadWrite ? interprocess::read_write : interprocess::read_only;
  try {
    auto mapping = std::make_unique<Mapping>();
    const interprocess::map_options_t flags =
        populate ? MAP_POPULATE : interprocess::default_map_options;
    mapping->region =
        interprocess::mapped_region(MappableFd(fd_.get(), mode), mode, 0, size_, nullptr, flags);
    mapping_ = std::move(mapping);
  } catch (const interprocess::interprocess_exception& error) {
    return Status(error.get_error_code() == interprocess::out_of_resource_error ||
                          error.get_native_error() == ENOMEM
                      ? StatusCode::kOutOfMemory
                      : StatusCode::kInternal,
                  std::string("mapping ") + what + " of " + std::to_string(size_) +
                      " bytes failed: " + error.what());
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, std::string("no memory to map ") + what);
  }
  address_ = static_cast<std::byte*>(mapping_->region.get_address());
  if (::madvise(address_, size_, MADV_DONTFORK) != 0) return MachineFailed("madvise");
  return Status::Ok();
}

Result<SharedSegment> SharedSegment::Create(const CreateOptions& options) {
  // The size is checked first, because fallocate of a memfd allocates pages until the machine has
  // none left, at which point the kernel kills other processes.
  if (options.bytes == 0 || options.bytes > kBytesMax) {
    return Status(StatusCode::kOutOfMemory, std::string("shared memory rejected: ") + options.name +
                                                " asks for " + std::to_string(options.bytes) +
                                                " bytes, allowed: 1 to " +
                                                std::to_string(kBytesMax));
  }
  Result<UniqueFd> fd = MakeMemfd(options.name, options.bytes);
  if (!fd.ok()) return fd.status();
  if (options.reserve && ::fallocate(fd->get(), 0, 0, static_cast<off_t>(options.bytes)) != 0) {
    return MachineFailed("reserving " + std::to_string(options.bytes) + " bytes of shared memory");
  }
  SharedSegment segment;
  segment.fd_ = std::move(*fd);
  segment.size_ = options.bytes;
  // The segment is mapped before it is sealed, because F_SEAL_FUTURE_WRITE does not affect existing
  // mappings.
  if (Status status = segment.MapWith(options.access, options.reserve, options.name);
      !status.ok()) {
    return status;
  }
  const bool moves = options.peers_read_only && options.can_move;
  if (moves && ::fchmod(segment.fd_.get(), S_IRUSR) != 0) {
    return MachineFailed("protecting shared memory");
  }
  const bool is_final = options.peers_read_only && !options.can_move;
  const int seals = kFixedSize | F_SEAL_SEAL | (is_final ? F_SEAL_FUTURE_WRITE : 0);
  if (::fcntl(segment.fd_.get(), F_ADD_SEALS, seals) != 0) {
    return MachineFailed("sealing shared memory");
  }
  return segment;
}

Result<SharedSegment> SharedSegment::Map(UniqueFd fd, const MapOptions& options) {
  const auto reject = [&](const std::string& reason) {
    return Status(StatusCode::kProtocolViolation,
                  std::string(options.what) + " rejected: " + reason);
  };
  // Files that cannot be sealed (disk, FUSE, pipes) return EINVAL here. They are rejected because
  // they could shrink while mapped, or block a process that accesses them.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return reject("its descriptor is not sealable memory");
  if ((seals & kFixedSize) != kFixedSize) return reject("its size is not sealed");
  if (options.must_be_immutable && (seals & F_SEAL_WRITE) == 0) {
    return reject("it is not sealed against writing");
  }
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return MachineFailed("fstat");
  if (!std::in_range<std::size_t>(facts.st_size) ||
      static_cast<std::size_t>(facts.st_size) != options.bytes) {
    return reject("it has " + std::to_string(facts.st_size) + " bytes, announced were " +
                  std::to_string(options.bytes));
  }
  SharedSegment segment;
  segment.fd_ = std::move(fd);
  segment.size_ = options.bytes;
  if (Status status = segment.MapWith(options.access, options.populate, options.what);
      !status.ok()) {
    return status;
  }
  return segment;
}

Result<UniqueFd> SharedSegment::OpenReadOnly() const {
  const std::string path = "/proc/self/fd/" + std::to_string(fd_.get());
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return MachineFailed("opening shared memory for reading");
  return opened;
}

Status SharedSegment::Reserve(std::size_t offset, std::size_t bytes) const {
  Check(offset <= size_ && bytes <= size_ - offset, "a segment reserves parts of its own");
  if (::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    return MachineFailed("reserving " + std::to_string(bytes) + " bytes of shared memory");
  }
  // madvise fails before Linux 5.14. The pages are allocated even then, but each is mapped on
  // first access.
  (void)::madvise(address_ + offset, bytes, MADV_POPULATE_WRITE);
  return Status::Ok();
}

std::size_t SharedSegment::MissingBytes() const {
  struct stat facts {};
  if (!fd_.valid() || ::fstat(fd_.get(), &facts) != 0) return 0;
  // st_blocks includes pages that are swapped out, and the part of a huge page beyond the end.
  constexpr std::size_t kBlockBytes = 512;  // Unit of st_blocks, see stat(2).
  const auto present = static_cast<std::size_t>(facts.st_blocks) * kBlockBytes;
  return size_ - std::min(size_, present);
}

void SharedSegment::Discard() const {
  // Has no effect if the segment is sealed against further writes (F_SEAL_FUTURE_WRITE).
  if (valid()) (void)::madvise(address_, size_, MADV_REMOVE);
}

Result<UniqueFd> MakeFixedMemory(const char* name, std::size_t bytes) {
  Result<UniqueFd> fd = MakeMemfd(name, bytes);
  if (!fd.ok()) return fd;
  if (::fcntl(fd->get(), F_ADD_SEALS, kFixedSize | F_SEAL_SEAL) != 0) {
    return MachineFailed("sealing shared memory");
  }
  return fd;
}

Status WriteMemory(int fd, std::span<const std::byte> bytes, std::size_t offset) {
  return WriteAt(fd, bytes, offset);
}

Status ReadMemory(int fd, std::size_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t count = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return MachineFailed("reading shared memory");
    if (count == 0) return Status(StatusCode::kInternal, "shared memory is too short");
    into = into.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::size_t>(count);
  }
  return Status::Ok();
}

Result<UniqueFd> CopyImmutable(const char* name, int from, std::size_t bytes) {
  Result<UniqueFd> fd = MakeMemfd(name, bytes);
  if (!fd.ok()) return fd;
  std::vector<std::byte> buffer(std::min(bytes, kCopyBytes));
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = ::pread(from, buffer.data(), std::min(buffer.size(), bytes - done),
                                  static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return MachineFailed("reading shared memory");
    if (count == 0) {
      return Status(StatusCode::kInternal, "shared memory has " + std::to_string(done) +
                                               " bytes, read are " + std::to_string(bytes));
    }
    const std::span<const std::byte> part(buffer.data(), static_cast<std::size_t>(count));
    if (Status status = WriteAt(fd->get(), part, done); !status.ok()) return status;
    done += part.size();
  }
  if (::fcntl(fd->get(), F_ADD_SEALS, kFixedSize | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    return MachineFailed("sealing shared memory");
  }
  return fd;
}

}  // namespace gpushared::ipc
