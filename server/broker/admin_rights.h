// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_ADMIN_RIGHTS_H_
#define GPUSHARED_SERVER_BROKER_ADMIN_RIGHTS_H_

#include <cstdint>
#include <vector>

#include "gpushared/status.h"

#include "ipc/wire/control.h"
#include "server/broker/access_rules.h"
#include "server/config/subject.h"

namespace gpushared::server {

// Admin rights: observers may query, operators may also change. Root and the server's own uid are
// always operators.
//
// Thread-compatible value; constant after construction.
class AdminRights {
 public:
  AdminRights(std::vector<Subject> observers, std::vector<Subject> operators, std::uint32_t own_uid)
      : observers_(std::move(observers)), operators_(std::move(operators)), own_uid_(own_uid) {}

  bool MayOperate(const Peer& peer) const;
  bool MayObserve(const Peer& peer) const;
  // Returns Ok, or a rejection that names the verb and the right it requires.
  Status Check(const Peer& peer, ipc::AdminVerb verb) const;

 private:
  std::vector<Subject> observers_, operators_;
  std::uint32_t own_uid_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_ADMIN_RIGHTS_H_
