// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_STAGING_BUDGET_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_STAGING_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace gpushared::server {

// Budget of a worker's host memory for staging buffers or for module images. Memory is charged
// before it is allocated, because a machine without free memory does not fail the allocation but
// kills processes.
//
// Half of the budget is divided evenly among the sessions, so that every session can stage data no
// matter how much others use. The other half is first come, first served, except for a reserve:
// a part of it that only sessions with `may_use_reserve` get.
//
// Confined to the control thread.
class StagingBudget {
 public:
  StagingBudget(std::uint64_t bytes, std::uint32_t sessions_max, double kept)
      : assured_(bytes / 2 / std::max(1u, sessions_max)),
        shared_(bytes - assured_ * sessions_max),
        kept_(static_cast<std::uint64_t>(static_cast<double>(shared_) * kept)),
        shared_left_(shared_) {}

  // Takes `bytes` for a session that has `held` bytes. Returns false, without effect, if they are
  // not available.
  bool TryTake(std::uint64_t held, std::uint64_t bytes, bool may_use_reserve) {
    const std::uint64_t more = OfShared(held + bytes) - OfShared(held);
    if (more > SharedLeft(may_use_reserve)) return false;
    shared_left_ -= more;
    return true;
  }
  // Returns `bytes` of the session's `held` bytes.
  void GiveBack(std::uint64_t held, std::uint64_t bytes) {
    shared_left_ += OfShared(held) - OfShared(held - bytes);
  }

  // LeftFor returns the bytes available now to a session that has `held` bytes, and session_max
  // those that a session could have if it were the only one.
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

  const std::uint64_t assured_;  // Bytes that every session can take regardless of the others' use.
  const std::uint64_t shared_;
  const std::uint64_t kept_;
  std::uint64_t shared_left_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_STAGING_BUDGET_H_
