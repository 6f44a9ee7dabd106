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

// A session from its handover to a worker until the worker (or its death) says that it ended.
struct LiveSession {
  std::uint64_t id = 0;
  Peer peer;
  std::string name;  // As the client says; printable.
  SchedulingClass client_class = SchedulingClass::kNormal;
  std::uint32_t weight = 1;
  std::uint32_t endpoint = 0;  // The number of the endpoint that it came through, and its name.
  std::string endpoint_name;
  std::string device;
  std::uint32_t generation = 0;  // The worker's.
  std::uint64_t quota_bytes = 0;
  std::uint64_t guaranteed_bytes = 0;
  device::Isolation isolation = device::Isolation::kOff;
  std::chrono::steady_clock::time_point since;
  bool started = false;  // The worker has welcomed it.

  std::string Who() const;  // "session 7 'train' uid 1000 pid 4121"
};

// What the broker knows of sessions: who lives where, for quotas and for operators, and why the
// latest ones ended, for clients that ask. Memory is bounded: one uid cannot push the ends of
// another one's sessions out before kEndsMax of them are there.
//
// Confined to the broker's thread.
class SessionLog {
 public:
  static constexpr std::size_t kEndsMax = 1024;
  static constexpr std::size_t kEndsPerUidMax = 128;

  // Ids ascend from 1. They are never reused, neither by this broker nor by one that took over from
  // it.
  std::uint64_t NextId() { return ++last_id_; }
  // An earlier broker gave this one, and all below it.
  void Know(std::uint64_t last_id) { last_id_ = std::max(last_id_, last_id); }
  // A session that ended before this broker was there.
  void Remember(std::uint64_t id, std::uint32_t uid, std::int32_t pid, const Status& why);

  void Add(LiveSession session);
  // Null when there is no such live session.
  LiveSession* Find(std::uint64_t id);
  // Forgets the live session and remembers `why`; ignores unknown ids.
  void End(std::uint64_t id, const Status& why);
  // Ids of the sessions on the device, ascending.
  std::vector<std::uint64_t> On(const std::string& device) const;

  // Counts those who came through the server's own socket.
  Holdings HeldBy(std::uint32_t uid, const std::string& device) const;
  Holdings HeldThrough(const std::set<std::uint32_t>& endpoints, const std::string& device) const;
  // Ids of the sessions that came through the endpoint, ascending.
  std::vector<std::uint64_t> Through(std::uint32_t endpoint) const;
  const std::map<std::uint64_t, LiveSession>& live() const { return live_; }

  // Why the session ended. Only the process that had it gets to know: a later broker's numbers
  // begin anew, so the number alone could name somebody else's session.
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
