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

// When the program may write memory that kernels reach, too.
enum class Sharing : std::uint8_t {
  kAtAnyTime,  // Even while kernels run, as far as they leave those bytes alone.
  kInTurns,    // Only when it has seen all work end (CUDA: concurrentManagedAccess is 0).
  kOnDemand,   // At any time; only kernels that are given its address reach it.
};

// Device memory with as many bytes of the program that are the same memory to both.
class Mirror {
 public:
  // With pages of its own, at the device's address. kOutOfMemory, also where the program has
  // something there.
  static Result<std::shared_ptr<Mirror>> Make(const Client& client, std::size_t bytes,
                                              Sharing sharing);
  // With memory that the program has. It may take it away: then the device keeps the last bytes.
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
  // What both sides had when they were last compared. MirroredMemory's, under its lock.
  const Bytes agreed_;
};

// What a command may read and write of mirrored memory.
struct MirrorUse {
  struct Named {
    std::shared_ptr<Mirror> mirror;
    bool is_written = true;
  };
  // It may reach all memory but that on demand: addresses can lie anywhere.
  bool is_kernel = false;
  std::vector<Named> named = {};

  bool is_none() const { return !is_kernel && named.empty(); }
};

// Managed memory, and host memory that kernels reach: two copies of one memory, brought together
// before commands and after waits.
//
// Each side's changes are found by comparing its bytes with those that both had last. A command is
// submitted after the program's changes have gone to the device. A call that has seen work end
// writes the device's changes, byte by byte, into the program's memory. So what the program and
// kernels write at one time is kept, of both, as long as they write different bytes: other threads
// may launch, wait and write meanwhile, and nobody waits for other threads' kernels.
//
// To send, to take note that the device may write, and to submit is one step under the lock: after
// it every wait finds the note, until one has compared when no such command was under way any more.
// Were the lock free in between, another thread's wait would compare before the kernel has begun,
// drop the note, and the kernel's results would never be fetched. Functions of the host that come
// before the command are awaited before the lock is taken, since the thread that runs them takes
// it, too. Under it only commands are awaited that have been submitted, which end by themselves.
//
// Thread-safe.
class MirroredMemory {
 public:
  // `client` outlives this.
  explicit MirroredMemory(const Client& client) : client_(client) {}

  void Add(const std::shared_ptr<Mirror>& mirror);
  bool has_any() const { return has_any_.load(std::memory_order_relaxed); }
  // Memory in turns that the program may write while kernels of other streams run.
  void ShareAtAnyTime(const Mirror& mirror);
  // Runs `submit`, which puts commands on the stream of this number.
  Status Submit(const MirrorUse& use, const Stream& stream, std::uint64_t stream_id,
                const std::function<Status()>& submit);
  // A copy to page-locked memory has been submitted, which is there some time later.
  void RecordCopyToHost() { has_copies_to_host_.store(true, std::memory_order_release); }
  // After work that the caller has seen end: the program gets what it has written.
  Status ToHost();
  // The same for all that has been submitted, which it waits for. kInvalidArgument: the program has
  // taken memory of its own away.
  Status AwaitToHost(const Mirror& mirror);

 private:
  struct Entry {
    std::weak_ptr<Mirror> mirror;
    Sharing sharing;
    bool has_been_sent = false;  // Before that the device has any bytes.
    bool is_written = false;     // The device may write, or has written, since it was compared.
    bool is_gone = false;        // The program has taken its memory away.
    // Of the program's last comparison: waits that there had been, and the thread.
    std::uint64_t compared_at = 0;
    std::thread::id compared_by = {};
  };
  static bool Reaches(const MirrorUse& use, const Entry& entry, const Mirror& mirror,
                      bool& is_written);
  // Whether the program may have written since the last comparison.
  bool MayDiffer(const Entry& entry) const GPUSHARED_REQUIRES(mutex_);
  // Adds to what the device's default stream has to do; `has_sent` says so.
  Status Send(Entry& entry, const Mirror& mirror, bool& has_sent) GPUSHARED_REQUIRES(mutex_);
  Status TakeBack(Entry& entry, const Mirror& mirror) GPUSHARED_REQUIRES(mutex_);
  // Those submitted here.
  Status AwaitCommands() GPUSHARED_REQUIRES(mutex_);
  bool HaveCommandsEnded() GPUSHARED_REQUIRES(mutex_);

  const Client& client_;
  std::atomic<bool> has_any_{false};  // Never false again.
  std::atomic<bool> has_copies_to_host_{false};
  Mutex mutex_;
  std::vector<Entry> mirrors_ GPUSHARED_GUARDED_BY(mutex_);
  // By the stream's number: the end of the last command that may write mirrored memory.
  std::map<std::uint64_t, Event> under_way_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t waits_ GPUSHARED_GUARDED_BY(mutex_) = 1;
  std::vector<std::byte> part_ GPUSHARED_GUARDED_BY(mutex_);  // What is being compared.
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_MIRRORED_MEMORY_H_
