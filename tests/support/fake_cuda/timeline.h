// SPDX-License-Identifier: Apache-2.0
// A GPU whose work takes the time that the costs define. Starts and ends are computed rather than
// waited for, so that load on the machine does not change them.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_TIMELINE_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_TIMELINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "tests/support/fake_cuda/costs.h"
#include "tests/support/fake_cuda/world.h"

namespace gpushared::testing::fake_cuda {

// The events of one GPU in the order of their times. Every driver call advances the timeline to the
// present. Blocks occupy threads of the multiprocessors. The kernel of the most urgent priority
// goes first. If its next block does not fit, all kernels after it wait, too. A block's
// instructions are executed at its beginning, a copy at its end.
//
// Not modelled: that a block must fit into one multiprocessor, limits of green contexts, contention
// for memory.
//
// All calls are made under the world's lock.
class Timeline {
 public:
  using TimePoint = Clock::time_point;
  static constexpr TimePoint kNever = TimePoint::max();

  Timeline(World& world, Gpu& gpu);

  // Returns when work that is submitted now can begin on an idle GPU.
  TimePoint Arrival(TimePoint now) const;
  void AdvanceTo(TimePoint now);
  // Returns kNever if no event occurs before the next submission.
  TimePoint next_event() const;
  // Total time in which blocks ran.
  std::chrono::nanoseconds busy() const { return busy_; }

 private:
  // A kernel that has begun.
  struct Resident {
    std::shared_ptr<FakeStream> stream;
    std::uint64_t next_block = 0;
    std::uint64_t running = 0;
    std::uint64_t room = 0;  // Size of one block, in threads.
  };
  struct End {
    TimePoint at;
    std::uint64_t order = 0;  // Orders events at the same time.
    std::shared_ptr<FakeStream> stream;
    Resident* resident = nullptr;  // Null for the end of work that is not a kernel.
    std::uint64_t blocks = 0;
    // Reversed, so that the earliest end is the top of a heap.
    bool operator<(const End& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Head {
    TimePoint at = kNever;
    std::shared_ptr<FakeStream> stream;
  };

  const Costs& costs() const;
  Head NextHead() const;
  std::chrono::nanoseconds Gap(Kind last, const Work& next) const;
  std::chrono::nanoseconds Length(const Work& work) const;
  void Start(const std::shared_ptr<FakeStream>& stream);
  void EndNext();
  void Finish(FakeStream& stream);
  void DispatchBlocks();
  // Starts a block of the kernel. Returns false if there is not enough space for it.
  bool DispatchFrom(Resident& kernel);
  void MoveTo(TimePoint time);

  World& world_;
  Gpu& gpu_;
  TimePoint time_;
  TimePoint next_block_at_;                       // Earliest start of the next block.
  std::array<TimePoint, 2> engine_free_at_ = {};  // Engines for copies in, and out.
  std::uint64_t threads_ = 0;
  std::uint64_t free_threads_ = 0;
  std::chrono::nanoseconds busy_{0};
  std::uint64_t order_ = 0;
  std::vector<std::unique_ptr<Resident>> residents_;  // The most urgent first.
  std::priority_queue<End> ends_;
};

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_TIMELINE_H_
