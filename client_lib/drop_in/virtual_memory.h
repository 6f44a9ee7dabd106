// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_VIRTUAL_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_VIRTUAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/handle_table.h"

namespace gpushared::drop_in {

class AddressBook;

// What cuMemCreate makes: device memory of one session, which lies at no address by itself. It goes
// when the program has let go of it and it is placed nowhere.
//
// Thread-safe.
class Allocation {
 public:
  // In chunks as large as they may be.
  static Result<std::shared_ptr<Allocation>> Make(const Client& client, int ordinal,
                                                  std::size_t bytes);

  std::size_t bytes() const { return bytes_; }
  int ordinal() const { return ordinal_; }
  const std::vector<DeviceChunk>& chunks() const { return chunks_; }

  // One more reference of the program. The handle is the same as long as there is one; null: there
  // are too many handles.
  static AllocationHandle Retain(const std::shared_ptr<Allocation>& allocation);
  // One less; false: there was none.
  bool Release();

 private:
  Allocation(std::vector<DeviceChunk> chunks, int ordinal, std::size_t bytes)
      : chunks_(std::move(chunks)), ordinal_(ordinal), bytes_(bytes) {}

  const std::vector<DeviceChunk> chunks_;
  const int ordinal_;
  const std::size_t bytes_;
  Mutex mutex_;
  AllocationHandle handle_ GPUSHARED_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t references_ GPUSHARED_GUARDED_BY(mutex_) = 0;
};

// Those that the program holds. Never destroyed, as the driver.
HandleTable<Allocation, AllocationHandle, HandleKind::kAllocation>& HeldAllocations();

// The addresses that a program has reserved on one device, and what it has placed there. A
// placement is memory only after SetAccess: then the server maps it.
//
// Thread-safe. The server is asked under the lock: other threads' calls for the same addresses
// would need its answer, too.
class VirtualMemory {
 public:
  // Both outlive this.
  VirtualMemory(const Client& client, AddressBook& addresses)
      : client_(client), addresses_(addresses) {}
  // Takes the program's handles to allocations of this session.
  ~VirtualMemory();
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  // Makes an allocation and its first handle.
  Result<AllocationHandle> Create(int ordinal, std::size_t bytes);
  bool Has(const Allocation& allocation) const;
  // At `wanted` if that is free. kOutOfMemory: there are not so many addresses left.
  Code Reserve(std::size_t bytes, std::size_t alignment, std::uint64_t wanted,
               std::uint64_t& address);
  // Whether the program has reserved this address: then it is no host's.
  bool IsReserved(std::uint64_t address) const;
  // The reservation is given back whole, when nothing is placed in it.
  Code FreeReserved(std::uint64_t address, std::size_t bytes);
  Code Place(std::uint64_t address, const std::shared_ptr<Allocation>& allocation);
  // The range is of whole placements, one behind the other. Waits for everything submitted before.
  Code Remove(std::uint64_t address, std::size_t bytes, Status& why);
  Code SetAccess(std::uint64_t address, std::size_t bytes, bool may_access, Status& why);
  struct Placement {
    std::shared_ptr<Allocation> allocation;
    bool is_accessible = false;
  };
  std::optional<Placement> At(std::uint64_t address) const;

 private:
  bool AreWhole(std::uint64_t address, std::size_t bytes) const GPUSHARED_REQUIRES(mutex_);
  Status Open(std::uint64_t address, Placement& placement) GPUSHARED_REQUIRES(mutex_);
  Status Close(std::uint64_t address, Placement& placement) GPUSHARED_REQUIRES(mutex_);

  const Client& client_;
  AddressBook& addresses_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, std::size_t> reserved_
      GPUSHARED_GUARDED_BY(mutex_);  // Bytes, by address.
  // By address, each inside of one reservation.
  std::map<std::uint64_t, Placement> placements_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Allocation>> allocations_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_VIRTUAL_MEMORY_H_
