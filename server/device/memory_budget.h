// SPDX-License-Identifier: Apache-2.0
// Accounting of device memory in bytes: counting, rounding and formatting.

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
// Unit in which module variables are placed and counted.
inline constexpr std::uint64_t kPageBytes = 4096;
// Top part of every range, reserved for the variables of the client's modules. It is inside the
// range so that one mask fences the variables together with the client's memory, and outside of the
// mapped part so that an allocation never overlaps it.
inline constexpr std::uint64_t kModuleAreaBytes = std::uint64_t{256} << 20;

constexpr std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t step) {
  return (bytes + step - 1) / step * step;
}

// Returns the error for chunks in swappable memory.
Status NoChunksWhereMemorySwaps();

// Formats the size. Rounds down, so that reported free memory never exceeds the actual amount.
std::string Mebibytes(std::uint64_t bytes);

// Returns the number of addresses that a range has beyond its memory quota. Addresses cost nothing,
// and programs reserve several times what they map.
constexpr std::uint64_t SpareAddresses(std::uint64_t quota_bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{256} << 30;
  return quota_bytes < kMost / 4 ? 4 * quota_bytes : kMost;
}

// Memory that all clients of one device may use together, in bytes. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t total_bytes) : total_bytes_(total_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Takes memory if `left_free_bytes` remain free after that.
  bool TryTake(std::uint64_t bytes, std::uint64_t left_free_bytes = 0);
  void Return(std::uint64_t bytes);
  std::uint64_t total_bytes() const { return total_bytes_; }
  std::uint64_t free_bytes() const;

 private:
  const std::uint64_t total_bytes_;
  // All accesses are relaxed, because no other data depends on the count.
  std::atomic<std::uint64_t> used_bytes_{0};
};

// Memory that one client has taken from a budget, up to its quota. The destructor returns all of
// it. A client may be required to leave part of the budget free for others.
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

  // Fails with kOutOfMemory, with the free amount in the message, if quota or budget do not
  // suffice. `purpose` names the request in the error.
  Status Take(std::uint64_t bytes, const char* purpose);
  void Return(std::uint64_t bytes);
  // Swapped-out bytes count against the quota, but not against the budget.
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
  std::uint64_t out_bytes_ = 0;  // Swapped-out part of the taken memory.
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_MEMORY_BUDGET_H_
