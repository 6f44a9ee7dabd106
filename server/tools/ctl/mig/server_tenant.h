// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_MIG_SERVER_TENANT_H_
#define GPUSHARED_SERVER_TOOLS_CTL_MIG_SERVER_TENANT_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/mig/apply.h"

namespace gpushared::server {

// The running server, as one that has devices open. Asked only when there is a reason: at boot its
// socket may wait for a server that waits for us.
//
// Thread-compatible.
class ServerTenant : public mig::Tenant {
 public:
  // `socket`: empty where there is none. Sessions are waited for `drain_time` long.
  ServerTenant(std::string socket, std::chrono::seconds drain_time)
      : socket_(std::move(socket)), drain_time_(drain_time) {}

  // Who uses a device, as plans want it: sessions of the server, and processes that are not its.
  // kUnavailable and others: the server is there and does not tell.
  Status Look();
  std::string GetUser(const std::string& uuid, const std::vector<std::uint32_t>& processes) const;

  // Drains the device, and waits for its worker's end.
  Status Leave(const std::string& uuid) override;
  // Resumes. The server itself sees that a device is gone.
  void ComeBack(const std::optional<std::vector<std::string>>& there) override;

 private:
  struct Device {
    std::string id, state;
    std::uint64_t sessions = 0;
    std::uint32_t worker = 0;  // Its process; 0: none.
  };
  // By UUID; none where no server answers.
  Result<std::map<std::string, Device>> Devices() const;
  Status Drain(const std::string& id) const;

  const std::string socket_;
  const std::chrono::seconds drain_time_;
  std::map<std::string, Device> seen_;
  std::map<std::string, std::string> left_;  // UUIDs, and the ids by which they are resumed.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_MIG_SERVER_TENANT_H_
