// SPDX-License-Identifier: Apache-2.0
// A device that a test steps by hand: work ends only when the test ends it.

#ifndef GPUSHARED_TESTS_SUPPORT_STEP_DEVICE_H_
#define GPUSHARED_TESTS_SUPPORT_STEP_DEVICE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/device/device.h"

namespace gpushared::testing {

struct StepDeviceOptions {
  device::Preemption preemption = device::Preemption::kWithinCommand;
  bool runs_at_once = false;  // Whether work ends when it is submitted; otherwise the test ends it.
  std::chrono::milliseconds submitting_takes{};  // Duration of the submission of a launch.
  std::chrono::seconds ends_later{};             // Added to the end time that completions report.
  // Durations that completions of launches report: for the original form, and for the preemptible
  // form.
  std::chrono::microseconds launch_takes{}, stoppable_takes{};
  bool stopping_costs = false;
  std::string unstoppable_kernel = {};  // Name of a kernel whose launches cannot be stopped.
  // Work ignores stops and ends only by a kill, like an endless kernel.
  bool ignores_stop = false;
  bool can_kill = true;
  // Without can_kill: launches poll for a kill, and the test then ends them.
  bool may_be_killed = false;
  // launches_block: submitting a launch blocks until HoldNothing. With polling_kernels_end the
  // submission also proceeds when ReportKernelsToEnd is called.
  bool launches_block = false;
  bool polling_kernels_end = false;
  // The device wakes no thread, so it must be polled while it has work.
  bool must_be_polled = false;
  bool spinning_pays = false;
  bool takes_nodes = false;  // Several nodes of a graph are submitted at once.
  std::string pci_bus = {};
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  // Memory is swapped by page, and resident mapped memory is bounded by memory_bytes.
  bool swaps_memory = false;
};

// Prepares a module for a StepDevice. The image is text with one kernel per line: its name, the
// total size of its parameters (8 bytes each), and optionally why it is unsupported. A kernel
// called `small` takes blocks of up to 64 threads and has 4096 bytes of static shared memory. A
// line "variable NAME BYTES" declares a variable.
Result<std::shared_ptr<const device::PreparedModule>> PrepareStepModule(const std::string& image);

// Memory, copies and fills are real; launches have no effect.
//
// Thread-safe: the test steps it while the device thread submits.
class StepDevice : public device::Device {
 public:
  struct Submission {
    device::WorkId id = 0;
    device::StreamKey stream = 0;
    std::uint8_t priority = 0;
    std::uint64_t first_unit = 0;
    std::uint64_t units = 0;
    std::string kernel;           // Empty except for launches.
    std::size_t nodes = 0;        // Number of graph nodes; 0 if not a graph.
    bool may_be_stopped = false;  // LaunchWork::may_be_stopped.
    std::vector<std::byte> parameters;
  };

  StepDevice(StepDeviceOptions options, device::WakeFunction wake);
  ~StepDevice() override;

  const device::DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<device::Space>> CreateSpace(const device::SpaceOptions& options) override;
  void Submit(const device::LaunchWork& work) override;
  void Submit(const device::CopyWork& work) override;
  void Submit(const device::FillWork& work) override;
  bool TakesNode(const device::GraphNode&) const override { return options_.takes_nodes; }
  void SubmitGraph(const device::GraphWork& work) override;
  bool CanStop(const device::LaunchWork& work, std::chrono::nanoseconds expected) override;
  bool ReportKernelsToEnd() override;
  bool CanKill(const device::LaunchWork&) const override {
    return options_.can_kill || options_.may_be_killed;
  }
  void RequestStop(device::WorkId id) override;
  void RequestKill(device::WorkId id) override;
  std::size_t TakeCompletions(std::span<device::Completion> out) override;
  bool must_be_polled() const override;
  std::uint64_t free_memory_bytes() const override;

  // ---- for the test

  // Ends the oldest unfinished work with `status`; returns false if there is none.
  bool FinishOldest(Status status = {});
  bool FinishLatest();  // Ends the latest work.
  void FinishAll();
  // Runs this many units of the oldest work, and ends it if those were its last.
  void RunUnits(std::uint64_t units);
  // From now on completions of launches in their original form report this duration.
  void LaunchesTake(std::chrono::microseconds time);
  // From now on work ends as soon as it is submitted; ends all present work.
  void RunAtOnce();

