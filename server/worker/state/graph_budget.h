// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_GRAPH_BUDGET_H_
#define GPUSHARED_SERVER_WORKER_STATE_GRAPH_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace gpushared::server {

// Host memory of a worker for the graphs of all clients. Half of it is divided evenly among the
// sessions, so that every session can have a graph no matter how much others use. The other half is
// first come, first served.
//
// Only the device thread takes bytes. Any thread may return them, because a session ends on another
// thread.
class GraphBudget {
 public:
  GraphBudget(std::uint64_t bytes, std::uint32_t sessions_max)
      : total_(bytes),
        assured_(bytes / 2 / std::max(1u, sessions_max)),
        shared_(bytes - assured_ * sessions_max) {}

  // Changes a client's `held` bytes to `now`.
  void Note(std::uint64_t held, std::uint64_t now) {
    held_.fetch_add(now - held, std::memory_order_relaxed);  // Relaxed: a count.
    // Relaxed: a count.
    shared_held_.fetch_add(OfShared(now) - OfShared(held), std::memory_order_relaxed);
  }
  // Returns by how many bytes the budget would be exceeded if a client's `held` bytes became
  // `then`.
  std::uint64_t GetExcess(std::uint64_t held, std::uint64_t then) const {
    // Relaxed, because only this thread takes bytes; others can merely return some.
    const std::uint64_t all =
        shared_held_.load(std::memory_order_relaxed) + OfShared(then) - OfShared(held);
    return std::min(all - std::min(all, shared_), OfShared(then));
  }

  std::uint64_t held() const { return held_.load(std::memory_order_relaxed); }  // Relaxed: a count.
  std::uint64_t total() const { return total_; }

 private:
  std::uint64_t OfShared(std::uint64_t held) const { return held - std::min(held, assured_); }

  const std::uint64_t total_;
  const std::uint64_t assured_;  // Bytes that every session can take regardless of the others' use.
  const std::uint64_t shared_;
  std::atomic<std::uint64_t> held_ = 0;
  std::atomic<std::uint64_t> shared_held_ = 0;
};

// Bytes of one client's graphs.
//
// Confined to the thread that owns the client's state.
class GraphBytes {
 public:
  explicit GraphBytes(std::shared_ptr<GraphBudget> budget) : budget_(std::move(budget)) {}
  GraphBytes(const GraphBytes&) = delete;
  GraphBytes& operator=(const GraphBytes&) = delete;

  void Take(std::uint64_t bytes) { Set(held_ + bytes); }
  void GiveBack(std::uint64_t bytes) { Set(held_ - bytes); }
  std::uint64_t held() const { return held_; }
  const GraphBudget& budget() const { return *budget_; }

 private:
  void Set(std::uint64_t now) { budget_->Note(std::exchange(held_, now), now); }

  const std::shared_ptr<GraphBudget> budget_;
  std::uint64_t held_ = 0;
};

// Charge for one object, held for as long as the object exists. A copy of the object is charged the
// same amount.
class GraphCharge {
 public:
  GraphCharge() = default;  // Charges nothing.
  GraphCharge(std::shared_ptr<GraphBytes> of, std::uint64_t bytes) : of_(std::move(of)) {
    Add(bytes);
  }
  GraphCharge(const GraphCharge& other) : of_(other.of_) { Add(other.bytes_); }
  GraphCharge& operator=(GraphCharge other) {
    std::swap(of_, other.of_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~GraphCharge() {
    if (of_ != nullptr) of_->GiveBack(bytes_);
  }

  void Add(std::uint64_t bytes) {
    if (of_ != nullptr) of_->Take(bytes);
    bytes_ += bytes;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<GraphBytes> of_;
  std::uint64_t bytes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_GRAPH_BUDGET_H_
