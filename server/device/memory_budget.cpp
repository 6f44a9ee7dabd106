// SPDX-License-Identifier: Apache-2.0
#include "server/device/memory_budget.h"

#include <utility>

#include "gpushared/check.h"

namespace gpushared::device {

std::string Mebibytes(std::uint64_t bytes) {
  if (bytes < (std::uint64_t{1} << 20)) return std::to_string(bytes / 1024) + " KiB";
  return std::to_string(bytes >> 20) + " MiB";
}

Status NoChunksWhereMemorySwaps() {
  return {StatusCode::kUnsupported,
          "memory rejected: a client that may hold more device memory than is guaranteed to it "
          "(memory_limit) cannot map memory in parts, because such memory cannot be swapped; "
          "connect it with a limit of at most its guarantee"};
}

bool MemoryBudget::TryTake(std::uint64_t bytes, std::uint64_t left_free_bytes) {
  std::uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    const std::uint64_t free = total_bytes_ - used;
    if (bytes > free || free - bytes < left_free_bytes) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

void MemoryBudget::Return(std::uint64_t bytes) {
  const std::uint64_t before = used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  Check(before >= bytes, "memory is returned once");
}

std::uint64_t MemoryBudget::free_bytes() const {
  return total_bytes_ - used_bytes_.load(std::memory_order_relaxed);
}

Status MemoryAccount::Take(std::uint64_t bytes, const char* purpose) {
  if (bytes > quota_bytes_ - used_bytes_) {
    return {StatusCode::kOutOfMemory, std::string(purpose) + " rejected: " + Mebibytes(bytes) +
                                          " asked, " + Mebibytes(quota_bytes_ - used_bytes_) +
                                          " of the quota of " + Mebibytes(quota_bytes_) +
                                          " are free"};
  }
  if (Status taken = TakeOfBudget(bytes, purpose); !taken.ok()) return taken;
  used_bytes_ += bytes;
  return {};
}

Status MemoryAccount::TakeOfBudget(std::uint64_t bytes, const char* purpose) {
  // Returning or taking zero bytes always succeeds.
  if (bytes > 0 && !budget_->TryTake(bytes, left_free_bytes_)) {
    std::string text = std::string(purpose) + " rejected: " + Mebibytes(bytes) + " asked, " +
                       Mebibytes(budget_->free_bytes()) + " of the device's " +
                       Mebibytes(budget_->total_bytes()) + " are free";
    if (left_free_bytes_ > 0) {
      text += ", and " + Mebibytes(left_free_bytes_) +
              " must remain free for clients that may be of class high";
    }
    return {StatusCode::kOutOfMemory, std::move(text)};
  }
  return {};
}

void MemoryAccount::Return(std::uint64_t bytes) {
  used_bytes_ -= bytes;
  budget_->Return(bytes);
}

void MemoryAccount::SwapOut(std::uint64_t bytes) {
  out_bytes_ += bytes;
  budget_->Return(bytes);
}

Status MemoryAccount::SwapIn(std::uint64_t bytes) {
  if (Status taken = TakeOfBudget(bytes, "swap-in"); !taken.ok()) return taken;
  out_bytes_ -= bytes;
  return {};
}

void MemoryAccount::ReturnSwappedOut(std::uint64_t bytes) {
  used_bytes_ -= bytes;
  out_bytes_ -= bytes;
}

}  // namespace gpushared::device
