// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/load_queue.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace gpushared::loader {
namespace {

// Smaller accumulated times are dropped.
constexpr double kLeastSeconds = 0.001;

}  // namespace

double LoadQueue::Usage::Now(Clock::time_point now) const {
  const std::chrono::duration<double> age = now - at;
  return seconds * std::exp2(-age / std::chrono::duration<double>(kForgetHalf));
}

void LoadQueue::Usage::Add(double more, Clock::time_point now) {
  seconds = Now(now) + more;
  at = now;
}

template <typename Key>
double LoadQueue::Of(const std::map<Key, Usage>& usages, Key key, Clock::time_point now) {
  const auto found = usages.find(key);
  return found == usages.end() ? 0 : found->second.Now(now);
}

template <typename Key>
void LoadQueue::Forget(std::map<Key, Usage>& usages, Clock::time_point now) {
  std::erase_if(usages, [&](const auto& each) { return each.second.Now(now) < kLeastSeconds; });
}

std::uint32_t LoadQueue::GetReaders(Lane lane) const {
  std::uint32_t sum = 0;
  for (const auto& [uid, count] : at_work_[static_cast<std::size_t>(lane)]) sum += count;
  return sum;
}

std::optional<LoadQueue::Entry> LoadQueue::Take(Lane lane, Clock::time_point now,
                                                std::uint32_t readers) {
  const auto& at_work = at_work_[static_cast<std::size_t>(lane)];
  const bool is_last = readers > 1 && GetReaders(lane) + 1 >= readers;
  const auto key = [&](const Entry& entry) {
    return std::tuple(entry.rank, Of(by_uid_, entry.uid, now), Of(by_session_, entry.session, now),
                      entry.bytes, entry.number);
  };
  auto best = waiting_.end();
  for (auto each = waiting_.begin(); each != waiting_.end(); ++each) {
    if (each->lane != lane || (is_last && at_work.contains(each->uid))) continue;
    if (best == waiting_.end() || key(*each) < key(*best)) best = each;
  }
  if (best == waiting_.end()) return std::nullopt;
  const Entry taken = *best;
  waiting_.erase(best);
  ++GetReaders(lane, taken.uid);
  return taken;
}

std::vector<std::uint64_t> LoadQueue::Remove(std::uint64_t session) {
  std::vector<std::uint64_t> removed;
  std::erase_if(waiting_, [&](const Entry& entry) {
    if (entry.session == session) removed.push_back(entry.number);
    return entry.session == session;
  });
  return removed;
}

void LoadQueue::SetRank(std::uint64_t session, std::uint8_t rank) {
  for (Entry& entry : waiting_) {
    if (entry.session == session) entry.rank = rank;
  }
}

void LoadQueue::Charge(const Entry& entry, std::chrono::nanoseconds time, Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(time).count();
  Forget(by_uid_, now);
  Forget(by_session_, now);
  by_uid_[entry.uid].Add(seconds, now);
  by_session_[entry.session].Add(seconds, now);
  auto& at_work = at_work_[static_cast<std::size_t>(entry.lane)];
  const auto found = at_work.find(entry.uid);
  if (found != at_work.end() && --found->second == 0) at_work.erase(found);
}

}  // namespace gpushared::loader
