// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/fork_guard.h"
#include "ipc/wire/layout.h"

namespace gpushared::drop_in::gate {

// Device memory that this process has allocated on each of its GPUs, and the limits that its
// sessions set. GPUs have the numbers that they have in the driver, below kGpusMax.
//
// A hook reserves the bytes before it calls the driver, because concurrent allocations could
// otherwise exceed the limit together. It records the allocation after the call has succeeded. A
// hook that frees memory removes its record before the call, because the driver may give the same
// address to another thread as soon as it is free. The bytes count until the call has succeeded.
//
// Not counted: host memory, imported memory, which is its exporter's, and the memory of contexts,
// modules and graphs.
//
// Thread-safe. No lock is held during a call of the driver.
class MemoryQuota {
 public:
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

  // A process has one. Never destroyed, because threads may allocate until the process ends.
  static MemoryQuota& Get();

  // False in a forked child, where no call may be made because the lock may have been held by a
  // thread of the parent. CUDA does not work in the child of a process that has used it, so nothing
  // needs to be counted there.
  bool InOwner() const { return fork_guard_.InOwner(); }

  // Called when a session begins, and when it is lost. Without one there is no limit. `use` is
  // where the server sees the memory that is held; it must outlive this object.
  void SetLimit(int gpu, std::uint64_t bytes, ipc::GateUse& use) GPUSHARED_EXCLUDES(mutex_);
  void LiftLimit(int gpu, const ipc::GateUse& use) GPUSHARED_EXCLUDES(mutex_);

  // Returns the bytes up to the limit, or kNoLimit.
  std::uint64_t Left(int gpu) GPUSHARED_EXCLUDES(mutex_);
  std::uint64_t GetLimit(int gpu) GPUSHARED_EXCLUDES(mutex_);

  // Reserves memory. Releases unused memory of pools if there is not enough otherwise.
  bool Reserve(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);
  void GiveBack(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);
  // Whether Reserve would succeed.
  bool Fits(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);

  // ---- memory that belongs to a context

  enum class Kind { kAddress, kArray, kMipmappedArray, kCount };
  struct Allocation {
    int gpu = 0;
    std::uint64_t bytes = 0;
    ContextHandle context = nullptr;  // The memory ends with it.
    // If set, the memory is part of what its pool is charged with.
    PoolHandle pool = nullptr;

    std::uint64_t own_bytes() const { return pool == nullptr ? bytes : 0; }
  };
  // Records memory of which `reserved_bytes` have been reserved.
  void Record(Kind kind, std::uint64_t key, std::uint64_t reserved_bytes,
              const Allocation& allocation) GPUSHARED_EXCLUDES(mutex_);
  // Removes a record before the driver frees its memory. No value if there is none.
  std::optional<Allocation> Take(Kind kind, std::uint64_t key) GPUSHARED_EXCLUDES(mutex_);
  // Called after the driver's call for what was taken.
  void PutBack(Kind kind, std::uint64_t key, const Allocation& allocation)
      GPUSHARED_EXCLUDES(mutex_);
  void Discount(const Allocation& allocation) GPUSHARED_EXCLUDES(mutex_);

  // Called when the context has ended.
  void ForgetContext(ContextHandle context) GPUSHARED_EXCLUDES(mutex_);
  // The primary context of a GPU. TakePrimary removes the record; null if there is none.
  void SetPrimary(int gpu, ContextHandle context) GPUSHARED_EXCLUDES(mutex_);
  ContextHandle TakePrimary(int gpu) GPUSHARED_EXCLUDES(mutex_);

  // ---- physical memory: it exists until it has neither references nor mappings

  void RecordPhysical(std::uint64_t handle, int gpu, std::uint64_t bytes)
      GPUSHARED_EXCLUDES(mutex_);
  // The next two do nothing for memory that is not counted, such as imported memory.
  void AddReference(std::uint64_t handle) GPUSHARED_EXCLUDES(mutex_);
  void AddMapping(DevicePointer address, std::uint64_t handle) GPUSHARED_EXCLUDES(mutex_);
  struct Drop {
    std::uint64_t handle = 0;
    int gpu = 0;
    std::uint64_t bytes = 0;
    DevicePointer address = 0;  // Of a mapping; 0: of a reference.
    bool is_last = false;
  };
  // Remove references and mappings before the driver does. Empty if none is known.
  std::vector<Drop> DropReference(std::uint64_t handle) GPUSHARED_EXCLUDES(mutex_);
  std::vector<Drop> DropMappings(DevicePointer address, std::uint64_t bytes)
      GPUSHARED_EXCLUDES(mutex_);
  // Called after the driver's call.
  void Finish(const std::vector<Drop>& drops, bool is_done) GPUSHARED_EXCLUDES(mutex_);

