// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/block_executor.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "server/device/cpu/executor/resident_block.h"
#include "server/device/cpu/executor/stall_watch.h"

namespace gpushared::device::executor {
namespace {

using Clock = std::chrono::steady_clock;

// After this number of rounds in which a block has only polled, later blocks are started and
// interleaved with it. High enough that a wait for a block of another thread rarely takes as long.
constexpr std::uint32_t kSpinningRounds = 256;
// If all warps of a block sleep (`nanosleep`), the thread sleeps as well: at most kSleepMax, the
// limit of PTX, and not for less than kSleepMin, which would not pay off. After kSleepBeforeOthers
// in total, later blocks are started.
constexpr std::chrono::microseconds kSleepMax{1000}, kSleepMin{20}, kSleepBeforeOthers{20'000};
// Number of rounds in which all blocks only poll before the thread sleeps between rounds.
constexpr std::uint32_t kIdleRounds = 64;
constexpr std::chrono::microseconds kIdleSleep{50};

}  // namespace

struct BlockExecutor::State {
  // Holds a single block, unless blocks wait for each other. Further blocks are also kept after a
  // kill, because freeing many of them would delay the response to it.
  std::vector<std::unique_ptr<ResidentBlock>> blocks;
  LaunchState own_state;
  Fault fault;

  // Progress of the run, kept while the run is paused.
  struct Progress {
    std::uint64_t next = 0;   // Next block to start.
    std::uint64_t end = 0;    // End of the blocks that may start.
    std::uint64_t begun = 0;  // Number of blocks begun.
    bool is_inside = false;   // Whether some blocks have started but not ended.
    // For a block that runs alone: the number of rounds in which it only polled, and its total
    // sleep.
    std::uint32_t spinning = 0;
    std::chrono::nanoseconds slept{};
    // For interleaved blocks: position in the current round and the results of the round so far.
    std::optional<StallWatch> together;
    std::size_t turn = 0;
    bool ran = false, may_wait = false, finished = true;
    std::uint32_t idle_rounds = 0;
    Clock::time_point paused_at;

    void BeginBlock() {
      is_inside = true;
      spinning = 0;
      slept = {};
      together.reset();
      BeginRound();
      idle_rounds = 0;
    }
    void BeginRound() {
      turn = 0;
      ran = may_wait = false;
      finished = true;
    }
  };
  Progress progress;

  // A call of Run or Resume.
  struct Task {
    const Launch& launch;
    LaunchState& state;
    const std::atomic<bool>& stop;
    const std::atomic<bool>& kill;
    ExecutionCounts* counts;
    const PauseTerms* terms = launch.pause;  // Set to null once the run may no longer be paused.
  };

  std::uint64_t bytes() const;
  static void SleepFor(const Task& task, std::chrono::nanoseconds time);
  bool MayPause(Task& task) const;
  bool LeavesNow(Task& task) const { return IsDue(task.terms) && MayPause(task); }
  bool LeavesIdle(Task& task) const;
  bool HasNext(const Task& task, bool while_waiting);
  std::uint64_t TakeNext();
  bool Admit(Task& task);
  bool AdmitMore(Task& task);
  template <bool Counted>
  Round RunAlone(Task& task);
  template <bool Counted>
  Round RunTogether(Task& task);
  template <bool Counted>
  RunOutcome GoOn(Task& task);
  template <bool Counted>
  RunOutcome Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                 const std::atomic<bool>& stop, const std::atomic<bool>& kill,
                 ExecutionCounts* counts);
  RunOutcome Resume(const Launch& launch, const std::atomic<bool>& kill);