  // Returns all submissions so far, once there are at least `count`; empty if that takes more than
  // 30 s.
  std::vector<Submission> WaitForSubmissions(std::size_t count);
  std::vector<Submission> submissions() const;
  std::size_t running_count() const;
  std::size_t stops_asked() const;
  std::size_t kills_asked() const;
  std::size_t end_requests() const;
  std::size_t times_asked() const;  // How often completions were queried.
  int spaces_alive() const;
  // Returns the isolation of the space that was created last.
  device::Isolation isolation() const;
  // Returns the left_free_bytes of the space that was created last.
  std::uint64_t left_free_bytes() const;
  int modules_alive() const;
  std::uint64_t mapped_bytes() const;
  // Returns the sizes to which spaces were resized, in order.
  std::vector<std::uint64_t> resizes() const;

  // A call that changed which memory is resident.
  struct MemoryCall {
    enum class Kind : std::uint8_t { kResize, kOut, kIn };
    Kind kind = Kind::kResize;
    std::uint64_t base = 0;   // Start of the space.
    std::uint64_t bytes = 0;  // New size for a resize, offset of the page for a swap.
    friend bool operator==(const MemoryCall&, const MemoryCall&) = default;
  };
  std::vector<MemoryCall> memory_calls() const;
  // From now on, resizes to less than this size block. After SuspendSwapsOut, calls of SwapPageOut
  // block.
  void HoldResizes(std::uint64_t below_bytes);
  void SuspendSwapsOut();
  // Waits until such a call blocks; ReleaseHeldCall lets it proceed. Returns false if none blocks
  // within 30 s.
  bool AwaitHeldCall();
  void ReleaseHeldCall();
  // Lets all blocked calls proceed, and blocks no later ones.
  void HoldNothing();

 private:
  friend class StepSpace;
  friend class StepModule;
  struct Work {
    std::variant<device::LaunchWork, device::CopyWork, device::FillWork, device::GraphWork> what;
    device::WorkId id = 0;
    std::uint64_t first_unit = 0;
    std::uint64_t units_done = 0;
    std::uint64_t units = 0;
    device::DeviceClock::time_point started;
  };

  // Blocks until the test lets the call proceed, or for 30 s.
  void WaitWhileHeld(std::unique_lock<std::mutex>& lock);
  std::uint64_t FreeBytes() const { return options_.memory_bytes - resident_bytes_; }
  void Accept(Work work, Submission submission);
  void End(Work work, Status status, bool stopped);
  static void Perform(const Work& work);
  template <typename Any>
  static void Perform(const Any& work, device::Space& of);

  const StepDeviceOptions options_;
  const device::WakeFunction wake_;
  device::DeviceInfo info_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All members below are guarded by mutex_.
  bool launches_block_;
  bool runs_at_once_;
  std::chrono::microseconds launch_takes_;
  bool armed_ = true;  // The next completion calls wake_.
  std::deque<Work> running_;
  std::deque<device::Completion> completions_;
  std::vector<Submission> submissions_;
  std::size_t stops_asked_ = 0;
  std::size_t kills_asked_ = 0;
  std::size_t end_requests_ = 0;
  std::size_t times_asked_ = 0;
  int spaces_alive_ = 0;
  device::Isolation isolation_ = device::Isolation::kOff;
  std::uint64_t left_free_bytes_ = 0;
  int modules_alive_ = 0;
  std::uint64_t mapped_bytes_ = 0;
  std::vector<std::uint64_t> resizes_;
  std::uint64_t spaces_made_ = 0;
  std::uint64_t resident_bytes_ = 0;  // Counted only with swaps_memory.
  std::vector<MemoryCall> memory_calls_;
  std::uint64_t held_below_bytes_ = 0;
  bool suspends_swaps_out_ = false;
  std::size_t held_ = 0, released_ = 0;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_STEP_DEVICE_H_
