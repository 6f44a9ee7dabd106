// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/block_executor.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/cpu/executor/resident_block.h"

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

// Tells waiting from being stuck: registers that stay as they are while every block polls,
// and no other executor of the launch that gets on.
class StallWatch {
 public:
  explicit StallWatch(const Launch& launch) : limit_(launch.stall_limit) {}

  // To be called after a round in which all blocks only polled.
  bool IsStalled(const std::vector<std::unique_ptr<ResidentBlock>>& blocks,
                 const LaunchState& state) {
    const Clock::time_point now = Clock::now();
    if (now < next_sample_) return false;
    next_sample_ = now + limit_ / kStallSamples;
    // Relaxed: a count, compared with itself.
    std::uint64_t hash = state.progress.load(std::memory_order_relaxed);
    for (const auto& block : blocks) {
      if (!block->is_finished()) hash = hash * 31 + block->StateHash();
    }
    if (hash != hash_ || !is_started_) {
      hash_ = hash;
      is_started_ = true;
      since_ = now;
    }
    return now - since_ >= limit_;
  }

 private:
  const std::chrono::nanoseconds limit_;
  Clock::time_point next_sample_, since_;
  std::uint64_t hash_ = 0;
  bool is_started_ = false;
};

}  // namespace

struct BlockExecutor::State {
  // One, and more only while blocks wait for each other.
  std::vector<std::unique_ptr<ResidentBlock>> blocks;
  LaunchState own_state;
  Fault fault;

  // What one call of Run works on.
  struct Task {
    const Launch& launch;
    LaunchState& state;
    const std::atomic<bool>& kill;
    ExecutionCounts* counts;
    std::uint64_t next = 0;  // Block that begins next.
    std::uint64_t end = 0;   // Behind the last block that may begin.
  };

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
  if (task.next == task.end) {
    if (task.launch.more_blocks == nullptr || !(*task.launch.more_blocks)()) return false;
    ++task.end;
  }
  auto block = std::make_unique<ResidentBlock>();
  if (!block->Prepare(task.launch, &task.state, &fault)) return false;
  block->Begin(task.next++);
  blocks.push_back(std::move(block));
  return true;
}

// As many more as there are: whoever waits for the last of many need not wait for long.
bool BlockExecutor::State::AdmitMore(Task& task) {
  const std::size_t wanted = blocks.size();
  std::size_t admitted = 0;
  while (admitted < wanted && Admit(task)) ++admitted;
  return admitted != 0;
}

// The block that has begun, until it ends or waits for others.
template <bool Counted>
Round BlockExecutor::State::RunAlone(Task& task) {
  ResidentBlock& block = *blocks.front();
  std::chrono::nanoseconds slept{};
  for (std::uint32_t spinning = 0; spinning < kSpinningRounds && slept < kSleepBeforeOthers;) {
    const Round round = block.Run<Counted>(task.counts, task.kill);
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
    bool ran = false, finished = true;
    for (const auto& block : blocks) {
      if (block->is_finished()) continue;
      const Round round = block->Run<Counted>(task.counts, task.kill);
      if (round == Round::kKilled || round == Round::kFaulted) return round;
      ran |= round != Round::kSpinning;
      finished &= round == Round::kFinished;
    }
    if (finished) return Round::kFinished;
    // Relaxed: others look whether it changes, nothing is read because of it.
    if (ran) task.state.progress.fetch_add(1, std::memory_order_relaxed);
    if (ran || AdmitMore(task)) {
      idle = 0;
      continue;
    }
    if (watch.IsStalled(blocks, task.state)) {
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
  if (blocks.empty()) blocks.push_back(std::make_unique<ResidentBlock>());
  if (!blocks.front()->Prepare(launch, &state, &fault)) {
    outcome.end = RunOutcome::End::kFaulted;
    outcome.fault = fault;
    return outcome;
  }
  while (task.next < task.end) {
    if (kill.load(std::memory_order_relaxed)) {
      outcome.end = RunOutcome::End::kKilled;
      return outcome;
    }
    if (stop.load(std::memory_order_relaxed)) {
      outcome.end = RunOutcome::End::kStopped;
      return outcome;
    }
    blocks.front()->Begin(task.next++);
    Round round = RunAlone<Counted>(task);
    if (round == Round::kSpinning) {
      round = RunTogether<Counted>(task);
      blocks.resize(1);
    }
    if (round == Round::kFinished) {
      outcome.blocks_done = task.next - first_block;
      state.progress.fetch_add(1, std::memory_order_relaxed);  // As in RunTogether.
      continue;
    }
    outcome.end = round == Round::kKilled ? RunOutcome::End::kKilled : RunOutcome::End::kFaulted;
    if (round == Round::kFaulted) outcome.fault = fault;
    return outcome;
  }
  return outcome;
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
