// SPDX-License-Identifier: Apache-2.0
// The mechanism for one device: queues, bounds, charges. Calls the policy and checks its
// decisions.

#ifndef GPUSHARED_SCHEDULER_DEVICE_LANE_H_
#define GPUSHARED_SCHEDULER_DEVICE_LANE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/charge_meter.h"
#include "scheduler/client_table.h"
#include "scheduler/command_queue.h"
#include "scheduler/policy.h"
#include "scheduler/share_caps.h"
#include "scheduler/submission_list.h"

namespace gpushared::scheduler {

struct LaneOptions {
  // Limit of commands on the device. Where classes matter, the high class has a separate limit.
  std::size_t in_flight_max = 64;
  std::size_t high_in_flight_max = 64;
  // Limit of the predicted time of commands on the device. The limit keeps the device's own queue
  // short, because commands cannot be removed from that queue. Does not apply to the high class
  // where classes matter. See also DeviceLane::lookahead.
  Duration window = std::chrono::microseconds(500);
  // Number of commands that are admitted regardless of the window. With 0, a command longer than
  // the window could never run. A client that has the device to itself gets one more. Larger values
  // let long commands of one class run side by side.
  std::size_t beyond_window_max = 1;
  // Whether one stoppable command may follow another one of the same stream on the device. Both are
  // then stopped together.
  bool chains_stops = false;
  // Minimum time on the device after which a command that stops late (LaneCommand::stops_late)
  // outlives its prediction. The command must also have been charged twice the prediction.
  Duration outlived_after = std::chrono::milliseconds(1);
};

struct Action {
  enum class Kind : std::uint8_t {
    kSubmit,
    kStop,
    // The command and its stream's other commands on the device can be stopped from now on. The
    // caller removes the commands queued after them (Drop), because these would run between the
    // command's two parts.
    kOutlived,
  };
  Kind kind = Kind::kSubmit;
  ClientId client;
  std::uint64_t command = 0;
  // For kSubmit: where the device has a choice, the larger priority is served first. 0 for all
  // commands when the policy ignores classes.
  std::uint8_t priority = 0;
};

struct Charge {
  ClientId client;
  Duration held{};  // Device time charged to the command.
  // Whether a stop of the command was requested, by an action or by the removal of its client.
  bool stop_asked = false;
};

// Queues of one device, and the commands in flight on it.
//
// After each event, and when wake_at() is reached, the caller takes actions from Next() until none
// is left, and carries out each before it makes any other call. All charges add up to the time in
// which at least one command was in flight.
//
// Allocates only when clients are added, and when a client has more queued or dropped commands than
// ever before. The caller must bound how much a client can queue.
//
// Confined to the thread that drives it.
class DeviceLane {
 public:
  explicit DeviceLane(std::unique_ptr<Policy> policy, const LaneOptions& options = {});

  // The caller must reject clients beyond kClientsMax and weights out of range before this call.
  void AddClient(ClientId client, const ClientSpec& spec, TimePoint now);
  void ChangeClient(ClientId client, const ClientSpec& spec, TimePoint now);
  // Replaces the client's caps; see ShareCaps::Join. A client whose cap is used up is throttled:
  // its commands are hidden from the policy, and those on the device are stopped where possible.
  // Commands on the device are charged to the new caps from now on.
  void LimitClient(ClientId client, std::span<const ShareCap> caps, TimePoint now);
  // Suspends or resumes the client. A suspended client is treated as throttled.
  void Hold(ClientId client, bool is_suspended, TimePoint now);
  // Removes the client, drops its queued commands, and returns those in flight. The caller has the
  // device stop the latter, and reports each to OnCompleted like any other command. The span is
  // valid until the next call.
  std::span<const std::uint64_t> RemoveClient(ClientId client, TimePoint now);

