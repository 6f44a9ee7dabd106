// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_MIRRORED_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_MIRRORED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

namespace gpushared::drop_in {

// When the program may write to memory that kernels also access.
enum class Sharing : std::uint8_t {
  kAtAnyTime,  // Even while kernels run, unless they access the same bytes.
  // Only after the program has observed the end of all work (concurrentManagedAccess is 0 in CUDA).
  kInTurns,
  kOnDemand,  // At any time; only kernels that receive the memory's address access it.
};

// Device allocation mirrored at a host address.
class Mirror {
 public:
  // Creates a mirror with new host pages at the device's address. kOutOfMemory if memory is
  // exhausted or the program already uses these addresses.
  static Result<std::shared_ptr<Mirror>> Make(const Client& client, std::size_t bytes,
                                              Sharing sharing);
  // Creates a mirror of memory of the program. The program may unmap that memory; the device then
  // keeps the last bytes.
  static Result<std::shared_ptr<Mirror>> Of(const Client& client, void* host, std::size_t bytes,
                                            Sharing sharing);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  std::uint64_t address() const { return address_; }
  std::byte* host() const { return static_cast<std::byte*>(host_); }
  std::size_t bytes() const { return bytes_; }
  Sharing sharing() const { return sharing_; }

 private:
  friend class MirroredMemory;
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  using Bytes = std::unique_ptr<std::byte[], Free>;
  Mirror(DeviceBuffer buffer, std::uint64_t address, void* host, std::size_t bytes, Sharing sharing,
         Bytes agreed)
      : buffer_(std::move(buffer)),
        address_(address),
        host_(host),
        bytes_(bytes),
        sharing_(sharing),
        agreed_(std::move(agreed)) {}

  const DeviceBuffer buffer_;
  const std::uint64_t address_;
  void* const host_;
  const std::size_t bytes_;
  const Sharing sharing_;
  // Contents of both sides at their last comparison. Guarded by the lock of MirroredMemory.
  const Bytes agreed_;
};

// Mirrored memory that a command may access.
struct MirrorUse {
  struct Named {
    std::shared_ptr<Mirror> mirror;
    bool is_written = true;
  };
  // Whether the command may access all mirrored memory except kOnDemand, because its parameters can
  // contain any address.
  bool is_kernel = false;
  std::vector<Named> named = {};

  bool is_none() const { return !is_kernel && named.empty(); }
};

// Managed memory, and host memory that kernels access: two copies of the same memory, synchronized
// before commands and after waits.
//
// Changes of either side are found by comparing the side's bytes with its bytes at the last
// comparison. Before a command is submitted, the program's changes are sent to the device. A call
// that has observed the end of work writes the device's changes, byte by byte, to the program's
// memory. Concurrent writes of the program and of kernels are therefore both preserved, as long as
// they are to different bytes: other threads may launch, wait and write at the same time. A thread
// waits for other threads' kernels only if it must send changes of memory that they may be writing,
// or if a copy to page-locked memory may not have arrived.
//
// Sending the changes, recording that the device may write, and submitting form one step under the
// lock. The record remains until a wait has compared both sides while no command that may write was
// in flight. If the lock were released in between, another thread's wait could compare before the
// kernel has begun and drop the record, so the results of the kernel would never be fetched. Host
// functions that precede the command are awaited before the lock is acquired, because the thread
// that runs them acquires it as well. Under the lock, only submitted commands are awaited, which
// end on their own.
//
// Thread-safe.
class MirroredMemory {
 public:
  // `client` must outlive this object.
  explicit MirroredMemory(const Client& client) : client_(client) {}

  void Add(const std::shared_ptr<Mirror>& mirror);
  bool has_any() const { return has_any_.load(std::memory_order_relaxed); }
  // Lets the program write to kInTurns memory while kernels of other streams run.
  void ShareAtAnyTime(const Mirror& mirror);
  // Runs `submit`, which puts commands on the stream with this number.
  Status Submit(const MirrorUse& use, const Stream& stream, std::uint64_t stream_id,
                const std::function<Status()>& submit);
  // Records the submission of a copy to page-locked memory. Its bytes may arrive later.
  void RecordCopyToHost() { has_copies_to_host_.store(true, std::memory_order_release); }
  // Called when the caller has observed the end of work: writes the results of that work to the
  // program's memory.
  Status ToHost();
  // Waits for the submitted commands that may write mirrored memory, then writes the results in
  // this mirror to the program's memory. kInvalidArgument if the program has unmapped its memory.
  Status AwaitToHost(const Mirror& mirror);

 private:
  struct Entry {
    std::weak_ptr<Mirror> mirror;
    Sharing sharing;
    bool has_been_sent = false;  // Until the first send, the device's bytes are unspecified.
    bool is_written = false;     // Whether the device may have written since the last comparison.
    bool is_gone = false;        // Whether the program has unmapped its memory.
    // Last comparison of the program's side: the value of waits_ and the thread.
    std::uint64_t compared_at = 0;
    std::thread::id compared_by = {};
  };
  static bool Reaches(const MirrorUse& use, const Entry& entry, const Mirror& mirror,
                      bool& is_written);
  // Returns whether the program may have written since the last comparison.
  bool MayDiffer(const Entry& entry) const GPUSHARED_REQUIRES(mutex_);
  // Adds copies to the device's default stream and sets `has_sent`.
  Status Send(Entry& entry, const Mirror& mirror, bool& has_sent) GPUSHARED_REQUIRES(mutex_);
  Status TakeBack(Entry& entry, const Mirror& mirror) GPUSHARED_REQUIRES(mutex_);
  // Waits for the commands in under_way_.
  Status AwaitCommands() GPUSHARED_REQUIRES(mutex_);
  bool HaveCommandsEnded() GPUSHARED_REQUIRES(mutex_);

  const Client& client_;
  std::atomic<bool> has_any_{false};  // Never reset.
  std::atomic<bool> has_copies_to_host_{false};
  Mutex mutex_;
  std::vector<Entry> mirrors_ GPUSHARED_GUARDED_BY(mutex_);
  // By stream number: end of the last command that may write mirrored memory.
  std::map<std::uint64_t, Event> under_way_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t waits_ GPUSHARED_GUARDED_BY(mutex_) = 1;
  std::vector<std::byte> part_ GPUSHARED_GUARDED_BY(mutex_);  // Bytes that are being compared.
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_MIRRORED_MEMORY_H_
