// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_LOADER_LOAD_QUEUE_H_
#define GPUSHARED_SERVER_MODULES_LOADER_LOAD_QUEUE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace gpushared::loader {

// Selects the next module to read. The most urgent class goes first. Within a class, the user with
// the least reader time is next, then that user's client with the least, then the smallest image of
// that client. Accumulated time is halved every kForgetHalf. If a lane has several readers, a user
// who already has a reader cannot take the last free one, so that other users do not wait for a
// user with many modules.
//
// Pure: the caller passes the time. Thread-compatible.
class LoadQueue {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kForgetHalf{10};

  // Each lane has separate readers, so that a job does not wait for longer ones. The lanes are for
  // small modules, and for modules that may be quick, may take a moderate time, or take long.
  enum class Lane : std::uint8_t { kSmall, kQuick, kMedium, kLong };
  static constexpr std::size_t kLanes = 4;
  struct Entry {
    std::uint64_t number = 0;  // Assigned by the caller, in ascending order.
    std::uint64_t session = 0;
    std::uint32_t uid = 0;
    std::uint8_t rank = 0;  // Scheduling class; 0 is the most urgent.
    std::uint64_t bytes = 0;
    Lane lane = Lane::kQuick;
  };

  void Add(const Entry& entry) { waiting_.push_back(entry); }
  // Returns the next job for one of the lane's `readers`. That reader is busy until Charge.
  std::optional<Entry> Take(Lane lane, Clock::time_point now, std::uint32_t readers = 1);
  // Removes the waiting jobs of a session and returns their numbers.
  std::vector<std::uint64_t> Remove(std::uint64_t session);
  void SetRank(std::uint64_t session, std::uint8_t rank);
  // Records that a reader worked on the entry for this long and is idle again.
  void Charge(const Entry& entry, std::chrono::nanoseconds time, Clock::time_point now);

  std::size_t size() const { return waiting_.size(); }

 private:
  struct Usage {
    double seconds = 0;
    Clock::time_point at;
    double Now(Clock::time_point now) const;
    void Add(double more, Clock::time_point now);
  };
  template <typename Key>
  static double Of(const std::map<Key, Usage>& usages, Key key, Clock::time_point now);
  template <typename Key>
  static void Forget(std::map<Key, Usage>& usages, Clock::time_point now);

  // Returns the number of readers of the lane that are working.
  std::uint32_t GetReaders(Lane lane) const;
  std::uint32_t& GetReaders(Lane lane, std::uint32_t uid) {
    return at_work_[static_cast<std::size_t>(lane)][uid];
  }

  std::vector<Entry> waiting_;
  std::array<std::map<std::uint32_t, std::uint32_t>, kLanes> at_work_;  // Working readers, by user.
  std::map<std::uint32_t, Usage> by_uid_;
  std::map<std::uint64_t, Usage> by_session_;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_LOAD_QUEUE_H_
