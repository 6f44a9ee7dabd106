// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_SHARED_GPU_H_
#define GPUSHARED_SCHEDULER_SIM_SHARED_GPU_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <random>
#include <vector>

#include "scheduler/sim/gpu_device.h"

namespace gpushared::simulation {

// Models a single context, or several under MPS: blocks of all streams share the multiprocessors.
// Space goes to the kernel of the highest priority, and among kernels of the same priority to the
// first in the order of streams. Once all blocks of that kernel have begun, other kernels get space
// (Amert et al., RTSS 2017). A block that has begun is never interrupted. Space is summed over all
// multiprocessors, so fragmentation between them is ignored. Copies run concurrently with kernels,
// one at a time in each direction, in order of arrival, because stream priority does not affect
// them (CUDA driver API, cuStreamCreateWithPriority). Kernels of several streams that run side by
// side slow each other down in caches and memory (GpuCosts::contention).
class SharedGpu final : public GpuDevice {
 public:
  SharedGpu(std::uint32_t multiprocessors, const GpuCosts& costs,
            StreamOrder order = StreamOrder::kEligible)
      : costs_(costs),
        order_(order),
        room_{multiprocessors * kWhole, kWhole, kWhole},
        whole_gpu_(static_cast<double>(multiprocessors * kWhole)),
        random_(costs.seed) {}

  void Submit(const Work& work, TimePoint called) override;
  void RequestStop(std::uint64_t id, TimePoint now) override;
  std::optional<TimePoint> next_event() const override;
  void Advance(TimePoint now, std::vector<Finished>& finished) override;

 private:
  // Independent engines: all multiprocessors, and one copy engine per direction.
  enum Engine : std::uint8_t { kMultiprocessors, kToDevice, kToHost, kEngines };
  // Space of one multiprocessor or copy engine, in units of its own. It need not be a multiple of a
  // kernel's block; the remainder, over all multiprocessors, is less than one block of any kernel.
  static constexpr std::uint64_t kWhole = std::uint64_t{1} << 20;

  struct Item {
    Work work;
    TimePoint ready;  // Earliest start of the work.
    std::uint64_t submission = 0;
  };
  struct Stream {
    std::deque<Item> items;  // Work of the stream in order; only the front can be on an engine.
    bool is_eligible = false;
    std::uint64_t turn = 0;  // Position of the front in the order of streams.
    Duration gap{};  // Time for which the engine is occupied before the front's first block.
    std::uint32_t next_block = 0;
    std::uint32_t running = 0;
    bool is_stopped = false;  // Whether the front was stopped, so that no further block starts.
  };
  struct Event {
    enum class Kind : std::uint8_t { kEligible, kStop, kNotice };
    TimePoint at;
    std::uint64_t order = 0;  // Order among events of the same time.
    Kind kind = Kind::kEligible;
    std::size_t stream = 0;
    std::uint32_t blocks = 0;  // With kNotice, the number of blocks done.
    std::uint64_t id = 0;      // Work that a kStop or kNotice refers to.
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  // Blocks or pieces of a stream's front that began together.
  struct Wave {
    std::size_t stream = 0;
    std::uint32_t blocks = 0;
    std::uint64_t order = 0;  // As Event::order.
    TimePoint since;          // Time to which `left_ns` refers.
    double left_ns = 0;       // Time to the end without contention.
    double slowdown = 1;
    TimePoint end;
  };

  static Engine GetEngine(const Kernel& kernel);
  static std::uint64_t RoomOfBlock(const Kernel& kernel) {
    return kWhole / kernel.blocks_per_multiprocessor;
  }
  // Return whether blocks of the stream's front may begin on the engine, and whether they precede
  // those of the other stream.
  static bool IsWaiting(const Stream& stream, Engine engine);
  static bool GoesBefore(const Stream& stream, const Stream& other);

  void Add(Event event);
  Duration Draw(const std::vector<Duration>& seen, Duration otherwise);
  void PrepareFront(std::size_t stream, TimePoint earliest);
  void PrepareNext(std::size_t stream, TimePoint end, TimePoint now);
  void MakeEligible(Stream& stream);
  // Returns the wave that ends first; `waves_` must not be empty.
  std::size_t FirstToEnd() const;
  void EndWave(std::size_t place);
  // Recomputes the slowdown of all waves from the blocks that run now.
  void ReviewSpeeds(TimePoint now);
  // Returns the fraction of the multiprocessors on which the stream's contending blocks run.
  double PartInUse(const Stream& stream) const;
  void OnEvent(const Event& event, std::vector<Finished>& finished);
  void EndFrontIfDone(std::size_t stream, TimePoint now);
  void Dispatch(Engine engine, TimePoint now);

  const GpuCosts costs_;
  const StreamOrder order_;
  std::array<std::uint64_t, kEngines> room_;
  const double whole_gpu_;  // Space of all multiprocessors.
  std::vector<Stream> streams_;
  // The ends of waves are in waves_, because contention moves them.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Wave> waves_;
  std::uint64_t orders_ = 0;
  std::uint64_t turns_ = 0, submissions_ = 0;
  std::minstd_rand random_;
  // Time of the last notice. One thread is notified of all ends, so notices are in order.
  TimePoint last_notice_{};
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_SHARED_GPU_H_
