// SPDX-License-Identifier: Apache-2.0
// The mechanism for one device: queues, bounds, charges. Calls the policy, checks its answer.

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
  // Commands on the device. Where classes matter the high class has its own count.
  std::size_t in_flight_max = 64;
  std::size_t high_in_flight_max = 64;
  // Predicted time of commands on the device, so that its own queue, out of which
  // nothing can be taken back, stays shallow. Not applied to the high class where
  // classes matter. See also DeviceLane::lookahead.
  Duration window = std::chrono::microseconds(500);
  // This many may be on the device whatever the window says; a command longer than the window
  // could never run otherwise. One more of a client that has the device to itself. Larger values
  // let long commands of one class run side by side.
  std::size_t beyond_window_max = 1;
  // A command that can be stopped may have one more such command of its stream behind it on the
  // device, which is stopped with it.
  bool chains_stops = false;
  // A command that can be stopped late outlives its prediction when it has been charged twice that,
  // and not before it has been on the device for this long.
  Duration outlived_after = std::chrono::milliseconds(1);
};

struct Action {
  enum class Kind : std::uint8_t {
    kSubmit,
    kStop,
    // The command, and all that its stream has on the device, can be stopped from now on. The
    // caller takes back what it queued behind them (Drop): that would run between two halves.
    kOutlived,
  };
  Kind kind = Kind::kSubmit;
  ClientId client;
  std::uint64_t command = 0;
  // For kSubmit: larger is served first where the device has a choice. 0 for all
  // commands when the policy does not look at classes.
  std::uint8_t priority = 0;
};

struct Charge {
  ClientId client;
  Duration held{};          // Device time this command is charged for.
  bool stop_asked = false;  // By an action, or by the removal of its client.
};

// One device's queues and the commands it holds.
//
// After each event, and when wake_at() is reached, the caller takes actions from
// Next() until there is none, and carries each out before anything else. All
// charges add up to the time in which at least one command was in flight.
//
// Allocates when clients are added, and when a client has more queued or dropped than
// ever before, and at no other time. How much a client may queue is the caller's to bound.
//
// Confined to the thread that drives it.
class DeviceLane {
 public:
  explicit DeviceLane(std::unique_ptr<Policy> policy, const LaneOptions& options = {});

  // The caller rejects a client beyond kClientsMax or a weight out of range before it
  // comes here.
  void AddClient(ClientId client, const ClientSpec& spec, TimePoint now);
  void ChangeClient(ClientId client, const ClientSpec& spec, TimePoint now);
  // Puts the client under these caps instead of its former ones; see ShareCaps::Join. A client
  // whose cap is used up is throttled: the policy is not told of its commands, and those on the
  // device are stopped if they can be. Commands on the device count under the new caps from now on.
  void LimitClient(ClientId client, std::span<const ShareCap> caps, TimePoint now);
  // A held client is throttled, too, until it is released.
  void Hold(ClientId client, bool is_suspended, TimePoint now);
  // Drops the client's queued commands and returns those in flight. The caller asks the
  // device to stop these, and reports them to OnCompleted like any other command. The span is
  // good until the next call.
  std::span<const std::uint64_t> RemoveClient(ClientId client, TimePoint now);

  void Enqueue(ClientId client, const LaneCommand& command, TimePoint now);
  // For what is left of a stopped command: goes before all else of its client.
  void EnqueueFront(ClientId client, const LaneCommand& command, TimePoint now);
  // Takes back queued commands for which `doomed(command)` holds (a stream that failed, say);
  // returns them in their order. `doomed` changes nothing. The span is good until the next call.
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

  // A request of the client begins or ends; see Policy. Numbers are the caller's choice.
  void BeginRequest(ClientId client, const RequestMark& request, TimePoint now);
  void EndRequest(ClientId client, std::uint64_t number, TimePoint now);
  // The client expects its next request at that time.
  void ExpectRequest(ClientId client, TimePoint at, TimePoint now);

  // Sets the launch bubble: the idle time between the end of a command and the start of one that is
  // submitted in answer to it. Until the first call it is as long as the window.
  void SetLaunchBubble(Duration launch_bubble);

  // Sets host delay in all, never less than before. The host kept the device from running during
  // that time, and nobody is charged for it.
  void SetHostSteal(Duration total) { meter_.Exclude(total); }
  Duration host_steal() const { return meter_.excluded(); }

  // A submitted command left the device, by itself or stopped.
  Charge OnCompleted(std::uint64_t command, TimePoint now);

  // The next action; empty when there is none before the next event or wake_at().
  std::optional<Action> Next(TimePoint now);
  // When to call Next again if nothing happens. Current after Next returned nothing.
  std::optional<TimePoint> wake_at() const { return wake_at_; }

