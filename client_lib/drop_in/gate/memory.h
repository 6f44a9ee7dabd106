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
// sessions set. GPUs are identified by their driver ordinals, which are below kGpusMax.
//
// A hook reserves the bytes before it calls the driver, because concurrent allocations could
// otherwise exceed the limit together. It records the allocation after the call has succeeded. A
// hook that frees memory removes the record of that memory before the call, because the driver may
// return the same address to another thread as soon as the memory is free. The bytes count until
// the call has succeeded.
//
// Not counted: host memory; imported memory, which the exporting process counts; and the memory of
// contexts, modules and graphs.
//
// Thread-safe. No lock is held during a call of the driver.
class MemoryQuota {
 public:
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

  // Returns the quota of this process. Never destroyed, because threads may allocate until the
  // process ends.
  static MemoryQuota& Get();

  // Returns false in a forked child. There, no other function may be called, because a thread of
  // the parent may have held the lock. CUDA does not work in the child of a process that has used
  // CUDA, so nothing needs to be counted there.
  bool InOwner() const { return fork_guard_.InOwner(); }

  // Called when a session begins, and when it is lost. Without a session there is no limit. `use`
  // reports the held memory to the server and must exist until LiftLimit.
  void SetLimit(int gpu, std::uint64_t bytes, ipc::GateUse& use) GPUSHARED_EXCLUDES(mutex_);
  void LiftLimit(int gpu, const ipc::GateUse& use) GPUSHARED_EXCLUDES(mutex_);

  // Returns how many more bytes the limit allows, or kNoLimit.
  std::uint64_t Left(int gpu) GPUSHARED_EXCLUDES(mutex_);
  std::uint64_t GetLimit(int gpu) GPUSHARED_EXCLUDES(mutex_);

  // Reserves memory. If the limit leaves too little, first releases unused memory of the pools.
  // Returns false if the limit still leaves too little.
  bool Reserve(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);
  void GiveBack(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);
  // Returns whether Reserve would succeed, after the same release of pool memory.
  bool Fits(int gpu, std::uint64_t bytes) GPUSHARED_EXCLUDES(mutex_);

  // ---- memory that belongs to a context

  enum class Kind { kAddress, kArray, kMipmappedArray, kCount };
  struct Allocation {
    int gpu = 0;
    std::uint64_t bytes = 0;
    ContextHandle context = nullptr;  // Context with which the memory ends.
    // Pool that contains the memory and is charged for it; null if there is none.
    PoolHandle pool = nullptr;

    std::uint64_t own_bytes() const { return pool == nullptr ? bytes : 0; }
  };
  // Records an allocation for which `reserved_bytes` were reserved before.
  void Record(Kind kind, std::uint64_t key, std::uint64_t reserved_bytes,
              const Allocation& allocation) GPUSHARED_EXCLUDES(mutex_);
  // Removes a record before the driver frees its memory. No value if there is none.
  std::optional<Allocation> Take(Kind kind, std::uint64_t key) GPUSHARED_EXCLUDES(mutex_);
  // Called with a taken record after the driver's call: PutBack if the call has failed, Discount if
  // it has succeeded.
  void PutBack(Kind kind, std::uint64_t key, const Allocation& allocation)
      GPUSHARED_EXCLUDES(mutex_);
  void Discount(const Allocation& allocation) GPUSHARED_EXCLUDES(mutex_);

  // Called when the context has ended.
  void ForgetContext(ContextHandle context) GPUSHARED_EXCLUDES(mutex_);
  // SetPrimary records the primary context of a GPU. TakePrimary removes and returns it; null if
  // none is recorded.
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
    DevicePointer address = 0;  // Address of the mapping; 0 if this is a reference.
    bool is_last = false;
  };
  // Remove one reference, or all mappings in a range, before the driver does. Return what was
  // removed; empty for memory that is not counted.
  std::vector<Drop> DropReference(std::uint64_t handle) GPUSHARED_EXCLUDES(mutex_);
  std::vector<Drop> DropMappings(DevicePointer address, std::uint64_t bytes)
      GPUSHARED_EXCLUDES(mutex_);
  // Called after the driver's call. If the call has failed (`is_done` is false), restores `drops`.
  void Finish(const std::vector<Drop>& drops, bool is_done) GPUSHARED_EXCLUDES(mutex_);

  // ---- pools: charged with what the driver has reserved for them, used or not

  enum class PoolAnswer { kReserved, kRejected, kUnknown };
  // Reserves the bytes by which the pool must grow for an allocation of `bytes`. kUnknown: the
  // driver does not report the pool's size. A pool that is not yet known is added to this GPU.
  PoolAnswer ReserveInPool(PoolHandle pool, int gpu, std::uint64_t bytes)
      GPUSHARED_EXCLUDES(mutex_);
  // Called after the driver's call. `address` has no value if that call has failed.
  void SettleInPool(PoolHandle pool, std::uint64_t bytes, std::optional<DevicePointer> address)
      GPUSHARED_EXCLUDES(mutex_);
  // Charge one pool, or all pools of a GPU, with the current size. Both functions do nothing during
  // a capture.
  void Refresh(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);
  void RefreshPools(int gpu) GPUSHARED_EXCLUDES(mutex_);

  void AddPool(PoolHandle pool, int gpu) GPUSHARED_EXCLUDES(mutex_);
  // Pools of host memory are not counted.
  void AddHostPool(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);
  bool IsHostPool(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);

  struct Pool {
    int gpu = 0;
    std::uint64_t charged = 0;  // Part of Account::held.
    // Bytes of all allocations begun so far, and of those begun allocations for which SettleInPool
    // has not been called.
    std::uint64_t begun = 0, pending = 0;
    bool is_host = false;
  };
  // As Take, PutBack and Discount. Allocations that outlive their destroyed pool are counted one by
  // one from then on.
  std::optional<Pool> TakePool(PoolHandle pool) GPUSHARED_EXCLUDES(mutex_);
  void PutBackPool(PoolHandle pool, const Pool& taken) GPUSHARED_EXCLUDES(mutex_);
  void DiscountPool(PoolHandle pool, const Pool& taken) GPUSHARED_EXCLUDES(mutex_);

 private:
  struct Account {
    std::uint64_t limit = kNoLimit, held = 0;
    ipc::GateUse* use = nullptr;

    std::uint64_t room() const { return limit > held ? limit - held : 0; }
    // Sets `held` and reports it to the server.
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

  // No value if the driver does not report the pool's size.
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
  // Charges a pool with the size that the driver reported after `before` was read.
  void ChargeReported(Pool& pool, const Pool& before, std::uint64_t reserved)
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
