// SPDX-License-Identifier: Apache-2.0
// Profiles of jobs, and costs of their device, derived from the trace of a device.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORDER_H_
#define GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/sim/profile.h"
#include "server/telemetry/trace/event.h"
#include "server/telemetry/trace/reader.h"

namespace gpushared::server {

// Collects the events of a device over a period, then derives profiles from them.
//
// Thread-compatible.
class ProfileRecorder {
 public:
  // Work that began before `from` is incomplete, and is omitted.
  ProfileRecorder(std::uint32_t multiprocessors, scheduler::TimePoint from)
      : multiprocessors_(multiprocessors), from_(from) {}

  // `names` is the reader that reported the event.
  void Add(const trace::Reader& names, const trace::Event& event);
  void AddLost(std::uint64_t events) { lost_ += events; }
  // Returns true at the limit of slices, beyond which further slices are dropped.
  bool IsFull() const { return slices_.size() >= kSlicesMax; }

  // Ends the recording; the functions below may be called afterwards.
  void Finish(scheduler::TimePoint until);
  // Returns the part of the profile that the trace contains: pace, kernels, requests, and
  // statistics. kNotReady if the client was idle.
  Result<simulation::Profile> GetProfile(std::uint64_t session) const;
  // Does not include the launch bubble, which the server reports. Values that were never observed
  // keep the defaults of Node::Costs.
  const simulation::Node::Costs& costs() const { return costs_; }

 private:
  static constexpr std::size_t kSlicesMax = 2'000'000;
  static constexpr std::size_t kRequestsMax = 200'000;

  // A command from its first submission to its end, across preemptions.
  struct Command {
    std::uint64_t kernel = 0, request = 0;
    std::uint16_t shape = 0;
    trace::Work work{};
    scheduler::TimePoint taken{}, ended{};
    scheduler::Duration time{};
    // Part of the time in which other clients had work on the device, too.
    scheduler::Duration shared{};
  };

  std::vector<Command> GetCommands(std::uint64_t session) const;
  // Time that a slice ran, and the part of that time in which it was concurrent with others. There
  // is one Run per slice.
  struct Run {
    scheduler::Duration time{}, shared{};
  };
  std::vector<Run> Runs() const;
  simulation::Node::Costs Costs() const;
  std::vector<scheduler::Duration> Gaps() const;
  std::vector<const trace::Slice*> SortedBy(scheduler::TimePoint trace::Slice::*time) const;
  std::size_t KernelNumber(const Command& command, simulation::Profile& profile,
                           std::map<std::string, std::size_t>& numbers) const;
  void FillRequests(const std::vector<Command>& commands,
                    const std::vector<trace::Request>& requests,
                    simulation::Profile& profile) const;
  void FillEndless(const std::vector<Command>& commands, simulation::Profile& profile) const;

  const std::uint32_t multiprocessors_;
  const scheduler::TimePoint from_;
  std::vector<trace::Slice> slices_;
  std::vector<trace::Request> requests_;
  std::map<std::uint64_t, std::string> kernels_;  // Kernel names by key.
  std::uint64_t lost_ = 0;
  // Valid after Finish.
  scheduler::TimePoint until_{};
  std::vector<Run> runs_;
  simulation::Node::Costs costs_;
};

// Derives from the times of requests how their client issues them. `requests` are in order of
// arrival.
simulation::Profile::Pace GetPace(const std::vector<trace::Request>& requests);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORDER_H_