  void Enqueue(ClientId client, const LaneCommand& command, TimePoint now);
  // Requeues the remainder of a preempted command at the head of its client's queue.
  void EnqueueFront(ClientId client, const LaneCommand& command, TimePoint now);
  // Removes the queued commands for which `doomed(command)` holds, such as those of a failed
  // stream, and returns them in order. `doomed` must not change anything. The span is valid until
  // the next call.
  template <typename Predicate>
  std::span<const std::uint64_t> Drop(ClientId client, Predicate doomed, TimePoint now) {
    dropped_.clear();
    Queue(client).RemoveIf([&](const QueuedCommand& queued) {
      const bool is_doomed = doomed(queued.command.command);
      if (is_doomed) dropped_.push_back(queued.command.command);
      return is_doomed;
    });
    if (!dropped_.empty()) OnQueueChanged(client, now);
    return dropped_;
  }

  // Reports that a request of the client begins or ends; see Policy. The caller chooses the number.
  void BeginRequest(ClientId client, const RequestMark& request, TimePoint now);
  void EndRequest(ClientId client, std::uint64_t number, TimePoint now);
  // Reports that the client expects its next request at `at`.
  void ExpectRequest(ClientId client, TimePoint at, TimePoint now);

  // Sets the launch bubble: device idle time between the end of a command and the start of one that
  // is submitted when that end is noticed. Until the first call, lookahead() equals the window.
  void SetLaunchBubble(Duration launch_bubble);

  // Sets the total host steal, that is, the time in which the host kept the device from running.
  // The total never decreases. Host steal is charged to no client.
  void SetHostSteal(Duration total) { meter_.Exclude(total); }
  Duration host_steal() const { return meter_.excluded(); }

  // Reports that a submitted command left the device, completed or stopped.
  Charge OnCompleted(std::uint64_t command, TimePoint now);

  // Returns the next action; empty if none is due before the next event or wake_at().
  std::optional<Action> Next(TimePoint now);
  // Returns the time at which to call Next again even without an event. Valid after Next returned
  // nothing.
  std::optional<TimePoint> wake_at() const { return wake_at_; }

  std::size_t in_flight_count() const { return in_flight_.size(); }
  std::size_t queued_count(ClientId client) const;
  bool IsCapped(ClientId client) const;
  // Returns for how long, up to `now`, the client was throttled by its caps while it had commands
  // queued.
  Duration ThrottledFor(ClientId client, TimePoint now) const;
  // Returns for how long, up to `now`, the client was suspended while it had commands queued.
  Duration SuspendedFor(ClientId client, TimePoint now) const;
  Duration charged_total() const { return meter_.charged_total(); }
  // Calls `call(command, held)` with what each command on the device would be charged if it left
  // now.
  template <typename Call>
  void ForEachHeld(TimePoint now, Call call) const {
    for (const InFlight& each : in_flight_) call(each.command, HeldSoFar(each, now));
  }
  // Returns the time in which the device had work, up to `now`: all charges, including pending
  // ones.
  Duration BusyUntil(TimePoint now) const { return meter_.BusyUntil(now); }
  // See ChargeMeter.
  Duration uncharged() const { return meter_.uncharged(); }
  Duration window_used() const { return window_used_; }
  // Returns the predicted time that a windowed stream may have on the device after the stream's
  // oldest command. While an urgent client is connected, this time is just long enough to keep the
  // device busy until more can be submitted. While none is connected, only the window bounds it.
  Duration lookahead() const { return urgent_count_ > 0 ? lookahead_ : options_.window; }
  bool has_urgent_client() const { return urgent_count_ > 0; }
  const LaneOptions& options() const { return options_; }
  const LaneRules& rules() const { return rules_; }
  TargetReport targets() const { return policy_->targets(); }
  bool IsPreemptibleBy(const ClientSpec& running, const ClientSpec& waiting) const {
    return policy_->IsPreemptibleBy(running, waiting);
  }

