// SPDX-License-Identifier: Apache-2.0
#include "server/broker/session_log.h"

#include <algorithm>
#include <utility>

#include "server/config/config_values.h"

namespace gpushared::server {

std::string LiveSession::Who() const {
  return "session " + std::to_string(id) + " '" + Escaped(name) + "' " + peer.Who();
}

void SessionLog::Add(LiveSession session) {
  const std::uint64_t id = session.id;
  live_.emplace(id, std::move(session));
}

LiveSession* SessionLog::Find(std::uint64_t id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second;
}

void SessionLog::End(std::uint64_t id, const Status& why) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const Peer peer = found->second.peer;
  live_.erase(found);
  Remember(id, peer.uid, peer.pid, why);
}

void SessionLog::Remember(std::uint64_t id, std::uint32_t uid, std::int32_t pid,
                          const Status& why) {
  std::size_t& of_uid = ends_of_uid_[uid];
  if (ends_.size() >= kEndsMax || of_uid >= kEndsPerUidMax) {
    // Evicts the oldest record of this uid if the uid has too many, otherwise the oldest of all.
    auto oldest = ends_.begin();
    if (of_uid >= kEndsPerUidMax) {
      oldest = std::find_if(ends_.begin(), ends_.end(),
                            [&](const Ending& end) { return end.uid == uid; });
    }
    const std::uint32_t loser = oldest->uid;
    ends_.erase(oldest);
    if (--ends_of_uid_[loser] == 0 && loser != uid) ends_of_uid_.erase(loser);
  }
  ++ends_of_uid_[uid];
  ends_.push_back({.id = id, .uid = uid, .pid = pid, .why = why});
}

std::vector<std::uint64_t> SessionLog::On(const std::string& device) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, session] : live_) {
    if (session.device == device) ids.push_back(id);
  }
  return ids;
}

namespace {

template <typename Counts>
Holdings Held(const std::map<std::uint64_t, LiveSession>& live, const std::string& device,
              Counts counts) {
  Holdings held;
  for (const auto& [id, session] : live) {
    if (!counts(session)) continue;
    ++held.clients;
    if (session.device == device) held.granted_bytes += session.guaranteed_bytes;
  }
  return held;
}

}  // namespace

Holdings SessionLog::HeldBy(std::uint32_t uid, const std::string& device) const {
  return Held(live_, device, [uid](const LiveSession& session) {
    return session.endpoint == 0 && session.peer.uid == uid;
  });
}

Holdings SessionLog::HeldThrough(const std::set<std::uint32_t>& endpoints,
                                 const std::string& device) const {
  return Held(live_, device,
              [&](const LiveSession& session) { return endpoints.contains(session.endpoint); });
}

std::vector<std::uint64_t> SessionLog::Through(std::uint32_t endpoint) const {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, session] : live_) {
    if (session.endpoint == endpoint) ids.push_back(id);
  }
  return ids;
}

std::optional<Status> SessionLog::WhyEnded(std::uint64_t id, const Peer& asker) const {
  const auto found =
      std::find_if(ends_.rbegin(), ends_.rend(), [&](const Ending& end) { return end.id == id; });
  if (found == ends_.rend() || found->uid != asker.uid || found->pid != asker.pid) {
    return std::nullopt;
  }
  return found->why;
}

}  // namespace gpushared::server
