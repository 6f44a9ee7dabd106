// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_SESSION_LOG_H_
#define GPUSHARED_SERVER_BROKER_SESSION_LOG_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpushared/status.h"

#include "ipc/wire/layout.h"
#include "server/broker/access_rules.h"

namespace gpushared::server {

// A session from its handover to a worker until the worker reports its end or dies.
struct LiveSession {
  std::uint64_t id = 0;
  Peer peer;
  std::string name;  // As reported by the client; printable.
  SchedulingClass client_class = SchedulingClass::kNormal;
  std::uint32_t weight = 1;
  // Number of the endpoint that the client connected through, and its name.
  std::uint32_t endpoint = 0;
  std::string endpoint_name;
  std::string device;
  std::uint32_t generation = 0;  // Generation of the worker.
  std::uint64_t quota_bytes = 0;
  std::uint64_t guaranteed_bytes = 0;
  device::Isolation isolation = device::Isolation::kOff;
  std::chrono::steady_clock::time_point since;
  bool started = false;  // The worker has completed the handshake.

  std::string Who() const;  // "session 7 'train' uid 1000 pid 4121"
};

// The broker's record of sessions: the live ones, for quotas and operators, and the reasons why the
// latest ones ended, for clients that ask. Memory is bounded, and the records of one uid evict
// those of another uid only if the log holds kEndsMax records.
//
// Confined to the broker's thread.
class SessionLog {
 public:
  static constexpr std::size_t kEndsMax = 1024;
  static constexpr std::size_t kEndsPerUidMax = 128;

  // Ids ascend from 1. They are never reused, either by this broker or by one that takes over from
  // it.
  std::uint64_t NextId() { return ++last_id_; }
  // Records that an earlier broker has used all ids up to this one.
  void Know(std::uint64_t last_id) { last_id_ = std::max(last_id_, last_id); }
  // Records a session that ended under an earlier broker.
  void Remember(std::uint64_t id, std::uint32_t uid, std::int32_t pid, const Status& why);

  void Add(LiveSession session);
  // Returns null for unknown ids.
  LiveSession* Find(std::uint64_t id);
  // Moves the live session to the ended ones with the reason `why`; ignores unknown ids.
  void End(std::uint64_t id, const Status& why);
  // Ids of the sessions on the device, ascending.
  std::vector<std::uint64_t> On(const std::string& device) const;

  // HeldBy covers the uid's clients that connected through the server's own socket, HeldThrough all
  // clients that connected through the endpoints.
  Holdings HeldBy(std::uint32_t uid, const std::string& device) const;
  Holdings HeldThrough(const std::set<std::uint32_t>& endpoints, const std::string& device) const;
  // Ids of the sessions that connected through the endpoint, ascending.
  std::vector<std::uint64_t> Through(std::uint32_t endpoint) const;
  const std::map<std::uint64_t, LiveSession>& live() const { return live_; }

  // Returns why the session ended, but only to the process that owned it. The number alone does not
  // prove that, because a restarted server numbers its sessions from 1 again.
  std::optional<Status> WhyEnded(std::uint64_t id, const Peer& asker) const;

 private:
  struct Ending {
    std::uint64_t id;
    std::uint32_t uid;
    std::int32_t pid;
    Status why;
  };

  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, LiveSession> live_;
  std::deque<Ending> ends_;  // Oldest first.
  std::map<std::uint32_t, std::size_t> ends_of_uid_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_SESSION_LOG_H_