  std::size_t in_flight_count() const { return in_flight_.size(); }
  std::size_t queued_count(ClientId client) const;
  bool IsCapped(ClientId client) const;
  // Time in which its caps throttled the client with commands queued, up to `now`.
  Duration ThrottledFor(ClientId client, TimePoint now) const;
  // The same while it was held.
  Duration SuspendedFor(ClientId client, TimePoint now) const;
  Duration charged_total() const { return meter_.charged_total(); }
  // Calls `call(command, held)` with what each command on the device would be charged if it left
  // now.
  template <typename Call>
  void ForEachHeld(TimePoint now, Call call) const {
    for (const InFlight& each : in_flight_) call(each.command, HeldSoFar(each, now));
  }
  // Time in which the device had work, up to `now`: what has been charged, and what would be.
  Duration BusyUntil(TimePoint now) const { return meter_.BusyUntil(now); }
  // See ChargeMeter.
  Duration uncharged() const { return meter_.uncharged(); }
  // Predicted time in flight that counts against the window.
  Duration window_used() const { return window_used_; }
  // Predicted time that a windowed stream may have on the device behind its oldest command. While
  // an urgent client is here, it is just enough to keep the device busy until more can come.
  // Otherwise only the window bounds it.
  Duration lookahead() const { return urgent_count_ > 0 ? lookahead_ : options_.window; }
  bool has_urgent_client() const { return urgent_count_ > 0; }
  const LaneOptions& options() const { return options_; }
  const LaneRules& rules() const { return rules_; }
  TargetReport targets() const { return policy_->targets(); }
  bool IsPreemptibleBy(const ClientSpec& running, const ClientSpec& waiting) const {
    return policy_->IsPreemptibleBy(running, waiting);
  }

 private:
  // Time during which something was so.
  struct KeptTime {
    std::optional<TimePoint> since{};
    Duration before{};
    void Count(bool is_so, TimePoint now);
    Duration Until(TimePoint now) const;
  };
  struct Client {
    ClientSpec spec;
    CommandQueue queue;
    bool told_ready = false;
    bool is_capped_out = false;  // A cap of it is closed.
    bool is_suspended = false;
    ShareCaps::Set caps;
    // With commands queued.
    KeptTime capped_out_for, suspended_for;
    bool is_throttled() const { return is_capped_out || is_suspended; }
  };
  struct InFlight {
    std::uint64_t command = 0;
    ClientId client;
    TimePoint since;
    Duration predicted{};
    Duration told{};  // Charged to its policy so far, before `charge` began.
    std::uint32_t stream = 0;
    std::uint8_t account = 0;  // Chosen by the policy.
    ChargeMeter::Entry charge;
    bool stoppable = false;
    bool stops_late = false;  // Not stoppable, but becomes it when it outlives its prediction.
    bool has_outlived = false;
    bool stop_asked = false;
    bool policy_asked = false;  // To stop it.
    bool stop_pending = false;  // Decided, the action not yet handed out.
    bool windowed = false;
    bool orphan = false;  // Its client was removed; the policy does not know it.
    ShareCaps::Set caps;
    Duration billed{};  // To its caps.
  };

  static LaneCommand Bounded(const LaneCommand& command);
  static Head GetHead(const Client& state);
  CommandQueue& Queue(ClientId client);
  void OnQueueChanged(ClientId client, TimePoint now);
  void ReportHead(ClientId client, Client& state, TimePoint now);
  bool Admits(ClientId client, const Client& state) const;
  // For a capped client that the window does not bound. Whatever it has on the device when its cap
  // closes is debt.
  bool IsWithinOwnWindow(ClientId client, const Client& state) const;
  // Whether the client's next command can be stopped with the only one that the window counts.
  bool IsChained(ClientId client, const LaneCommand& next) const;
  // Predicted time on the device behind the oldest windowed command of that stream.
  Duration BehindOldest(ClientId client, std::uint32_t stream) const;
  bool IsWindowed(const Client& state) const;
  Action Submit(const Decision& decision, Client& state, TimePoint now);
  // The policy stops the client. False when everything had been asked to stop already.
  bool MarkStops(ClientId client);
  void AskToStop(InFlight& command);
  Duration HeldSoFar(const InFlight& command, TimePoint now) const {
    return command.told + meter_.SoFar(command.charge, now);
  }
  bool HasOutlived(const InFlight& command, TimePoint now) const;
  TimePoint NextLookAt(const InFlight& command, TimePoint now) const;
  // Commands of other clients, of no lower class, are on the device.
  bool IsBesideOthers(const InFlight& command);
  // The next stream with a command that has outlived its prediction becomes stoppable, and leaves
  // the device if others are there.
  std::optional<Action> TakeOutlived(TimePoint now);
  void BecomeStoppable(InFlight& command, TimePoint now);
  // Bills what is on the device, and bars clients or lets them go on.
  void ReviewCaps(TimePoint now);
  void BillSoFar(InFlight& command, TimePoint now);
  // The client was throttled, or was not, before a change of it.
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
  Duration lookahead_;  // While urgent_count_ is not 0.
  std::size_t urgent_count_ = 0;
  std::size_t windowed_count_ = 0;
  std::size_t stops_pending_ = 0;
  // No command outlives its prediction before; empty while none can.
  std::optional<TimePoint> outlived_at_;
  std::uint64_t next_arrival_ = 1;
  bool settled_ = false;  // Nothing has happened since Next returned nothing.
  std::optional<TimePoint> wake_at_;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_DEVICE_LANE_H_
