// SPDX-License-Identifier: Apache-2.0
// Memory shared by file descriptor: created, sealed and mapped by one process; received, checked
// and mapped by the other.

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

// A memfd and its mapping in this process. Segments have no names, so none can become stale; the
// memory is freed with its last descriptor and mapping.
//
// Mappings are not inherited by fork, because a child must not become a second producer for the
// ring of its parent.
//
// Thread-compatible; the bytes are shared with another process.
class SharedSegment {
 public:
  enum class Access { kReadOnly, kReadWrite };
  static constexpr std::size_t kBytesMax =
      kStagingBufferBytesMax;  // Largest segment that Create accepts.

  struct CreateOptions {
    const char* name = "gpushared";      // Shown only in /proc/<pid>/maps.
    std::size_t bytes = 0;               // A multiple of the page size.
    Access access = Access::kReadWrite;  // Access of this process's mapping.
    // Prevents any further writable mapping. The mapping made here remains writable.
    bool peers_read_only = false;
    // With peers_read_only: another process of the server can map the segment writable later, from
    // this descriptor. Peers get a descriptor from OpenReadOnly. They cannot open the memory for
    // writing, unless they run as root or as the server's own user.
    bool can_move = false;
    // Allocates the memory now, so that later accesses cannot raise SIGBUS. For sizes that the
    // server chooses. A size that a client chooses must first be checked against the client's
    // quota, because a machine that is out of memory kills processes instead of failing this call.
    bool reserve = true;
  };
  // Creates a segment of fixed size, sealed against shrinking, growing and further seals.
  static Result<SharedSegment> Create(const CreateOptions& options);

  struct MapOptions {
    std::size_t bytes = 0;  // The file must have exactly this size.
    Access access = Access::kReadOnly;
    // Also requires a seal against writing, so that the bytes can never change again.
    bool must_be_immutable = false;
    // Faults in all pages now instead of on first access.
    bool populate = false;
    // Name of the segment for messages, such as "staging buffer 3".
    const char* what = "segment";
  };
  // Maps memory that a peer created. kProtocolViolation if the memory has another size, or is not a
  // memfd sealed against shrinking and growing. Without the seals, a peer could truncate the
  // memory, and accesses here would raise SIGBUS.
  static Result<SharedSegment> Map(UniqueFd fd, const MapOptions& options);

  SharedSegment();
  SharedSegment(SharedSegment&&) noexcept;
  SharedSegment& operator=(SharedSegment&&) noexcept;
  ~SharedSegment();

  bool valid() const { return mapping_ != nullptr; }
  // Returns the descriptor (borrowed), to be passed to a peer.
  int fd() const { return fd_.get(); }
  // Opens the segment again, without the right to write to it.
  Result<UniqueFd> OpenReadOnly() const;
  // Closes the descriptor; the mapping remains.
  void CloseFd() { fd_.Reset(); }
  std::size_t size() const { return size_; }

  // Allocates the memory of a part (whole pages) of a segment that was created without `reserve`.
  // Large segments are reserved in parts, because the kernel clears their pages within one call.
  Status Reserve(std::size_t offset, std::size_t bytes) const;

  // Returns the bytes of a reserved segment that a peer has released by punching holes; 0 after
  // CloseFd.
  std::size_t MissingBytes() const;

  // Releases the pages to the system even while other processes have them mapped. The bytes read as
  // zero afterwards, and each process that touches them is charged for new pages. Requires a
  // writable mapping.
  void Discard() const;

  // Returns the mapped bytes. If the mapping is read-only, writing to them faults.
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

// Creates a memfd of fixed size for a peer to write. Each page is allocated when it is first
// written, and is charged to the writer.
Result<UniqueFd> MakeFixedMemory(const char* name, std::size_t bytes);

// Writes to a memfd without mapping it.
Status WriteMemory(int fd, std::span<const std::byte> bytes, std::size_t offset = 0);
// Reads from a memfd without mapping it. Fails if it is too short.
Status ReadMemory(int fd, std::size_t offset, std::span<std::byte> into);

// Creates an immutable memfd with a copy of the first `bytes` of `from`, which a peer may still be
// writing.
//
// The memory of the peer is never sealed itself, because sealing takes the lock of the file, which
// a write of the peer can hold indefinitely. Reading takes no such lock.
Result<UniqueFd> CopyImmutable(const char* name, int from, std::size_t bytes);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_SHARED_SEGMENT_H_
