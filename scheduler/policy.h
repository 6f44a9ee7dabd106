// SPDX-License-Identifier: Apache-2.0
// Interface between mechanism (the device lane) and policy.

#ifndef GPUSHARED_SCHEDULER_POLICY_H_
#define GPUSHARED_SCHEDULER_POLICY_H_

#include "scheduler/types.h"

namespace gpushared::scheduler {

// Rules that a policy sets for its lane, constant for the policy's lifetime.
struct LaneRules {
  // Commands of two clients are never on the device at the same time.
  bool one_client_at_a_time = false;
  // High-class commands are exempt from the window, and each command's class is passed to the
  // device as its priority.
  bool classes_matter = false;
  // The policy never stops a command.
  bool never_preempts = false;

  // Returns whether other clients' work is kept short for the sake of this client's latency.
  bool IsUrgent(const ClientSpec& spec) const {
    return classes_matter &&
           (spec.scheduling_class == SchedulingClass::kHigh || spec.latency_target.has_value());
  }
};

// Decides which client's command a device lane submits next, and which client's commands it
// stops.
//
// A policy is a deterministic state machine: equal calls in equal order give equal decisions. It
// owns no thread, reads no clock, file or environment variable, never blocks, and allocates only in
// OnClientAdded. Therefore the same class runs in the worker, in the simulation of a week, and in a
// test of three lines.
//
// The caller guarantees (tests/conformance/policy_conformance_test.cpp runs every policy under all
// legal call orders up to a fixed length):
//   * `now` never decreases from one call to the next.
//   * OnClientAdded comes first and OnClientRemoved last for each client. A client's number is not
//     reused. At most kClientsMax clients are present.
//   * A client is ready from OnReady to OnIdle. OnReady is called again whenever its head changes,
//     so OnReady or OnIdle follows each OnStarted.
//   * OnStarted follows a Decision of kind kRun, for that client and head.
//   * OnEnded is called once per OnStarted, unless the client was removed before.
//   * A command that becomes stoppable because it outlived its prediction is reported as two
//     commands: first the OnStarted of the stoppable rest, without a Decision before it and without
//     an OnReady or OnIdle after it, then the OnEnded for the time so far.
//   * A client is throttled from OnThrottled(true) to OnThrottled(false), and is not ready in the
//     meantime.
//   * OnRequestEnded is called once per OnRequestBegan, unless the client was removed before. At
//     most kOpenRequestsMax requests of a client are open, with distinct numbers, and none arrived
//     later than `now`.
//   * The lane may stop commands on its own; Ended::stop_asked is set only for stops that the
//     policy decided.
//
// A client may be removed with commands ready or on the device. The policy must then forget the
// client, because no further events about the client's commands follow.
//
// The policy guarantees:
//   * kRun names a ready client. kStop names a client with a stoppable command on the device that
//     has not been stopped yet. The lane terminates the process otherwise.
//   * A decision changes only by an event or by reaching its reconsider_at. If the lane's bounds do
//     not admit the command that kRun names, the lane calls Pick again after the next event or at
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

  // A throttled client has used up its cap or is suspended, so the policy must not delay other
  // clients for it, regardless of its latency target or hint.
  virtual void OnThrottled(ClientId, bool /*is_throttled*/, TimePoint) {}

  // Overridden by policies that use requests. `at` is the time at which the client expects its next
  // request.
  virtual void OnRequestBegan(ClientId, const RequestMark&, TimePoint) {}
  virtual void OnRequestEnded(ClientId, std::uint64_t /*number*/, TimePoint) {}
  virtual void OnRequestExpected(ClientId, TimePoint /*at*/, TimePoint) {}

  virtual Decision Pick(TimePoint now) = 0;

  // Returns whether `waiting` can preempt work of `running`. If no connected client can, the work
  // starts in its non-preemptible form, because the preemptible form is slower on some devices.
  // Under policies with classes the end of a slice inside a class does not count, because shares
  // even out without preemption, only later.
  virtual bool IsPreemptibleBy(const ClientSpec& /*running*/, const ClientSpec& /*waiting*/) const {
    return true;
  }

  // Returns all zeros for policies that ignore latency targets.
  virtual TargetReport targets() const { return {}; }
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_POLICY_H_
