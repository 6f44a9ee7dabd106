// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_STAGING_BUDGET_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_STAGING_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace gpushared::server {

// The host memory that a worker has for staging staging buffers. It is taken before the memory is
// made: a machine without free memory does not reject, it ends processes.
//
// Half of it is shared out evenly, so that every session can stage something whatever the
// others hold. The other half goes to whoever asks first. Ordinary sessions leave a part of that
// half to those that may use the reserve.
//
// Confined to the control thread.
class StagingBudget {
 public:
  StagingBudget(std::uint64_t bytes, std::uint32_t sessions_max, double kept)
      : assured_(bytes / 2 / std::max(1u, sessions_max)),
        shared_(bytes - assured_ * sessions_max),
        kept_(static_cast<std::uint64_t>(static_cast<double>(shared_) * kept)),
        shared_left_(shared_) {}

  // For a session that holds `held` bytes. False changes nothing.
  bool TryTake(std::uint64_t held, std::uint64_t bytes, bool may_use_reserve) {
    const std::uint64_t more = OfShared(held + bytes) - OfShared(held);
    if (more > SharedLeft(may_use_reserve)) return false;
    shared_left_ -= more;
    return true;
  }
  // `bytes` of the `held` ones.
  void GiveBack(std::uint64_t held, std::uint64_t bytes) {
    shared_left_ += OfShared(held) - OfShared(held - bytes);
  }

  // What a session that holds `held` bytes could get now, and what one alone could ever hold.
  std::uint64_t LeftFor(std::uint64_t held, bool may_use_reserve) const {
    return SharedLeft(may_use_reserve) + (assured_ - std::min(assured_, held));
  }
  std::uint64_t session_max(bool may_use_reserve) const {
    return assured_ + shared_ - (may_use_reserve ? 0 : kept_);
  }

 private:
  std::uint64_t SharedLeft(bool may_use_reserve) const {
    return shared_left_ - (may_use_reserve ? 0 : std::min(kept_, shared_left_));
  }
  std::uint64_t OfShared(std::uint64_t held) const { return held - std::min(held, assured_); }

  const std::uint64_t assured_;  // To each session.
  const std::uint64_t shared_;
  const std::uint64_t kept_;
  std::uint64_t shared_left_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_STAGING_BUDGET_H_