  // ---- pools: charged with what the driver has reserved for them, used or not

  enum class PoolAnswer { kReserved, kRejected, kUnknown };
  // Reserves what the pool has to grow by. kUnknown: the driver does not tell how large it is. A
  // pool that is not known yet is one of this GPU.
  PoolAnswer ReserveInPool(PoolHandle pool, int gpu, std::uint64_t bytes)
      GPUSHARED_EXCLUDES(mutex_);
  // Called after the driver's call. No address: the call has failed.
  void SettleInPool(PoolHandle pool, std::uint64_t bytes, std::optional<DevicePointer> address)
      GPUSHARED_EXCLUDES(mutex_);
  // Charge a pool, or all of a GPU, with their present sizes. They do nothing during a capture.
  void Refresh(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);
  void RefreshPools(int gpu) GPUSHARED_EXCLUDES(mutex_);

  void AddPool(PoolHandle pool, int gpu) GPUSHARED_EXCLUDES(mutex_);
  // Pools of host memory are not counted.
  void AddHostPool(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);
  bool IsHostPool(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);

  struct Pool {
    int gpu = 0;
    std::uint64_t charged = 0;  // Part of Account::held.
    // Bytes of all allocations so far, and of those that the driver is making.
    std::uint64_t begun = 0, pending = 0;
    bool is_host = false;
  };
  // As Take, PutBack and Discount. What a destroyed pool has handed out is counted by itself.
  std::optional<Pool> TakePool(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);
  void PutBackPool(PoolHandle pool, const Pool& taken) GPUSHARED_EXCLUDES(mutex_);
  void DiscountPool(PoolHandle pool, const Pool& taken) GPUSHARED_EXCLUDES(mutex_);

 private:
  struct Account {
    std::uint64_t limit = kNoLimit, held = 0;
    ipc::GateUse* use = nullptr;

    std::uint64_t room() const { return limit > held ? limit - held : 0; }
    // Sets the memory that is held.
    void Hold(std::uint64_t bytes);
  };
  struct Physical {
    int gpu = 0;
    std::uint64_t bytes = 0;
    std::uint32_t references = 0, mappings = 0;
  };
  struct PoolUse {
    std::uint64_t reserved = 0, used = 0;
  };
  using Records = std::unordered_map<std::uint64_t, Allocation>;

  // No value if the driver does not tell.
  static std::optional<PoolUse> Ask(PoolHandle pool);
  std::vector<PoolHandle> GetPools(int gpu) GPUSHARED_EXCLUDES(mutex_);
  Pool GetPool(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);
  // Releases the unused memory of a GPU's pools. Does nothing during a capture.
  void TrimPools(int gpu) GPUSHARED_EXCLUDES(mutex_);
  void LogRejection(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);

  Account& account(int gpu) GPUSHARED_REQUIRES(mutex_) {
    return accounts_.at(static_cast<std::size_t>(gpu));
  }
  bool TryReserve(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);
  void Charge(Pool& pool, std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);
  // Charges a pool with the size that the driver told after `before` was read.
  void ChargeTold(Pool& pool, const Pool& before, std::uint64_t reserved)
      GPUSHARED_REQUIRES(mutex_);
  Drop DropOne(std::uint64_t handle, DevicePointer address, std::uint32_t Physical::*count)
      GPUSHARED_REQUIRES(mutex_);

  const client::ForkGuard fork_guard_;
  Mutex mutex_;
  std::array<Account, kGpusMax> accounts_ GPUSHARED_GUARDED_BY(mutex_);
  std::array<Records, static_cast<std::size_t>(Kind::kCount)> records_ GPUSHARED_GUARDED_BY(mutex_);
  std::unordered_map<int, ContextHandle> primaries_ GPUSHARED_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Physical> physical_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<DevicePointer, std::uint64_t> mappings_ GPUSHARED_GUARDED_BY(mutex_);
  std::unordered_map<PoolHandle, Pool> pools_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_MEMORY_H_
