// SPDX-License-Identifier: Apache-2.0
#include "server/executor/block_executor.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "server/executor/resident_block.h"

namespace gpushared::device::executor {
namespace {

using Clock = std::chrono::steady_clock;

// Rounds in which a block only polls until later blocks begin beside it. High enough that
// a block that waits for a neighbour on another thread rarely gets there.
constexpr std::uint32_t kSpinningRounds = 256;
// Where all of the block sleeps (`nanosleep`), so does the thread: for no longer than PTX allows,
// not for what would be over before it slept, and in all no longer until later blocks begin.
constexpr std::chrono::microseconds kSleepMax{1000}, kSleepMin{20}, kSleepBeforeOthers{20'000};
// Rounds in which all blocks only poll until the thread sleeps between two.
constexpr std::uint32_t kIdleRounds = 64;
constexpr std::chrono::microseconds kIdleSleep{50};
// Looks at the registers during the time after which a launch counts as stalled.
constexpr std::uint32_t kStallSamples = 10;
// States among which a launch that is stuck may change: a poll between two barriers has two.
constexpr std::size_t kStatesMax = 16;

// Tells waiting from being stuck. Registers of the stuck stay as they are while every block polls,
// or change among few states. No other executor of the launch gets on meanwhile.
class StallWatch {
 public:
  explicit StallWatch(const Launch& launch) : limit_(launch.stall_limit) {}

  // To be called after a round in which all blocks only polled.
  bool IsStalled(const std::vector<std::unique_ptr<ResidentBlock>>& blocks,
                 const LaunchState& state, const std::atomic<bool>& kill) {
    const Clock::time_point now = Clock::now();
    if (now < next_sample_) return false;
    next_sample_ = now + limit_ / kStallSamples;
    // Relaxed: a count, compared with itself.
    std::uint64_t hash = state.progress.load(std::memory_order_relaxed);
    for (const auto& block : blocks) {
      // The registers of all may be many.
      if (kill.load(std::memory_order_relaxed)) return false;
      if (!block->is_finished()) hash = hash * 31 + block->StateHash();
    }
    if (std::find(seen_.begin(), seen_.end(), hash) == seen_.end()) {
      if (seen_.size() == kStatesMax) seen_.clear();
      seen_.push_back(hash);
      since_ = now;
    }
    return now - since_ >= limit_;
  }

 private:
  const std::chrono::nanoseconds limit_;
  Clock::time_point next_sample_, since_;
  std::vector<std::uint64_t> seen_;  // States since `since_`, or a little before.
};

}  // namespace

struct BlockExecutor::State {
  // One, and more only while blocks wait for each other, or did when they were killed: to free the
  // memory of many would delay the answer to that.
  std::vector<std::unique_ptr<ResidentBlock>> blocks;
  LaunchState own_state;
  Fault fault;

  // The work of one call of Run.
  struct Task {
    const Launch& launch;
    LaunchState& state;
    const std::atomic<bool>& kill;
    ExecutionCounts* counts;
    std::uint64_t next = 0;   // Block that begins next.
    std::uint64_t end = 0;    // Behind the last block that may begin.
    std::uint64_t begun = 0;  // Blocks.

    // Whether there is a block that may begin.
    bool HasNext(bool beside_waiting) {
      if (next < end) return true;
      if (launch.more_blocks == nullptr) return false;
      const std::optional<std::uint64_t> more = (*launch.more_blocks)(beside_waiting);
      if (!more) return false;
      next = *more;
      end = next + 1;
      return true;
    }
    std::uint64_t TakeNext() {
      ++begun;
      return next++;
    }
  };

