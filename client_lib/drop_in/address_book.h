// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_ADDRESS_BOOK_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_ADDRESS_BOOK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/memory_pool.h"
#include "client_lib/drop_in/mirrored_memory.h"

namespace gpushared::drop_in {

class GraphMemory;

enum class BlockKind : std::uint8_t {
  kDevice,
  kVariable,    // A variable of a module; ends with the module.
  kManaged,     // Managed memory, which the program and kernels may access in turns.
  kMapped,      // Page-locked memory of cuMemHostAlloc that kernels also access.
  kHost,        // Page-locked memory of this library without a separate address for kernels.
  kRegistered,  // Host memory that belongs to the program.
  kReached,     // Device addresses through which kernels access a kRegistered block.
  kPlaced,      // Mapping of cuMemMap that kernels may access.
};

// Returns the number of the next block. Numbers are unique in the process and never reused.
std::uint64_t NextBufferId();

// One block of memory that the program has allocated or registered.
struct Block {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  BlockKind kind = BlockKind::kDevice;
  std::uint64_t context_id = 0;  // Context with which the block ends.
  std::uint64_t buffer_id = 0;   // From NextBufferId.
  unsigned flags = 0;            // Flags of cuMemHostAlloc or cuMemHostRegister.
  // Address of the kReached block that belongs to a kRegistered block, and vice versa; 0 if there
  // is no such block.
  std::uint64_t counterpart = 0;

  // Whether `address` is a device address. Also true of memory that has the same address on the
  // host and on the device.
  bool is_device() const { return kind != BlockKind::kHost && kind != BlockKind::kRegistered; }
  bool is_mirrored() const {
    return kind == BlockKind::kManaged || kind == BlockKind::kMapped || counterpart != 0;
  }
  // Whether CUDA considers the block host memory.
  bool is_host_memory() const {
    return !is_device() || kind == BlockKind::kMapped || kind == BlockKind::kReached;
  }
  // Whether the block is page-locked memory without an address for kernels. Kernels can access such
  // memory only if its host address is a parameter of the launch.
  bool is_reached_on_demand() const {
    return kind == BlockKind::kHost || (kind == BlockKind::kRegistered && counterpart == 0);
  }
  // Returns the device address of a byte of the block; no value if the block has none.
  std::optional<std::uint64_t> OnDevice(std::uint64_t at) const {
    // Launches, copies and fills accept the program's address of page-locked memory.
    if (is_device() || kind == BlockKind::kHost) return at;
    if (counterpart == 0) return std::nullopt;
    return counterpart + (at - address);
  }
  // Returns the host address of a byte of the block; no value if the program cannot access it.
  std::optional<std::uint64_t> OnHost(std::uint64_t at) const {
    if (counterpart != 0 && is_device()) return counterpart + (at - address);
    if (is_device() && !is_mirrored()) return std::nullopt;
    return at;
  }
  // Returns whether the block contains [from, from + length).
  bool Holds(std::uint64_t from, std::size_t length) const {
    return from >= address && length <= bytes && from - address <= bytes - length;
  }
};

// Hints of the program about managed memory. They have no effect, because the memory is sent to the
// device with the next command and fetched by the next wait.
struct ManagedHints {
  static constexpr MemoryLocation kNowhere{LocationType{0}, -2};  // CU_DEVICE_INVALID.

  bool is_read_mostly = false;
  MemoryLocation preferred = kNowhere;
  MemoryLocation prefetched = kNowhere;
  std::vector<int> accessed_by = {};  // Ordinals, -1 for the host; without duplicates.
};

// Map of the device memory and the page-locked and registered host memory of one session.
// Distinguishes device from host addresses, and detects invalid addresses, so that a copy with such
// an address is rejected before it could fail its stream.
//
// Thread-safe.
class AddressBook {
 public:
  using Memory = std::variant<std::monostate, DeviceBuffer, HostBuffer, std::shared_ptr<Mirror>,
                              std::unique_ptr<PooledMemory>, std::shared_ptr<GraphMemory>>;

  // Returns false if the block overlaps an existing one.
  bool Insert(const Block& block, Memory memory);
  // Returns the block that contains `address`.
  std::optional<Block> Find(std::uint64_t address) const;
  // Returns whether [address, address + bytes) is device memory: in one block, or in contiguous
  // placed blocks.
  bool IsDevice(std::uint64_t address, std::size_t bytes) const;
  // Returns whether the address is between the lowest and the highest device address so far.
  bool IsAmongDevice(std::uint64_t address) const {
    return address >= device_begin_.load(std::memory_order_relaxed) &&
           address < device_end_.load(std::memory_order_relaxed);
  }
  // Returns whether the address is in registered memory of the program.
  bool IsRegistered(std::uint64_t address) const;
  // Whether memory that is accessed on demand has ever existed.
  bool has_had_host() const { return has_had_host_.load(std::memory_order_relaxed); }
  // Returns the device copy of the on-demand block that begins at `address`; null if no kernel has
  // accessed it yet.
  std::shared_ptr<Mirror> Twin(std::uint64_t address) const;
  // Returns the mirror that contains `address`, on either side; null if there is none.
  std::shared_ptr<Mirror> MirrorAt(std::uint64_t address) const;
  // Stores a device copy of the on-demand block that begins at `address`, until the block is
  // removed, and returns the copy. If another thread has stored one before, returns that one; null
  // if the block no longer exists.
  std::shared_ptr<Mirror> SetTwin(std::uint64_t address, std::shared_ptr<Mirror> twin);
  // Removes the block of this kind that begins at `address` and frees its memory.
  bool Remove(std::uint64_t address, BlockKind kind);
  // Removes the pool memory that begins at `address` and returns it to the caller; null if there is
  // none.
  std::unique_ptr<PooledMemory> TakePooled(std::uint64_t address);
  // Returns the pool of the memory that contains `address`; null if there is none.
  PoolHandle PoolAt(std::uint64_t address) const;
  // Calls `change` with the hints of the managed memory that contains the whole range. Returns
  // false if there is none.
  bool ChangeHints(std::uint64_t address, std::size_t bytes,
                   const std::function<void(ManagedHints&)>& change);
  // Removes the variable that begins at `address` if its number is still `buffer_id`.
  void RemoveVariable(std::uint64_t address, std::uint64_t buffer_id);
  // Removes all blocks of a context.
  void RemoveContext(std::uint64_t context_id);

 private:
  struct Entry {
    Block block;
    Memory memory;
    ManagedHints hints = {};
    std::shared_ptr<Mirror> twin = nullptr;  // Destroyed before the memory that it mirrors.
  };
  std::atomic<bool> has_had_host_{false}, has_had_registered_{false};  // Never reset.
  // Bounds of all device memory so far. They are only ever widened, and independent of each other.
  std::atomic<std::uint64_t> device_begin_{~std::uint64_t{0}}, device_end_{0};
  mutable SharedMutex mutex_;
  std::map<std::uint64_t, Entry> entries_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_ADDRESS_BOOK_H_
