// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/memory.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "client_lib/drop_in/gate/driver_functions.h"
#include "client_lib/drop_in/gate/up_to_max.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in::gate {
namespace {

// CUmemPool_attribute.
constexpr int kPoolReserved = 5, kPoolUsed = 7;
// How long an allocation that perhaps does not fit waits for unfinished allocations of other
// threads in the pool before it is rejected.
constexpr std::chrono::milliseconds kPendingMax{100};

}  // namespace

MemoryQuota& MemoryQuota::Get() {
  static MemoryQuota& quota = *new MemoryQuota;
  return quota;
}

// ---- the limit

void MemoryQuota::SetLimit(int gpu, std::uint64_t bytes, ipc::GateUse& use) {
  const MutexLock lock(mutex_);
  Account& of = account(gpu);
  of.limit = bytes;
  of.use = &use;
  of.Hold(of.held);
}

void MemoryQuota::LiftLimit(int gpu, const ipc::GateUse& use) {
  const MutexLock lock(mutex_);
  Account& of = account(gpu);
  // Another thread may already have connected again.
  if (of.use != &use) return;
  of.limit = kNoLimit;
  of.use = nullptr;
}

std::uint64_t MemoryQuota::GetLimit(int gpu) {
  const MutexLock lock(mutex_);
  return account(gpu).limit;
}

std::uint64_t MemoryQuota::Left(int gpu) {
  const MutexLock lock(mutex_);
  const Account& of = account(gpu);
  return of.limit == kNoLimit ? kNoLimit : of.room();
}

void MemoryQuota::Account::Hold(std::uint64_t bytes) {
  held = bytes;
  if (use != nullptr) use->held_bytes.store(bytes, std::memory_order_relaxed);
}

bool MemoryQuota::TryReserve(int gpu, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  Account& of = account(gpu);
  if (of.limit != kNoLimit && bytes > of.room()) return false;
  of.Hold(of.held + bytes);
  return true;
}

bool MemoryQuota::Reserve(int gpu, std::uint64_t bytes) {
  if (TryReserve(gpu, bytes)) [[likely]]
    return true;
  TrimPools(gpu);
  if (TryReserve(gpu, bytes)) return true;
  LogRejection(gpu, bytes);
  return false;
}

void MemoryQuota::GiveBack(int gpu, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  Account& of = account(gpu);
  of.Hold(of.held - bytes);
}

bool MemoryQuota::Fits(int gpu, std::uint64_t bytes) {
  if (bytes <= Left(gpu)) return true;
  TrimPools(gpu);
  if (bytes <= Left(gpu)) return true;
  LogRejection(gpu, bytes);
  return false;
}

void MemoryQuota::LogRejection(int gpu, std::uint64_t bytes) {
  if (!IsLogging()) return;
  std::uint64_t held = 0, limit = 0;
  {
    const MutexLock lock(mutex_);
    held = account(gpu).held;
    limit = account(gpu).limit;
  }
  LogLine("gate mode: allocation of " + std::to_string(bytes) +
          " bytes rejected: the program holds " + std::to_string(held) + " bytes of its limit of " +
          std::to_string(limit) + " on GPU " + std::to_string(gpu));
}

// ---- memory that belongs to a context

void MemoryQuota::Record(Kind kind, std::uint64_t key, std::uint64_t reserved_bytes,
                         const Allocation& allocation) {
  const MutexLock lock(mutex_);
  Account& of = account(allocation.gpu);
  of.Hold(of.held - reserved_bytes + allocation.own_bytes());
  const auto [record, is_new] =
      records_[static_cast<std::size_t>(kind)].try_emplace(key, allocation);
  if (!is_new) {
    // The record is stale: the driver freed that memory in a call that has no hook.
    Account& before = account(record->second.gpu);
    before.Hold(before.held - record->second.own_bytes());
    record->second = allocation;
  }
}

std::optional<MemoryQuota::Allocation> MemoryQuota::Take(Kind kind, std::uint64_t key) {
  const MutexLock lock(mutex_);
  const auto taken = records_[static_cast<std::size_t>(kind)].extract(key);
  if (taken.empty()) return std::nullopt;
  return taken.mapped();
}

void MemoryQuota::PutBack(Kind kind, std::uint64_t key, const Allocation& allocation) {
  const MutexLock lock(mutex_);
  records_[static_cast<std::size_t>(kind)].insert_or_assign(key, allocation);
}

void MemoryQuota::Discount(const Allocation& allocation) {
  GiveBack(allocation.gpu, allocation.own_bytes());
}

