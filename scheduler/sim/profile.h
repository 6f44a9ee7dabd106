// SPDX-License-Identifier: Apache-2.0
// Files of measurements: profiles of jobs, and nodes (devices with their present jobs).

#ifndef GPUSHARED_SCHEDULER_SIM_PROFILE_H_
#define GPUSHARED_SCHEDULER_SIM_PROFILE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/types.h"

namespace gpushared::simulation {

// Maximum number of steps in all requests of one profile together.
inline constexpr std::size_t kProfileStepsMax = 200'000;
inline constexpr std::size_t kProfileRequestsMax = 100'000;
inline constexpr std::size_t kProfileKernelsMax = 4096;
inline constexpr std::size_t kProfileNameBytesMax = 96;
inline constexpr std::size_t kNodeClientsMax = 64;
inline constexpr std::size_t kCostQuantiles = 200;

// A job as its profile describes it: its class and rights, the arrivals of its requests, and their
// work.
struct Profile {
  enum class Pace : std::uint8_t {
    kEndless,  // The next request starts as soon as the previous one has ended.
    kOpen,     // Requests arrive independently of earlier ones.
    // Requests arrive independently, but the client starts a request only when the previous one has
    // ended.
    kInTurn,
    kClosed,    // The next request starts some time after the previous one has ended.
    kPoisson,   // As kOpen, with random (Poisson) arrivals.
    kBursty,    // As kOpen, with random arrivals in bursts.
    kPeriodic,  // As kOpen, with arrivals at equal intervals.
  };
  enum class Work : std::uint8_t { kKernel, kCopyToDevice, kCopyToHost };
  struct Kernel {
    std::string name;
    Work work = Work::kKernel;
  };
  struct Step {
    std::size_t kernel = 0;
    double us = 0;                   // Device time of the step.
    std::optional<double> after_us;  // See simulation::Kernel.
  };
  struct Request {
    // With kOpen and kInTurn, the time from the start of the profile to the request's arrival; with
    // kClosed, the pause before the request. Unused with all other paces.
    double at_ms = 0;
    std::vector<Step> steps;
  };
  // Conditions of the measurement; all zero for a profile written by hand.
  struct Seen {
    double seconds = 0;
    // Share of the job's device time that was measured while others had work on the device.
    double shared_percent = 0;
    std::uint64_t lost = 0;  // Events lost because they came faster than they were read.
    std::uint32_t streams = 0;
  };

  std::string name;
  scheduler::ClientSpec spec;
  double max_share_percent = 100;
  double memory_mib = 0;
  Pace pace = Pace::kEndless;
  double every_ms = 0;  // Mean interval of kPoisson, kBursty and kPeriodic arrivals.
  std::vector<Kernel> kernels;
  std::vector<Request> requests;
  Seen seen;

  bool has_requests() const { return pace != Pace::kEndless; }
  bool is_drawn() const { return pace >= Pace::kPoisson; }
};

// A device and its clients.
struct Node {
  // Costs of the device, as measured by its server.
  struct Costs {
    double launch_us = 20;  // From the submission to an idle device until the first unit begins.
    // From the end of a kernel to the start of the next one of its stream, if that is already
    // submitted.
    double gap_us = 5;
    double notice_us = 20;  // From the end of a kernel until the server has noticed it.
    double stop_us = 50;    // From the request to stop work until the work has left the device.
    // As reported by `status`; derived from launch_us and notice_us if unknown.
    std::optional<double> launch_bubble_us;
    // Equally likely values of launch_us, gap_us and notice_us. If empty, the values above are
    // exact.
    std::vector<double> launches_us = {}, gaps_us = {}, notices_us = {};
    std::uint64_t samples = 0;  // Number of launches measured for launch_us, gap_us and notice_us.
    std::uint64_t stops = 0;    // Number of stops measured for stop_us.
  };

  std::string name;
  std::string kind = "cpu";
  std::uint32_t multiprocessors = 1;
  bool stops_within_commands = true;
  double memory_mib = 0;  // Zero if unknown.
  std::string policy = "priority";
  scheduler::PolicyOptions options;
  Costs costs;
  std::vector<Profile> clients;
};

// Errors name the path, the member and the expected value.
Result<Profile> ReadProfile(const std::string& path);
Result<Node> ReadNode(const std::string& path);

// Formats the profile as text in the format that the two functions above read; one line per
// request.
std::string ProfileText(const Profile& profile);
std::string NodeText(const Node& node);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_PROFILE_H_
