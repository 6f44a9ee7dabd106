// SPDX-License-Identifier: Apache-2.0
// The seam between mechanism and policy.

#ifndef GPUSHARED_SCHEDULER_POLICY_H_
#define GPUSHARED_SCHEDULER_POLICY_H_

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Rules that a policy sets for its lane, constant for its life.
struct LaneRules {
  // Commands of two clients are never on the device together.
  bool one_client_at_a_time = false;
  // High-class commands are not held back by the window, and the device is told
  // the class of each command as its priority.
  bool classes_matter = false;

  // Whether others keep out of this client's way for the sake of its latency.
  bool IsUrgent(const ClientSpec& spec) const {
    return classes_matter &&
           (spec.scheduling_class == SchedulingClass::kHigh || spec.latency_target.has_value());
  }
};

// Decides whose command a device lane submits next, and whose it stops.
//
// A policy is a deterministic state machine: equal calls in equal order give equal
// decisions. It owns no thread, reads no clock, file or environment variable, and
// never blocks or allocates except in OnClientAdded. That is what lets the same
// object run in the worker, in a simulation of a week, and in a test of three lines.
//
// The caller keeps these promises (tests/conformance/policy_conformance_test.cpp
// runs every policy under all legal call orders up to a fixed length):
//   * `now` never decreases from one call to the next.
//   * OnClientAdded comes first and OnClientRemoved last for each client. Its number is
//     not used again. At most kClientsMax clients are present.
//   * A client is ready from OnReady to OnIdle. OnReady is called again whenever its
//     head changes, so OnReady or OnIdle follows each OnStarted.
//   * OnStarted follows a Decision that said kRun, for that client and head.
//   * OnEnded is called once per OnStarted, unless the client was removed before.
//   * A command that outlives its prediction and can be stopped from then on is told as two: an
//     OnStarted without Decision and without OnReady or OnIdle after it, then the OnEnded of what
//     it has taken so far.
//   * A client is throttled from OnThrottled(true) to OnThrottled(false), and is not ready
//   meanwhile.
//   * OnRequestEnded is called once per OnRequestBegan, unless the client was removed
//     before. At most kOpenRequestsMax requests of a client are open, with different
//     numbers, and none arrived later than `now`.
//   * The lane may stop commands on its own. `stop_asked` says only what the policy asked for.
// A client may be removed with commands ready or on the device; the policy must
// forget it, and is not told of its commands again.
//
// The policy keeps these:
//   * kRun names a ready client. kStop names a client with a stoppable command on the
//     device that was not asked to stop. The lane ends the process otherwise.
//   * A decision changes only by an event or by reaching its reconsider_at. The lane's
//     bounds may forbid what kRun names. It then asks again after the next event, or at
//     reconsider_at.
//
// Thread-compatible: the device lane that owns the policy makes all calls.
class Policy {
 public:
  virtual ~Policy() = default;

  virtual LaneRules rules() const { return {}; }

  virtual void OnClientAdded(ClientId client, const ClientSpec& spec, TimePoint now) = 0;
  virtual void OnClientChanged(ClientId client, const ClientSpec& spec, TimePoint now) = 0;
  virtual void OnClientRemoved(ClientId client, TimePoint now) = 0;

  virtual void OnReady(ClientId client, const Head& head, TimePoint now) = 0;
  virtual void OnIdle(ClientId client, TimePoint now) = 0;

  virtual void OnStarted(ClientId client, const Head& head, TimePoint now) = 0;
  virtual void OnEnded(ClientId client, const Ended& ended, TimePoint now) = 0;

  // The client's cap lets it have no time for now. Nobody is to be kept waiting for it, whatever it
  // promised or expects.
  virtual void OnThrottled(ClientId, bool /*is_throttled*/, TimePoint) {}

  // For policies that look at requests. `at` is when the client expects its next one.
  virtual void OnRequestBegan(ClientId, const RequestMark&, TimePoint) {}
  virtual void OnRequestEnded(ClientId, std::uint64_t /*number*/, TimePoint) {}
  virtual void OnRequestExpected(ClientId, TimePoint /*at*/, TimePoint) {}

  virtual Decision Pick(TimePoint now) = 0;

  // Whether `waiting` makes work of `running` leave the device before its end. If no present client
  // does, work is better started unstoppable where stopping has a price. The end of a slice
  // inside a class is no reason under policies that look at classes. Their shares come out right
  // without it, only later.
  virtual bool IsPreemptibleBy(const ClientSpec& /*running*/, const ClientSpec& /*waiting*/) const {
    return true;
  }

  // All zero where promises play no part.
  virtual TargetReport targets() const { return {}; }
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_POLICY_H_