  LaunchState& GetState(const Launch& launch) {
    return launch.state == nullptr ? own_state : *launch.state;
  }
};

void BlockExecutor::State::SleepFor(const Task& task, std::chrono::nanoseconds time) {
  if (task.launch.sleep != nullptr) return (*task.launch.sleep)(time);
  std::this_thread::sleep_for(time);
}

// Returns whether the run may be paused. After a negative result, the current call of Run or Resume
// does not check for pauses any more.
bool BlockExecutor::State::MayPause(Task& task) const {
  if (task.terms->may_pause(bytes())) return true;
  task.terms = nullptr;
  return false;
}

// Returns whether to leave the thread although the blocks only wait: they may be waiting for blocks
// of a paused run, which needs a thread.
bool BlockExecutor::State::LeavesIdle(Task& task) const {
  return task.terms != nullptr && task.terms->paused_runs.load(std::memory_order_relaxed) != 0 &&
         MayPause(task);
}

// Returns whether a block is available to start.
bool BlockExecutor::State::HasNext(const Task& task, bool while_waiting) {
  if (progress.next < progress.end) return true;
  if (task.launch.more_blocks == nullptr) return false;
  const std::optional<std::uint64_t> more = (*task.launch.more_blocks)(while_waiting);
  if (!more) return false;
  progress.next = *more;
  progress.end = *more + 1;
  return true;
}

std::uint64_t BlockExecutor::State::TakeNext() {
  ++progress.begun;
  return progress.next++;
}

// Starts the next block next to the running ones. Returns false if there is none or not enough
// memory.
bool BlockExecutor::State::Admit(Task& task) {
  if (blocks.size() >= kResidentBlocksMax ||
      blocks.front()->bytes() * (blocks.size() + 1) > kResidentBytesMax) {
    return false;
  }
  if (!HasNext(task, true)) return false;
  auto block = std::make_unique<ResidentBlock>();
  if (!block->Prepare(task.launch, &task.state, task.kill, &fault)) return false;
  block->Begin(TakeNext());
  blocks.push_back(std::move(block));
  return true;
}

// Doubles the number of blocks, so that it does not take long to reach the block for which the
// others wait.
bool BlockExecutor::State::AdmitMore(Task& task) {
  const std::size_t wanted = blocks.size();
  std::size_t admitted = 0;
  while (admitted < wanted && !task.kill.load(std::memory_order_relaxed) && Admit(task)) {
    ++admitted;
  }
  return admitted != 0;
}

// Runs the started block until it ends, waits for others, or the run has to leave it (kCut).
template <bool Counted>
Round BlockExecutor::State::RunAlone(Task& task) {
  ResidentBlock& block = *blocks.front();
  while (progress.spinning < kSpinningRounds && progress.slept < kSleepBeforeOthers) {
    const Round round = block.Run<Counted>(task.counts, task.kill, task.terms);
    if (round == Round::kMayWait) return Round::kSpinning;
    const bool goes_on = round == Round::kRan || round == Round::kSpinning || round == Round::kCut;
    if (!goes_on) return round;
    if (round == Round::kRan) {
      progress.spinning = 0;
      progress.slept = {};
    }
    if (round == Round::kSpinning) ++progress.spinning;
    if (LeavesNow(task)) return Round::kCut;
    if (round != Round::kSpinning || block.wanted_sleep() < kSleepMin) continue;
    const auto sleep = std::min<std::chrono::nanoseconds>(block.wanted_sleep(), kSleepMax);
    SleepFor(task, sleep);
    progress.slept += sleep;
  }
  return Round::kSpinning;
}

// Starts later blocks next to one that waits, and interleaves them until all have ended or the run
// has to leave them (kCut). Cannot be stopped in between, because started blocks must end.
template <bool Counted>
Round BlockExecutor::State::RunTogether(Task& task) {
  if (!progress.together) progress.together.emplace(task.launch);
  for (;;) {
    while (progress.turn < blocks.size()) {
      ResidentBlock& block = *blocks[progress.turn];
      if (block.is_finished()) {
        ++progress.turn;
        continue;
      }
      const Round round = block.Run<Counted>(task.counts, task.kill, task.terms);
      if (round == Round::kKilled || round == Round::kFaulted) return round;
      if (round != Round::kCut) {
        progress.ran |= round != Round::kSpinning;
        progress.may_wait |= round == Round::kMayWait;
        progress.finished &= round == Round::kFinished;
        ++progress.turn;
      }
      if (LeavesNow(task)) return Round::kCut;
    }
    if (progress.finished) return Round::kFinished;
    const bool ran = progress.ran;
    // Relaxed: other threads only check whether the counter changes; no other data depends on it.
    if (ran) task.state.progress.fetch_add(1, std::memory_order_relaxed);
    if (progress.may_wait) AdmitMore(task);
    progress.BeginRound();
    if (ran || AdmitMore(task)) {
      progress.idle_rounds = 0;
      continue;
    }
    if (progress.together->IsStalled(blocks, task.state, task.kill)) {
      for (const auto& block : blocks) {
        if (block->is_finished()) continue;
        using Milliseconds = std::chrono::milliseconds;
        const auto limit = std::chrono::duration_cast<Milliseconds>(task.launch.stall_limit);
        block->RaiseStall(static_cast<std::uint64_t>(limit.count()));
        return Round::kFaulted;
      }
    }
    if (++progress.idle_rounds <= kIdleRounds) continue;
    if (LeavesIdle(task)) return Round::kCut;
    SleepFor(task, kIdleSleep);
  }
}

template <bool Counted>
RunOutcome BlockExecutor::State::GoOn(Task& task) {
  RunOutcome outcome;
  while (progress.is_inside || HasNext(task, false)) {
    if (!progress.is_inside) {
      if (task.kill.load(std::memory_order_relaxed)) {
        outcome.end = RunOutcome::End::kKilled;
        return outcome;
      }
      if (task.stop.load(std::memory_order_relaxed)) {
        outcome.end = RunOutcome::End::kStopped;
        return outcome;
      }
      progress.BeginBlock();
      blocks.front()->Begin(TakeNext());
    }
    Round round = progress.together ? Round::kSpinning : RunAlone<Counted>(task);
    if (round == Round::kSpinning) round = RunTogether<Counted>(task);
    if (round == Round::kCut) {
      progress.paused_at = Clock::now();
      outcome.end = RunOutcome::End::kPaused;
      return outcome;
    }
    progress.is_inside = false;
    if (round == Round::kFinished) {
      blocks.resize(1);
      outcome.blocks_done = progress.begun;
      // An ended block is progress. Relaxed: other threads only check whether the counter changes.
      task.state.progress.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    outcome.end = round == Round::kKilled ? RunOutcome::End::kKilled : RunOutcome::End::kFaulted;
    if (round == Round::kFaulted) outcome.fault = fault;
    return outcome;
  }
  return outcome;
}

template <bool Counted>
RunOutcome BlockExecutor::State::Run(const Launch& launch, std::uint64_t first_block,
                                     std::uint64_t count, const std::atomic<bool>& stop,
                                     const std::atomic<bool>& kill, ExecutionCounts* counts) {
  own_state.Reset();
  progress = {.next = first_block, .end = first_block + count};
  Task task{launch, GetState(launch), stop, kill, counts};
  blocks.resize(std::min<std::size_t>(blocks.size(), 1));
  if (blocks.empty()) blocks.push_back(std::make_unique<ResidentBlock>());
  if (!blocks.front()->Prepare(launch, &task.state, kill, &fault)) {
    RunOutcome outcome;
    outcome.end = RunOutcome::End::kFaulted;
    outcome.fault = fault;
    return outcome;
  }
  return GoOn<Counted>(task);
}

RunOutcome BlockExecutor::State::Resume(const Launch& launch, const std::atomic<bool>& kill) {
  static constexpr std::atomic<bool> kNeverStopped{false};
  Task task{launch, GetState(launch), kNeverStopped, kill, nullptr};
  const std::chrono::nanoseconds paused = Clock::now() - progress.paused_at;
  for (const auto& block : blocks) block->Resume(launch, &task.state, paused);
  if (progress.together) progress.together->Skip(paused);
  return GoOn<false>(task);
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

RunOutcome BlockExecutor::Resume(const Launch& launch, const std::atomic<bool>& kill) {
  return state_->Resume(launch, kill);
}

RunOutcome BlockExecutor::RunCounted(const Launch& launch, std::uint64_t first_block,
                                     std::uint64_t count, const std::atomic<bool>& stop,
                                     const std::atomic<bool>& kill, ExecutionCounts* counts) {
  return state_->Run<true>(launch, first_block, count, stop, kill, counts);
}

}  // namespace gpushared::device::executor
