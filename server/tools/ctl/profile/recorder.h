// SPDX-License-Identifier: Apache-2.0
// Profiles of jobs, and what their device costs, from the trace of a device.

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

// Keeps what a device ran for a while, then tells it as profiles.
//
// Thread-compatible.
class ProfileRecorder {
 public:
  // `from`: what began before is incomplete, and is left out.
  ProfileRecorder(std::uint32_t multiprocessors, scheduler::TimePoint from)
      : multiprocessors_(multiprocessors), from_(from) {}

  // `names`: the reader that told the event.
  void Add(const trace::Reader& names, const trace::Event& event);
  void AddLost(std::uint64_t events) { lost_ += events; }
  // Whether there is no room for further events, which are thrown away.
  bool IsFull() const { return slices_.size() >= kSlicesMax; }

  // No event comes after it, and the following may be asked.
  void Finish(scheduler::TimePoint until);
  // The part of the profile that the trace tells: pace, kernels, requests, what was seen.
  // kNotReady where the client ran nothing.
  Result<simulation::Profile> GetProfile(std::uint64_t session) const;
  // Without the launch bubble, which the server tells. What was never seen is as in Node::Costs.
  const simulation::Node::Costs& costs() const { return costs_; }

 private:
  static constexpr std::size_t kSlicesMax = 2'000'000;
  static constexpr std::size_t kRequestsMax = 200'000;

  // A command from its first submission to its end, however often it was stopped.
  struct Command {
    std::uint64_t kernel = 0, request = 0;
    std::uint16_t shape = 0;
    trace::Work work{};
    scheduler::TimePoint taken{}, ended{};
    scheduler::Duration time{};
    scheduler::Duration shared{};  // The part of it in which others had work there, too.
  };

  std::vector<Command> GetCommands(std::uint64_t session) const;
  // The time that a slice ran, and how much of it beside others: of each slice.
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
  std::map<std::uint64_t, std::string> kernels_;  // Names by key.
  std::uint64_t lost_ = 0;
  // Since Finish.
  scheduler::TimePoint until_{};
  std::vector<Run> runs_;
  simulation::Node::Costs costs_;
};

// How a client takes up its requests, from how they lie in time; ascending by arrival.
simulation::Profile::Pace GetPace(const std::vector<trace::Request>& requests);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORDER_H_
