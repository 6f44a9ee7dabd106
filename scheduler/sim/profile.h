// SPDX-License-Identifier: Apache-2.0
// What was measured of a job, and of a device with the jobs that it has: two kinds of files.

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

// Steps of all requests of one profile.
inline constexpr std::size_t kProfileStepsMax = 200'000;
inline constexpr std::size_t kProfileRequestsMax = 100'000;
inline constexpr std::size_t kProfileKernelsMax = 4096;
inline constexpr std::size_t kProfileNameBytesMax = 96;
inline constexpr std::size_t kNodeClientsMax = 64;
inline constexpr std::size_t kCostQuantiles = 200;

// A job as its profile says it: who it is, when its requests come, and what each of them runs.
struct Profile {
  enum class Pace : std::uint8_t {
    kEndless,   // The next request as soon as one has ended.
    kOpen,      // Requests arrive, whatever became of those before.
    kInTurn,    // Requests arrive; the client takes up one when the one before has ended.
    kClosed,    // The next request some time after the one before has ended.
    kPoisson,   // kOpen, drawn.
    kBursty,    // The same.
    kPeriodic,  // The same, at even distances.
  };
  enum class Work : std::uint8_t { kKernel, kCopyToDevice, kCopyToHost };
  struct Kernel {
    std::string name;
    Work work = Work::kKernel;
  };
  struct Step {
    std::size_t kernel = 0;
    double us = 0;                   // Device time.
    std::optional<double> after_us;  // As in simulation::Kernel.
  };
  struct Request {
    // From the begin of the profile to its arrival. kClosed: the pause before it. Else unused.
    double at_ms = 0;
    std::vector<Step> steps;
  };
  // How it was taken; all zero where it was written by hand.
  struct Seen {
    double seconds = 0;
    double shared_percent = 0;  // Of its device time: measured while others had work there, too.
    std::uint64_t lost = 0;     // Events that came faster than they were read.
    std::uint32_t streams = 0;
  };

  std::string name;
  scheduler::ClientSpec spec;
  double max_share_percent = 100;
  double memory_mib = 0;
  Pace pace = Pace::kEndless;
  double every_ms = 0;  // Mean distance of drawn arrivals.
  std::vector<Kernel> kernels;
  std::vector<Request> requests;
  Seen seen;

  bool has_requests() const { return pace != Pace::kEndless; }
  bool is_drawn() const { return pace >= Pace::kPoisson; }
};

// A device and who uses it.
struct Node {
  // Costs of the device, as its server measured them.
  struct Costs {
    double launch_us = 20;  // From the submission to an idle device until the first unit begins.
    double gap_us = 5;      // From one kernel of a stream to the next, which was there already.
    double notice_us = 20;  // From the end of a kernel until the server knows it.
    double stop_us = 50;    // From asking work to stop until it has left.
    std::optional<double>
        launch_bubble_us;  // Of `status`; launch and notice where it is not known.
    // Quantiles of the first three, one as likely as another. Empty: always as long as above.
    std::vector<double> launches_us = {}, gaps_us = {}, notices_us = {};
    std::uint64_t samples = 0;  // Launches on which the first three rest.
    std::uint64_t stops = 0;    // The same for stop_us.
  };

  std::string name;
  std::string kind = "cpu";
  std::uint32_t multiprocessors = 1;
  bool stops_within_commands = true;
  double memory_mib = 0;  // Zero: not known.
  std::string policy = "priority";
  scheduler::PolicyOptions options;
  Costs costs;
  std::vector<Profile> clients;
};

// Reject with path, line and what was expected there.
Result<Profile> ReadProfile(const std::string& path);
Result<Node> ReadNode(const std::string& path);

// Files as the two above read them; a line for each request.
std::string ProfileText(const Profile& profile);
std::string NodeText(const Node& node);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_PROFILE_H_
