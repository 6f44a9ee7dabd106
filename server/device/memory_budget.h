// SPDX-License-Identifier: Apache-2.0
// Bytes of device memory: how they are counted, rounded and named.

#ifndef GPUSHARED_SERVER_DEVICE_MEMORY_BUDGET_H_
#define GPUSHARED_SERVER_DEVICE_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gpushared/limits.h"
#include "gpushared/status.h"

namespace gpushared::device {

inline constexpr std::uint64_t kRangeBytesMin = std::uint64_t{4} << 30;
// Module variables are placed and counted in pages.
inline constexpr std::uint64_t kPageBytes = 4096;
// Top part of every range, for the variables of the client's modules. They lie inside the
// range, so one mask fences them together with the client's memory. They lie outside the
// mapped part, so an allocation never meets them.
inline constexpr std::uint64_t kModuleAreaBytes = std::uint64_t{256} << 20;

constexpr std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t step) {
  return (bytes + step - 1) / step * step;
}

// Why memory that may move has no chunks.
Status NoChunksWhereMemorySwaps();

// Rounded down, so that what is called free is never more than there is.
std::string Mebibytes(std::uint64_t bytes);

// Addresses that a range has beyond the memory it can hold, where they cost nothing. Programs
// reserve several times what they map.
constexpr std::uint64_t SpareAddresses(std::uint64_t quota_bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{256} << 30;
  return quota_bytes < kMost / 4 ? 4 * quota_bytes : kMost;
}

// The bytes that all clients of one device may use together. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t total_bytes) : total_bytes_(total_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Only if so many bytes stay free.
  bool TryTake(std::uint64_t bytes, std::uint64_t left_free_bytes = 0);
  void Return(std::uint64_t bytes);
  std::uint64_t total_bytes() const { return total_bytes_; }
  std::uint64_t free_bytes() const;

 private:
  const std::uint64_t total_bytes_;
  // Relaxed everywhere: the count orders nothing but itself.
  std::atomic<std::uint64_t> used_bytes_{0};
};

// What one client holds of a budget, up to its quota. Returns it all when destroyed. A client may
// have to leave a part of the budget free, for others.
//
// Thread-compatible.
class MemoryAccount {
 public:
  MemoryAccount(std::uint64_t quota_bytes, std::shared_ptr<MemoryBudget> budget,
                std::uint64_t left_free_bytes = 0)
      : quota_bytes_(quota_bytes), left_free_bytes_(left_free_bytes), budget_(std::move(budget)) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;
  ~MemoryAccount() { budget_->Return(used_bytes_ - out_bytes_); }

  // kOutOfMemory, with what is free, when quota or budget do not suffice. `purpose` is what is
  // then rejected.
  Status Take(std::uint64_t bytes, const char* purpose);
  void Return(std::uint64_t bytes);
  // Bytes that are moved out are held, and are not of the budget.
  void SwapOut(std::uint64_t bytes);
  Status SwapIn(std::uint64_t bytes);
  void ReturnSwappedOut(std::uint64_t bytes);
  std::uint64_t quota_bytes() const { return quota_bytes_; }
  std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  Status TakeOfBudget(std::uint64_t bytes, const char* purpose);

  const std::uint64_t quota_bytes_;
  const std::uint64_t left_free_bytes_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t out_bytes_ = 0;  // Of these: moved out.
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_MEMORY_BUDGET_H_
