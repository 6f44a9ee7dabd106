// SPDX-License-Identifier: Apache-2.0
#include "server/broker/admin_rights.h"

#include <algorithm>
#include <string>

namespace gpushared::server {
namespace {

bool IsAmong(const std::vector<Subject>& subjects, const Peer& peer) {
  return std::ranges::any_of(subjects, [&](const Subject& each) { return IsAbout(each, peer); });
}

}  // namespace

bool AdminRights::MayOperate(const Peer& peer) const {
  return IsTrusted(peer.uid, own_uid_) || IsAmong(operators_, peer);
}

bool AdminRights::MayObserve(const Peer& peer) const {
  return MayOperate(peer) || IsAmong(observers_, peer);
}

Status AdminRights::Check(const Peer& peer, ipc::AdminVerb verb) const {
  const bool may_observe = ipc::GetFacts(verb).is_read_only;
  if (may_observe ? MayObserve(peer) : MayOperate(peer)) return Status::Ok();
  return {StatusCode::kPermissionDenied,
          "request '" + std::string(ipc::AdminVerbName(verb)) +
              "' denied: it requires the right '" + (may_observe ? "observe" : "operate") +
              "', which root, uid " + std::to_string(own_uid_) +
              " and users named in the server's configuration have [" + peer.Who() + "]"};
}

}  // namespace gpushared::server
