// SPDX-License-Identifier: Apache-2.0
#include "server/platform/log_rate.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace gpushared::server {
namespace {

constexpr std::uint32_t kRoot = 0;

std::string Lines(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " line" : " lines");
}

}  // namespace

void LogRate::Fill(Bucket& bucket, const Bound& bound, TimePoint now) {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - bucket.filled_at);
  // An hour fills every bucket, so longer times are clamped, which keeps the product within 64
  // bits.
  const std::int64_t us = std::min<std::int64_t>(passed.count(), 3'600'000'000);
  const std::int64_t added = us * bound.bytes_per_second / 1'000'000;
  if (added <= 0) return;  // `filled_at` stays unchanged so that fractions of a byte accumulate.
  bucket.left_bytes = std::min(bound.burst_bytes, bucket.left_bytes + added);
  bucket.filled_at = now;
}

bool LogRate::IsFull(Bucket bucket, const Bound& bound, TimePoint now) {
  Fill(bucket, bound, now);
  return bucket.left_bytes >= bound.burst_bytes;
}

// Returns null if too many processes are tracked.
LogRate::Bucket* LogRate::OfProcess(Cause cause, TimePoint now) {
  const std::uint64_t key = std::uint64_t{cause.uid} << 32 | static_cast<std::uint32_t>(cause.pid);
  if (const auto found = processes_.find(key); found != processes_.end()) return &found->second;
  if (processes_.size() >= kProcessesMax) {
    std::erase_if(processes_,
                  [&](const auto& entry) { return IsFull(entry.second, limits_.process, now); });
    if (processes_.size() >= kProcessesMax) return nullptr;
  }
  return &processes_.emplace(key, Bucket{limits_.process.burst_bytes, now}).first->second;
}

LogRate::PerUser& LogRate::GetUser(std::uint32_t uid, TimePoint now) {
  if (const auto found = uids_.find(uid); found != uids_.end()) return found->second;
  const PerUser fresh{.bucket = {limits_.uid.burst_bytes, now}};
  if (uids_.size() >= kUidsMax) {
    std::erase_if(uids_, [&](const auto& entry) {
      return entry.second.held_back == 0 && IsFull(entry.second.bucket, limits_.uid, now);
    });
    if (uids_.size() >= kUidsMax) return other_uids_ ? *other_uids_ : other_uids_.emplace(fresh);
  }
  return uids_.emplace(uid, fresh).first->second;
}

bool LogRate::Allow(Cause cause, std::size_t bytes, TimePoint now) {
  const bool is_trusted = cause.uid == kRoot || cause.uid == own_uid_;
  if (!all_) all_ = Bucket{limits_.all.burst_bytes, now};
  PerUser& of_uid = GetUser(cause.uid, now);
  Bucket* const process = OfProcess(cause, now);
  Fill(*all_, limits_.all, now);
  Fill(of_uid.bucket, limits_.uid, now);
  if (process != nullptr) Fill(*process, limits_.process, now);
  // A line is written in full as long as none of its budgets is used up. A budget that becomes
  // negative must be refilled before the next line.
  const bool allowed = (process == nullptr || process->left_bytes > 0) &&
                       of_uid.bucket.left_bytes > 0 && (is_trusted || all_->left_bytes > 0);
  if (!allowed) {
    ++of_uid.held_back;
    if (!held_back_since_) held_back_since_ = now;
    return false;
  }
  const std::int64_t cost = kLineBytes + static_cast<std::int64_t>(bytes);
  if (process != nullptr) process->left_bytes -= cost;
  of_uid.bucket.left_bytes -= cost;
  all_->left_bytes -= cost;
  return true;
}

std::optional<LogRate::TimePoint> LogRate::report_due() const {
  if (!held_back_since_) return std::nullopt;
  return *held_back_since_ + limits_.report_interval;
}

std::optional<std::string> LogRate::Report(TimePoint now) {
  if (!held_back_since_ || now < *report_due()) return std::nullopt;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> most;
  for (auto& [uid, entry] : uids_) {
    if (entry.held_back > 0) most.emplace_back(std::exchange(entry.held_back, 0), uid);
  }
  std::ranges::stable_sort(most, std::greater<>(), [](const auto& each) { return each.first; });
  std::uint64_t others = other_uids_ ? std::exchange(other_uids_->held_back, 0) : 0;
  std::string text;
  for (std::size_t i = 0; i < most.size(); ++i) {
    if (i >= kUidsNamedMax) {
      others += most[i].first;
      continue;
    }
    text += (text.empty() ? "held back " : ", ") + Lines(most[i].first) + " about uid " +
            std::to_string(most[i].second);
  }
  if (others > 0) {
    text += (text.empty() ? "held back " : ", ") + Lines(others) + " about other uids";
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - *held_back_since_);
  held_back_since_.reset();
  return text + " in " + std::to_string(seconds.count()) + " s";
}

}  // namespace gpushared::server