  std::uint64_t bytes() const;
  static void SleepFor(const Task& task, std::chrono::nanoseconds time);
  bool Admit(Task& task);
  bool AdmitMore(Task& task);
  template <bool Counted>
  Round RunAlone(Task& task);
  template <bool Counted>
  Round RunTogether(Task& task);
  template <bool Counted>
  RunOutcome Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                 const std::atomic<bool>& stop, const std::atomic<bool>& kill,
                 ExecutionCounts* counts);
};

void BlockExecutor::State::SleepFor(const Task& task, std::chrono::nanoseconds time) {
  if (task.launch.sleep != nullptr) return (*task.launch.sleep)(time);
  std::this_thread::sleep_for(time);
}

// Begins the next block beside those that run. False when there is none, or no room.
bool BlockExecutor::State::Admit(Task& task) {
  if (blocks.size() >= kResidentBlocksMax ||
      blocks.front()->bytes() * (blocks.size() + 1) > kResidentBytesMax) {
    return false;
  }
  if (!task.HasNext(true)) return false;
  auto block = std::make_unique<ResidentBlock>();
  if (!block->Prepare(task.launch, &task.state, task.kill, &fault)) return false;
  block->Begin(task.TakeNext());
  blocks.push_back(std::move(block));
  return true;
}

// As many more as there are: whoever waits for the last of many need not wait for long.
bool BlockExecutor::State::AdmitMore(Task& task) {
  const std::size_t wanted = blocks.size();
  std::size_t admitted = 0;
  while (admitted < wanted && !task.kill.load(std::memory_order_relaxed) && Admit(task)) {
    ++admitted;
  }
  return admitted != 0;
}

// The block that has begun, until it ends or waits for others.
template <bool Counted>
Round BlockExecutor::State::RunAlone(Task& task) {
  ResidentBlock& block = *blocks.front();
  std::chrono::nanoseconds slept{};
  for (std::uint32_t spinning = 0; spinning < kSpinningRounds && slept < kSleepBeforeOthers;) {
    const Round round = block.Run<Counted>(task.counts, task.kill);
    if (round == Round::kMayWait) return Round::kSpinning;
    if (round != Round::kRan && round != Round::kSpinning) return round;
    if (round == Round::kRan) {
      spinning = 0;
      slept = {};
      continue;
    }
    ++spinning;
    if (block.wanted_sleep() < kSleepMin) continue;
    const auto sleep = std::min<std::chrono::nanoseconds>(block.wanted_sleep(), kSleepMax);
    SleepFor(task, sleep);
    slept += sleep;
  }
  return Round::kSpinning;
}

// Takes later blocks in beside one that waits, and runs all in turns until every one of
// them has ended. It cannot be stopped in between: blocks that have begun must end.
template <bool Counted>
Round BlockExecutor::State::RunTogether(Task& task) {
  StallWatch watch(task.launch);
  for (std::uint32_t idle = 0;;) {
    bool ran = false, may_wait = false, finished = true;
    for (const auto& block : blocks) {
      if (block->is_finished()) continue;
      const Round round = block->Run<Counted>(task.counts, task.kill);
      if (round == Round::kKilled || round == Round::kFaulted) return round;
      ran |= round != Round::kSpinning;
      may_wait |= round == Round::kMayWait;
      finished &= round == Round::kFinished;
    }
    if (finished) return Round::kFinished;
    // Relaxed: others look whether it changes, nothing is read because of it.
    if (ran) task.state.progress.fetch_add(1, std::memory_order_relaxed);
    if (may_wait) AdmitMore(task);
    if (ran || AdmitMore(task)) {
      idle = 0;
      continue;
    }
    if (watch.IsStalled(blocks, task.state, task.kill)) {
      for (const auto& block : blocks) {
        if (block->is_finished()) continue;
        using Milliseconds = std::chrono::milliseconds;
        const auto limit = std::chrono::duration_cast<Milliseconds>(task.launch.stall_limit);
        block->RaiseStall(static_cast<std::uint64_t>(limit.count()));
        return Round::kFaulted;
      }
    }
    if (++idle > kIdleRounds) SleepFor(task, kIdleSleep);
  }
}

template <bool Counted>
RunOutcome BlockExecutor::State::Run(const Launch& launch, std::uint64_t first_block,
                                     std::uint64_t count, const std::atomic<bool>& stop,
                                     const std::atomic<bool>& kill, ExecutionCounts* counts) {
  RunOutcome outcome;
  LaunchState& state = launch.state == nullptr ? own_state : *launch.state;
  own_state.Reset();
  Task task{launch, state, kill, counts, first_block, first_block + count};
  blocks.resize(std::min<std::size_t>(blocks.size(), 1));
  if (blocks.empty()) blocks.push_back(std::make_unique<ResidentBlock>());
  if (!blocks.front()->Prepare(launch, &state, kill, &fault)) {
    outcome.end = RunOutcome::End::kFaulted;
    outcome.fault = fault;
    return outcome;
  }
  while (task.HasNext(false)) {
    if (kill.load(std::memory_order_relaxed)) {
      outcome.end = RunOutcome::End::kKilled;
      return outcome;
    }
    if (stop.load(std::memory_order_relaxed)) {
      outcome.end = RunOutcome::End::kStopped;
      return outcome;
    }
    blocks.front()->Begin(task.TakeNext());
    Round round = RunAlone<Counted>(task);
    if (round == Round::kSpinning) {
      round = RunTogether<Counted>(task);
    }
    if (round == Round::kFinished) {
      blocks.resize(1);
      outcome.blocks_done = task.begun;
      state.progress.fetch_add(1, std::memory_order_relaxed);  // RunTogether does the same.
      continue;
    }
    outcome.end = round == Round::kKilled ? RunOutcome::End::kKilled : RunOutcome::End::kFaulted;
    if (round == Round::kFaulted) outcome.fault = fault;
    return outcome;
  }
  return outcome;
}

std::uint64_t BlockExecutor::State::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& block : blocks) sum += block->bytes();
  return sum;
}

std::uint64_t BlockExecutor::memory_bytes() const { return state_->bytes(); }

void BlockExecutor::ReleaseMemory() {
  if (state_->bytes() > kKeptBytesMax) state_->blocks.clear();
}

BlockExecutor::BlockExecutor() : state_(std::make_unique<State>()) {}
BlockExecutor::~BlockExecutor() = default;

RunOutcome BlockExecutor::Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                              const std::atomic<bool>& stop, const std::atomic<bool>& kill) {
  return state_->Run<false>(launch, first_block, count, stop, kill, nullptr);
}

RunOutcome BlockExecutor::RunCounted(const Launch& launch, std::uint64_t first_block,
                                     std::uint64_t count, const std::atomic<bool>& stop,
                                     const std::atomic<bool>& kill, ExecutionCounts* counts) {
  return state_->Run<true>(launch, first_block, count, stop, kill, counts);
}

}  // namespace gpushared::device::executor
