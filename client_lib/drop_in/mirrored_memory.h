// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_MIRRORED_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_MIRRORED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

namespace gpushared::drop_in {

// Device memory with as many bytes of the program that are the same memory to both.
class Mirror {
 public:
  // With pages of its own, at the device's address. kOutOfMemory, also where the program has
  // something there.
  static Result<std::shared_ptr<Mirror>> Make(const Client& client, std::size_t bytes);
  // With memory that the program has. Whoever makes it sees to it that the memory stays.
  static Result<std::shared_ptr<Mirror>> Of(const Client& client, void* host, std::size_t bytes);
  // The same for memory that goes to the device only for kernels that are given its address.
  static Result<std::shared_ptr<Mirror>> OnDemand(const Client& client, void* host,
                                                  std::size_t bytes);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  std::uint64_t address() const { return address_; }
  void* host() const { return host_; }
  std::size_t bytes() const { return bytes_; }
  bool is_on_demand() const { return is_on_demand_; }

 private:
  Mirror(DeviceBuffer buffer, std::uint64_t address, void* host, std::size_t bytes)
      : buffer_(std::move(buffer)), address_(address), host_(host), bytes_(bytes) {}

  const DeviceBuffer buffer_;
  const std::uint64_t address_;
  void* const host_;
  const std::size_t bytes_;
  bool is_on_demand_ = false;  // Set before anybody else has it.
};

// Managed memory, and host memory that kernels reach. It changes hands as on GPUs that cannot share
// it at one time (CUDA: concurrentManagedAccess is 0): the next command takes it to the device, a
// call that has seen work end takes it back. In between the program must not touch it.
//
// Thread-safe.
class MirroredMemory {
 public:
  // `client` outlives this.
  explicit MirroredMemory(const Client& client) : client_(client) {}

  void Add(const std::shared_ptr<Mirror>& mirror);
  bool has_any() const { return has_any_.load(std::memory_order_relaxed); }
  // Before a command: the device gets what the program may have written, but for memory on demand.
  Status ToDevice();
  // Before a kernel that is given its address: memory on demand goes to the device.
  Status Reach(Mirror& mirror);
  bool IsOnHost(const Mirror& mirror);
  // After work: waits for all commands, and the program gets what they have written.
  Status ToHost();

 private:
  struct Entry {
    std::weak_ptr<Mirror> mirror;
    bool is_on_host = true;
  };
  // Null: it was not added.
  Entry* EntryOf(const Mirror& mirror) GPUSHARED_REQUIRES(mutex_);

  const Client& client_;
  std::atomic<bool> has_any_{false};  // Never false again.
  Mutex mutex_;
  std::vector<Entry> mirrors_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_MIRRORED_MEMORY_H_