void MemoryQuota::ForgetContext(ContextHandle context) {
  const MutexLock lock(mutex_);
  for (Records& records : records_) {
    std::erase_if(records, [&](const auto& record) GPUSHARED_REQUIRES(mutex_) {
      const Allocation& allocation = record.second;
      // Pools belong to no context.
      if (allocation.pool != nullptr || allocation.context != context) return false;
      Account& of = account(allocation.gpu);
      of.Hold(of.held - allocation.bytes);
      return true;
    });
  }
}

void MemoryQuota::SetPrimary(int gpu, ContextHandle context) {
  const MutexLock lock(mutex_);
  primaries_[gpu] = context;
}

ContextHandle MemoryQuota::TakePrimary(int gpu) {
  const MutexLock lock(mutex_);
  const auto taken = primaries_.extract(gpu);
  return taken.empty() ? nullptr : taken.mapped();
}

// ---- physical memory

void MemoryQuota::RecordPhysical(std::uint64_t handle, int gpu, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const auto [found, is_new] = physical_.try_emplace(handle);
  if (!is_new) {
    Account& before = account(found->second.gpu);
    before.Hold(before.held - found->second.bytes);
  }
  found->second = {.gpu = gpu, .bytes = bytes, .references = 1};
}

void MemoryQuota::AddReference(std::uint64_t handle) {
  const MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found != physical_.end()) ++found->second.references;
}

void MemoryQuota::AddMapping(DevicePointer address, std::uint64_t handle) {
  const MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || !mappings_.try_emplace(address, handle).second) return;
  ++found->second.mappings;
}

MemoryQuota::Drop MemoryQuota::DropOne(std::uint64_t handle, DevicePointer address,
                                       std::uint32_t Physical::*count) {
  Physical& physical = physical_[handle];
  --(physical.*count);
  const bool is_last = physical.references == 0 && physical.mappings == 0;
  const Drop drop = {.handle = handle,
                     .gpu = physical.gpu,
                     .bytes = physical.bytes,
                     .address = address,
                     .is_last = is_last};
  if (is_last) physical_.erase(handle);
  return drop;
}

std::vector<MemoryQuota::Drop> MemoryQuota::DropReference(std::uint64_t handle) {
  const MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0) return {};
  return {DropOne(handle, 0, &Physical::references)};
}

std::vector<MemoryQuota::Drop> MemoryQuota::DropMappings(DevicePointer address,
                                                         std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  std::vector<Drop> drops;
  // One call may remove several mappings, each as a whole.
  auto mapping = mappings_.lower_bound(address);
  while (mapping != mappings_.end() && mapping->first - address < bytes) {
    drops.push_back(DropOne(mapping->second, mapping->first, &Physical::mappings));
    mapping = mappings_.erase(mapping);
  }
  return drops;
}

void MemoryQuota::Finish(const std::vector<Drop>& drops, bool is_done) {
  const MutexLock lock(mutex_);
  for (const Drop& drop : drops) {
    if (is_done) {
      Account& of = account(drop.gpu);
      if (drop.is_last) of.Hold(of.held - drop.bytes);
      continue;
    }
    Physical& physical = physical_[drop.handle];
    physical.gpu = drop.gpu;
    physical.bytes = drop.bytes;
    if (drop.address == 0) {
      ++physical.references;
    } else if (mappings_.try_emplace(drop.address, drop.handle).second) {
      ++physical.mappings;
    }
  }
}

// ---- pools

std::optional<MemoryQuota::PoolUse> MemoryQuota::Ask(PoolHandle pool) {
  PoolUse use;
  const auto ask = driver_functions.pool_get_attribute;
  if (ask == nullptr || ask(pool, kPoolReserved, &use.reserved) != Code::kSuccess ||
      ask(pool, kPoolUsed, &use.used) != Code::kSuccess) {
    return std::nullopt;
  }
  return use;
}

MemoryQuota::Pool MemoryQuota::GetPool(PoolHandle pool) {
  const MutexLock lock(mutex_);
  const auto found = pools_.find(pool);
  return found == pools_.end() ? Pool{} : found->second;
}

std::vector<PoolHandle> MemoryQuota::GetPools(int gpu) {
  const MutexLock lock(mutex_);
  std::vector<PoolHandle> pools;
  for (const auto& [handle, pool] : pools_) {
    if (!pool.is_host && pool.gpu == gpu) pools.push_back(handle);
  }
  return pools;
}

void MemoryQuota::Charge(Pool& pool, std::uint64_t bytes) {
  Account& of = account(pool.gpu);
  of.Hold(of.held - pool.charged + bytes);
  pool.charged = bytes;
}

