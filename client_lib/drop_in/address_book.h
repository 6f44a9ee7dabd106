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
  kVariable,    // A variable of a module, which it ends with.
  kManaged,     // The program and kernels reach it in turns.
  kMapped,      // The same of cuMemHostAlloc.
  kHost,        // Page-locked host memory of ours.
  kRegistered,  // Host memory of the program's own.
  kReached,     // The device's address of such memory, for kernels.
  kPlaced,      // Memory that the program has mapped, and may access.
};

// Numbers all blocks of the process; no number is used again.
std::uint64_t NextBufferId();

// One piece of memory that the program got, or registered.
struct Block {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  BlockKind kind = BlockKind::kDevice;
  std::uint64_t context_id = 0;  // It ends with this context.
  std::uint64_t buffer_id = 0;   // From NextBufferId.
  unsigned flags = 0;            // The flags given to cuMemHostAlloc or cuMemHostRegister.
  // Where the kReached block of a kRegistered one begins, and the other way round; 0: nowhere.
  std::uint64_t counterpart = 0;

  // Whether `address` is the device's; memory that both reach at one address is.
  bool is_device() const { return kind != BlockKind::kHost && kind != BlockKind::kRegistered; }
  bool is_mirrored() const {
    return kind == BlockKind::kManaged || kind == BlockKind::kMapped || counterpart != 0;
  }
  // Whether it is memory of the host to CUDA, whoever reaches it.
  bool is_host_memory() const {
    return !is_device() || kind == BlockKind::kMapped || kind == BlockKind::kReached;
  }
  // Page-locked memory without an address for kernels: they reach it where a launch names it.
  bool is_reached_on_demand() const {
    return kind == BlockKind::kHost || (kind == BlockKind::kRegistered && counterpart == 0);
  }
  // The device's address of a byte of it. Nothing where it has none.
  std::optional<std::uint64_t> OnDevice(std::uint64_t at) const {
    // Launches, copies and fills take page-locked memory at the program's address.
    if (is_device() || kind == BlockKind::kHost) return at;
    if (counterpart == 0) return std::nullopt;
    return counterpart + (at - address);
  }
  // The program's address of a byte of it. Nothing where the program cannot reach it.
  std::optional<std::uint64_t> OnHost(std::uint64_t at) const {
    if (counterpart != 0 && is_device()) return counterpart + (at - address);
    if (is_device() && !is_mirrored()) return std::nullopt;
    return at;
  }
  // Whether [from, from + length) lies in it.
  bool Holds(std::uint64_t from, std::size_t length) const {
    return from >= address && length <= bytes && from - address <= bytes - length;
  }
};

// What a program has said about managed memory. It changes nothing: the memory goes to the device
// with the next command, and comes back with the next wait.
struct ManagedHints {
  static constexpr MemoryLocation kNowhere{LocationType{0}, -2};  // CU_DEVICE_INVALID.

  bool is_read_mostly = false;
  MemoryLocation preferred = kNowhere;
  MemoryLocation prefetched = kNowhere;
  std::vector<int> accessed_by = {};  // Ordinals, and -1 for the host; each once.
};

// Which memory lies where, for one device: tells device from host addresses, and a wrong address
// from a right one before a copy of it spoils its stream.
//
// Thread-safe.
class AddressBook {
 public:
  using Memory = std::variant<std::monostate, DeviceBuffer, HostBuffer, std::shared_ptr<Mirror>,
                              std::unique_ptr<PooledMemory>, std::shared_ptr<GraphMemory>>;

  // False: it overlaps with a block that is there.
  bool Insert(const Block& block, Memory memory);
  // The block that `address` lies in.
  std::optional<Block> Find(std::uint64_t address) const;
  // Whether [address, address + bytes) is device memory: of one block, or placed without a gap.
  bool IsDevice(std::uint64_t address, std::size_t bytes) const;
  // Whether it lies between addresses of the device's memory, of now or of before.
  bool IsAmongDevice(std::uint64_t address) const {
    return address >= device_begin_.load(std::memory_order_relaxed) &&
           address < device_end_.load(std::memory_order_relaxed);
  }
  // Whether it lies in memory of the program that is registered.
  bool IsRegistered(std::uint64_t address) const;
  // Whether there has ever been memory that is reached on demand.
  bool has_had_host() const { return has_had_host_.load(std::memory_order_relaxed); }
  // The device's copy of the block that begins at `address` and is reached on demand; null: no
  // kernel reached it yet.
  std::shared_ptr<Mirror> Twin(std::uint64_t address) const;
  // The mirror whose memory lies at `address`, by either address of it; null: there is none.
  std::shared_ptr<Mirror> MirrorAt(std::uint64_t address) const;
  // Gives the block such a copy, which ends with it. Another thread's counts if it was first.
  // Null: there is no such block any more.
  std::shared_ptr<Mirror> SetTwin(std::uint64_t address, std::shared_ptr<Mirror> twin);
  // Removes the block of this kind that begins at `address`; its memory is freed.
  bool Remove(std::uint64_t address, BlockKind kind);
  // The same where a pool's memory begins at `address`, which is the caller's then; else null.
  std::unique_ptr<PooledMemory> TakePooled(std::uint64_t address);
  // The pool whose memory `address` lies in; null: none.
  PoolHandle PoolAt(std::uint64_t address) const;
  // Runs `change` on the hints of the managed memory that holds all of this range. False: none
  // does.
  bool ChangeHints(std::uint64_t address, std::size_t bytes,
                   const std::function<void(ManagedHints&)>& change);
  // Removes the variable that begins at `address`, if it is still the one with this number.
  void RemoveVariable(std::uint64_t address, std::uint64_t buffer_id);
  // Removes everything of a context that ends.
  void RemoveContext(std::uint64_t context_id);

 private:
  struct Entry {
    Block block;
    Memory memory;
    ManagedHints hints = {};
    std::shared_ptr<Mirror> twin = nullptr;  // Ends before the memory that it is a copy of.
  };
  std::atomic<bool> has_had_host_{false}, has_had_registered_{false};  // Never false again.
  // They only grow apart. Nobody needs the one for the other.
  std::atomic<std::uint64_t> device_begin_{~std::uint64_t{0}}, device_end_{0};
  mutable SharedMutex mutex_;
  std::map<std::uint64_t, Entry> entries_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_ADDRESS_BOOK_H_
