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

// The running server as a tenant of GPUs. The server is queried only when necessary: at boot, the
// service manager may hold the socket for a server that waits for this program, so a query would
// never be answered.
//
// Thread-compatible.
class ServerTenant : public mig::Tenant {
 public:
  // `socket` is empty if there is no server. Waits up to `drain_time` for sessions to end.
  ServerTenant(std::string socket, std::chrono::seconds drain_time)
      : socket_(std::move(socket)), drain_time_(drain_time) {}

  // Reads the server's devices for GetUser. Any error, such as kUnavailable, means that a server
  // exists but did not answer.
  Status ReadUsers();
  // Describes the users of a device for plans: sessions of the server, and those of `processes`
  // that are not workers of the server.
  std::string GetUser(const std::string& uuid, const std::vector<std::uint32_t>& processes) const;

  // Drains the device and waits for its worker to exit.
  Status Leave(const std::string& uuid) override;
  // Resumes the devices. The server itself detects devices that have disappeared.
  void ComeBack(const std::optional<std::vector<std::string>>& there) override;

 private:
  struct Device {
    std::string id, state;
    std::uint64_t sessions = 0;
    std::uint32_t worker = 0;  // Process id; 0 if there is no worker.
  };
  // Devices by UUID; empty if no server is running.
  Result<std::map<std::string, Device>> Devices() const;
  Status Drain(const std::string& id) const;

  const std::string socket_;
  const std::chrono::seconds drain_time_;
  std::map<std::string, Device> seen_;
  // UUIDs of released devices, with the ids by which they are resumed.
  std::map<std::string, std::string> left_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_MIG_SERVER_TENANT_H_