void MemoryQuota::ChargeReported(Pool& pool, const Pool& before, std::uint64_t reserved) {
  // Unless this holds, the pool may have grown since the driver answered, or may be about to grow.
  const bool is_current = before.pending == 0 && pool.pending == 0 && pool.begun == before.begun;
  Charge(pool, is_current ? reserved : std::max(pool.charged, reserved));
}

MemoryQuota::PoolAnswer MemoryQuota::ReserveInPool(PoolHandle handle, int gpu,
                                                   std::uint64_t bytes) {
  const auto deadline = std::chrono::steady_clock::now() + kPendingMax;
  for (bool has_trimmed = false;;) {
    const Pool before = GetPool(handle);
    const std::optional<PoolUse> reported = Ask(handle);
    if (!reported) return PoolAnswer::kUnknown;
    bool is_certain = false;
    {
      const MutexLock lock(mutex_);
      Pool& pool = pools_.try_emplace(handle, Pool{.gpu = gpu}).first->second;
      gpu = pool.gpu;
      // Bytes of allocations that the driver's answer may or may not include.
      const std::uint64_t uncertain = before.pending + (pool.begun - before.begun);
      const std::uint64_t size =
          std::max(reported->reserved, AddUpToMax(reported->used + uncertain, bytes));
      const Account& of = account(gpu);
      const std::uint64_t others = of.held - pool.charged;
      if (of.limit == kNoLimit || (others <= of.limit && size <= of.limit - others)) {
        Charge(pool, size);
        pool.begun += bytes;
        pool.pending += bytes;
        return PoolAnswer::kReserved;
      }
      is_certain = uncertain == 0;
    }
    if (!is_certain && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    } else if (!has_trimmed) {
      TrimPools(gpu);
      has_trimmed = true;
    } else {
      LogRejection(gpu, bytes);
      return PoolAnswer::kRejected;
    }
  }
}

void MemoryQuota::SettleInPool(PoolHandle handle, std::uint64_t bytes,
                               std::optional<DevicePointer> address) {
  Pool before = GetPool(handle);
  if (address) {
    Record(Kind::kAddress, *address, 0, {.gpu = before.gpu, .bytes = bytes, .pool = handle});
  }
  before.pending -= bytes;
  const std::optional<PoolUse> reported = Ask(handle);
  const MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  if (found == pools_.end()) return;
  found->second.pending -= bytes;
  // The driver reserves in large steps, so the pool may have grown by more than was requested.
  if (reported) ChargeReported(found->second, before, reported->reserved);
}

void MemoryQuota::Refresh(PoolHandle handle) {
  const OutsideCaptures outside;
  if (!outside) return;
  const Pool before = GetPool(handle);
  const std::optional<PoolUse> reported = Ask(handle);
  if (!reported) return;
  const MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  if (found != pools_.end()) ChargeReported(found->second, before, reported->reserved);
}

void MemoryQuota::RefreshPools(int gpu) {
  for (const PoolHandle pool : GetPools(gpu)) Refresh(pool);
}

void MemoryQuota::TrimPools(int gpu) {
  const OutsideCaptures outside;
  if (!outside || driver_functions.pool_trim == nullptr) return;
  for (const PoolHandle pool : GetPools(gpu)) {
    (void)driver_functions.pool_trim(pool, 0);
    Refresh(pool);
  }
}

void MemoryQuota::AddPool(PoolHandle pool, int gpu) {
  const MutexLock lock(mutex_);
  pools_.try_emplace(pool, Pool{.gpu = gpu});
}

void MemoryQuota::AddHostPool(PoolHandle pool) {
  const MutexLock lock(mutex_);
  pools_[pool].is_host = true;
}

bool MemoryQuota::IsHostPool(PoolHandle pool) { return GetPool(pool).is_host; }

std::optional<MemoryQuota::Pool> MemoryQuota::TakePool(PoolHandle pool) {
  const MutexLock lock(mutex_);
  const auto taken = pools_.extract(pool);
  if (taken.empty()) return std::nullopt;
  return taken.mapped();
}

void MemoryQuota::PutBackPool(PoolHandle pool, const Pool& taken) {
  const MutexLock lock(mutex_);
  pools_.insert_or_assign(pool, taken);
}

void MemoryQuota::DiscountPool(PoolHandle pool, const Pool& taken) {
  const MutexLock lock(mutex_);
  Account& of = account(taken.gpu);
  std::uint64_t held = of.held - taken.charged;
  for (auto& [address, allocation] : records_[static_cast<std::size_t>(Kind::kAddress)]) {
    if (allocation.pool != pool) continue;
    allocation.pool = nullptr;
    held += allocation.bytes;
  }
  of.Hold(held);
}

}  // namespace gpushared::drop_in::gate
