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

// Whose module is read next. The most urgent class goes first. Within a class it is the
// user who has had the least of the readers' time, then his client who has had the least. The
// smallest image of that client goes first. Half of what somebody has had is forgotten every
// kForgetHalf. Where a lane has several readers, one is kept from each user who has another:
// however much a user brings, the next one does not wait for it.
//
// Pure, told the time; thread-compatible.
class LoadQueue {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kForgetHalf{10};

  // Readers serve one lane each, so that a job waits for none of a longer kind: modules that are
  // small, those that may be quick, those that may end soon, and those that take long.
  enum class Lane : std::uint8_t { kSmall, kQuick, kMedium, kLong };
  static constexpr std::size_t kLanes = 4;
  struct Entry {
    std::uint64_t number = 0;  // The caller's, ascending.
    std::uint64_t session = 0;
    std::uint32_t uid = 0;
    std::uint8_t rank = 0;  // Class, 0 the most urgent.
    std::uint64_t bytes = 0;
    Lane lane = Lane::kQuick;
  };

  void Add(const Entry& entry) { waiting_.push_back(entry); }
  // The next one for one of the lane's `readers`, of which it is at work until Charge.
  std::optional<Entry> Take(Lane lane, Clock::time_point now, std::uint32_t readers = 1);
  // What waits of a session; its numbers.
  std::vector<std::uint64_t> Remove(std::uint64_t session);
  void SetRank(std::uint64_t session, std::uint8_t rank);
  // A reader was at work for them so long, and is no more.
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

  std::uint32_t GetReaders(Lane lane) const;  // At work.
  std::uint32_t& GetReaders(Lane lane, std::uint32_t uid) {
    return at_work_[static_cast<std::size_t>(lane)][uid];
  }

  std::vector<Entry> waiting_;
  std::array<std::map<std::uint32_t, std::uint32_t>, kLanes> at_work_;  // Readers, by user.
  std::map<std::uint32_t, Usage> by_uid_;
  std::map<std::uint64_t, Usage> by_session_;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_LOAD_QUEUE_H_
