// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_TGS_FRONT_H_
#define GPUSHARED_SCHEDULER_SIM_TGS_FRONT_H_

#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "scheduler/sim/front.h"

namespace gpushared::simulation {

// Models TGS (NSDI'23, with the constants of its code: 3 %, 9 % and 12 % of deviation, a report per
// 5 ms): everything is launched immediately, but the low class is limited to a number of blocks per
// period. The limit rises while the high class launches at the same rate as alone, and falls
// otherwise. TGS counts the blocks of grids, whereas a profile counts several of them as one block,
// which fills a multiprocessor. Copies do not count.
class TgsFront final : public Front {
 public:
  TgsFront(GpuDevice& device, const FrontOptions& options) : device_(device), options_(options) {}

  void AddClient(const scheduler::ClientSpec& spec, TimePoint now) override;
  void Enqueue(const Launch& launch, TimePoint now) override;
  bool OnFinished(const Finished&, TimePoint) override { return true; }
  void Act(TimePoint now) override;
  std::optional<TimePoint> wake_at() const override { return next_report_; }

 private:
  struct Client {
    bool is_high = false;
    std::deque<Launch> waiting;
    TimePoint thread_free{};
  };

  void Submit(Client& client, const Launch& launch, TimePoint now);
  // Ends a period: the high class's launches in it set the limit of the next.
  void Report();
  void Adapt(double deviation);

  GpuDevice& device_;
  const FrontOptions options_;
  std::vector<Client> clients_;
  TimePoint next_report_{};
  std::uint64_t high_blocks_ = 0;  // Blocks of the high class launched in this period.
  double low_blocks_ = 0;
  std::array<double, 5> recent_{};  // Blocks of the high class in recent periods.
  double rate_alone_ = 0;           // Estimated blocks of the high class per period when alone.
  double bound_ = 0;                // Limit of low blocks per period.
  bool is_slow_start_ = true;
  // Consecutive periods in which the high class's rate was far from rate_alone_.
  int far_periods_ = 0;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_TGS_FRONT_H_
