// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_GRAPH_BUDGET_H_
#define GPUSHARED_SERVER_WORKER_STATE_GRAPH_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace gpushared::server {

// The host memory that a worker has for the graphs of all its clients. Half of it is shared out
// evenly, so that every session can have a graph whatever the others hold. The other half goes to
// whoever asks first.
//
// Only the device thread takes. Any thread gives back: a session ends on another one.
class GraphBudget {
 public:
  GraphBudget(std::uint64_t bytes, std::uint32_t sessions_max)
      : total_(bytes),
        assured_(bytes / 2 / std::max(1u, sessions_max)),
        shared_(bytes - assured_ * sessions_max) {}

  // A client's `held` bytes become `now`.
  void Note(std::uint64_t held, std::uint64_t now) {
    held_.fetch_add(now - held, std::memory_order_relaxed);  // Relaxed: a count.
    // Relaxed: it orders nothing.
    shared_held_.fetch_add(OfShared(now) - OfShared(held), std::memory_order_relaxed);
  }
  // How many of a client's bytes would be too many if its `held` ones became `then`.
  std::uint64_t GetExcess(std::uint64_t held, std::uint64_t then) const {
    // Relaxed: a count. Nobody else takes meanwhile.
    const std::uint64_t all =
        shared_held_.load(std::memory_order_relaxed) + OfShared(then) - OfShared(held);
    return std::min(all - std::min(all, shared_), OfShared(then));
  }

  std::uint64_t held() const { return held_.load(std::memory_order_relaxed); }  // As above.
  std::uint64_t total() const { return total_; }

 private:
  std::uint64_t OfShared(std::uint64_t held) const { return held - std::min(held, assured_); }

  const std::uint64_t total_;
  const std::uint64_t assured_;  // To each session.
  const std::uint64_t shared_;
  std::atomic<std::uint64_t> held_ = 0;
  std::atomic<std::uint64_t> shared_held_ = 0;
};

// What the graphs of one client take of it.
//
// Confined to whoever has the client's state.
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

// The bytes of one object, for as long as it is there. A copy of the object takes as many.
class GraphCharge {
 public:
  GraphCharge() = default;  // Nobody's.
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
