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

// Result of cuMemCreate: device memory of one session without an address. Freed once the program
// has released it and it is not mapped at any address.
//
// Thread-safe.
class Allocation {
 public:
  // Allocates chunks of the largest possible size.
  static Result<std::shared_ptr<Allocation>> Make(const Client& client, int ordinal,
                                                  std::size_t bytes);

  std::size_t bytes() const { return bytes_; }
  int ordinal() const { return ordinal_; }
  const std::vector<DeviceChunk>& chunks() const { return chunks_; }

  // Adds a reference of the program. The handle remains the same while a reference exists; null if
  // no handle is left.
  static AllocationHandle Retain(const std::shared_ptr<Allocation>& allocation);
  // Removes a reference; returns false if there was none.
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

// Allocations of which the program has handles. Never destroyed, because programs call the driver
// from their last destructors.
HandleTable<Allocation, AllocationHandle, HandleKind::kAllocation>& HeldAllocations();

// Addresses that a program has reserved on one device, and its placements there. The server maps a
// placement only after SetAccess.
//
// Thread-safe. Requests to the server are made under the lock, because other threads' calls for the
// same addresses depend on the answer.
class VirtualMemory {
 public:
  // Both must outlive this object.
  VirtualMemory(const Client& client, AddressBook& addresses)
      : client_(client), addresses_(addresses) {}
  // Releases the program's handles of this session's allocations.
  ~VirtualMemory();
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  // Creates an allocation and its first handle.
  Result<AllocationHandle> Create(int ordinal, std::size_t bytes);
  bool Has(const Allocation& allocation) const;
  // Reserves addresses, at `wanted` if they are free. kOutOfMemory if not enough addresses are
  // left.
  Code Reserve(std::size_t bytes, std::size_t alignment, std::uint64_t wanted,
               std::uint64_t& address);
  // Returns whether the program has reserved this address, which is then not a host address.
  bool IsReserved(std::uint64_t address) const;
  // Releases a whole reservation that contains no placement.
  Code FreeReserved(std::uint64_t address, std::size_t bytes);
  Code Place(std::uint64_t address, const std::shared_ptr<Allocation>& allocation);
  // Removes a range of whole, adjacent placements. Waits for everything submitted before.
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
      GPUSHARED_GUARDED_BY(mutex_);  // Sizes of the reservations, by address.
  // Placements by address; each is inside one reservation.
  std::map<std::uint64_t, Placement> placements_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Allocation>> allocations_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_VIRTUAL_MEMORY_H_
