// SPDX-License-Identifier: Apache-2.0
// Memory shared by file descriptor: created, sealed and mapped, or received, checked and mapped.

#ifndef GPUSHARED_IPC_SHARED_SEGMENT_H_
#define GPUSHARED_IPC_SHARED_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gpushared/check.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/layout.h"

namespace gpushared::ipc {

// A memfd and its mapping in this process. No segment has a name, so nothing can go stale;
// the memory is gone when the last descriptor and mapping are.
//
// Mappings are not inherited by fork: a child must not become a second producer of its
// parent's ring.
//
// Thread-compatible; the bytes are shared with another process.
class SharedSegment {
 public:
  enum class Access { kReadOnly, kReadWrite };
  static constexpr std::size_t kBytesMax = kArenaBytesMax;  // Largest segment that we create.

  struct CreateOptions {
    const char* name = "gpushared";      // Shown in /proc/<pid>/maps, nothing else.
    std::size_t bytes = 0;               // Whole pages.
    Access access = Access::kReadWrite;  // Our own mapping's access.
    // After this call nobody can make a further writable mapping; ours stays writable.
    bool peers_read_only = false;
    // Take the memory now, so that no SIGBUS comes later. Use it for sizes that we choose. A size
    // that a client chose is bounded by its quota first. A machine without free memory does not
    // reject here, it ends processes.
    bool reserve = true;
  };
  // Fixed size for ever: sealed against shrinking, growing and further seals.
  static Result<SharedSegment> Create(const CreateOptions& options);

  struct MapOptions {
    std::size_t bytes = 0;  // The file must have exactly this size.
    Access access = Access::kReadOnly;
    // The file must be sealed against writing too: its bytes can never change again.
    bool must_be_immutable = false;
    // Fault all pages in now instead of one by one.
    bool populate = false;
    // For messages: "staging buffer 3".
    const char* what = "segment";
  };
  // Maps memory that a peer made. Rejects with kProtocolViolation what is not a memfd sealed
  // against shrinking and growing (truncating it would be SIGBUS here) or has another size.
  static Result<SharedSegment> Map(UniqueFd fd, const MapOptions& options);

  SharedSegment();
  SharedSegment(SharedSegment&&) noexcept;
  SharedSegment& operator=(SharedSegment&&) noexcept;
  ~SharedSegment();

  bool valid() const { return mapping_ != nullptr; }
  int fd() const { return fd_.get(); }  // Borrowed; for handing it to a peer.
  // Closes our descriptor; the mapping stays.
  void CloseFd() { fd_.Reset(); }
  std::size_t size() const { return size_; }

  // Takes the memory of a part now, of a segment that was made without `reserve`: by parts, since
  // the kernel clears the pages of a large segment for as long as a call lasts. Whole pages.
  Status Reserve(std::size_t offset, std::size_t bytes) const;

  // Pages of a segment whose memory was taken that somebody punched out. 0 without fd().
  std::size_t MissingBytes() const;

  // Returns the pages to the machine even while others have the memory mapped: its bytes are
  // zeros from now on, in pages of whoever touches them. For a writable mapping.
  void Discard() const;

  // Writing through `bytes` or As is a fault when the mapping is read-only.
  std::span<std::byte> bytes() const { return {address_, size_}; }
  template <typename T>
  T& As() const {
    Check(size_ >= sizeof(T), "segment holds the struct it is used as");
    return *reinterpret_cast<T*>(address_);
  }

 private:
  struct Mapping;
  Status MapWith(Access access, bool populate, const char* what);

  UniqueFd fd_;
  std::unique_ptr<Mapping> mapping_;
  std::byte* address_ = nullptr;
  std::size_t size_ = 0;
};

// A memfd of a size that is fixed for ever, to be written by a peer. Takes no page of memory: they
// come as somebody writes, and count as the writer's.
Result<UniqueFd> MakeFixedMemory(const char* name, std::size_t bytes);

// Writes from the beginning of a memfd, without a mapping of it.
Status WriteMemory(int fd, std::span<const std::byte> bytes);

// A memfd of our own with what the first `bytes` of `from` hold now; nobody can change it. For
// memory that a peer may still write.
//
// The peer's own memory is never sealed against writing: the kernel takes the file's lock for that,
// which a write of the peer holds for as long as the peer likes. Reading takes no such lock.
Result<UniqueFd> CopyImmutable(const char* name, int from, std::size_t bytes);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_SHARED_SEGMENT_H_