 private:
  // Accumulates the time for which a condition has been true.
  struct KeptTime {
    std::optional<TimePoint> since{};
    Duration before{};
    void Count(bool is_so, TimePoint now);
    Duration Until(TimePoint now) const;
  };
  struct Client {
    ClientSpec spec;
    CommandQueue queue;
    bool reported_ready = false;
    bool is_capped_out = false;  // Whether one of its caps is closed.
    bool is_suspended = false;
    ShareCaps::Set caps;
    // Times for which the client was throttled or suspended while it had commands queued.
    KeptTime capped_out_for, suspended_for;
    bool is_throttled() const { return is_capped_out || is_suspended; }
  };
  struct InFlight {
    std::uint64_t command = 0;
    ClientId client;
    TimePoint since;
    Duration predicted{};
    Duration reported{};  // Time that was reported to the policy before `charge` began.
    std::uint32_t stream = 0;
    std::uint8_t account = 0;  // Account that the policy chose.
    ChargeMeter::Entry charge;
    bool stoppable = false;
    // Whether the command becomes stoppable only when it outlives its prediction.
    bool stops_late = false;
    bool has_outlived = false;
    bool stop_asked = false;
    bool policy_asked = false;  // Whether the policy decided to stop the command.
    // Whether a stop was decided whose action has not been returned yet.
    bool stop_pending = false;
    bool windowed = false;
    // Whether the client was removed, so that no event of the command is reported to the policy.
    bool orphan = false;
    ShareCaps::Set caps;
    Duration billed{};  // Time billed to the client's caps so far.
  };

  static LaneCommand Bounded(const LaneCommand& command);
  static Head GetHead(const Client& state);
  CommandQueue& Queue(ClientId client);
  void OnQueueChanged(ClientId client, TimePoint now);
  void ReportHead(ClientId client, Client& state, TimePoint now);
  bool Admits(ClientId client, const Client& state) const;
  // Returns false if the client, which is capped but not bounded by the window, would have too much
  // work on the device. That work would become debt when the client's cap closes.
  bool IsWithinOwnWindow(ClientId client, const Client& state) const;
  // Whether the client's next command can be stopped together with the only windowed command in
  // flight.
  bool IsChained(ClientId client, const LaneCommand& next) const;
  // Returns the predicted time of all windowed commands of that stream on the device except the
  // oldest one.
  Duration GetTimeAfterOldest(ClientId client, std::uint32_t stream) const;
  bool IsWindowed(const Client& state) const;
  Action Submit(const Decision& decision, Client& state, TimePoint now);
  // Marks the client's commands for a stop. Returns false if all of them had been stopped already.
  bool MarkStops(ClientId client);
  void AskToStop(InFlight& command);
  Duration HeldSoFar(const InFlight& command, TimePoint now) const {
    return command.reported + meter_.SoFar(command.charge, now);
  }
  bool HasOutlived(const InFlight& command, TimePoint now) const;
  TimePoint NextCheckAt(const InFlight& command, TimePoint now) const;
  // Returns whether commands of other clients of the same or a higher class are on the device.
  bool SharesDevice(const InFlight& command);
  // Makes the commands of the next stream with an outlived prediction stoppable. Stops them if
  // SharesDevice holds or the client is throttled.
  std::optional<Action> TakeOutlived(TimePoint now);
  void BecomeStoppable(InFlight& command, TimePoint now);
  // Bills the commands on the device, and throttles or resumes clients.
  void ReviewCaps(TimePoint now);
  void BillSoFar(InFlight& command, TimePoint now);
  // Reports a change of the client's throttling to the policy.
  void OnThrottledChanged(ClientId client, Client& state, bool was_throttled, TimePoint now);
  static void CountKept(Client& state, TimePoint now);
  Action TakePendingStop();

  const std::unique_ptr<Policy> policy_;
  const LaneOptions options_;
  const LaneRules rules_;
  ClientTable<Client> clients_;
  SubmissionList<InFlight> in_flight_;
  std::vector<std::uint64_t> removed_in_flight_;
  std::vector<std::uint64_t> dropped_;
  ChargeMeter meter_;
  ShareCaps caps_;
  Duration window_used_{};
  Duration lookahead_;  // Used while urgent_count_ is not 0.
  std::size_t urgent_count_ = 0;
  std::size_t windowed_count_ = 0;
  std::size_t stops_pending_ = 0;
  // Earliest time at which a command can outlive its prediction; empty if none can.
  std::optional<TimePoint> outlived_at_;
  std::uint64_t next_arrival_ = 1;
  bool settled_ = false;  // Whether no event has occurred since Next returned nothing.
  std::optional<TimePoint> wake_at_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_DEVICE_LANE_H_
