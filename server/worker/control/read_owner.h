// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_READ_OWNER_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_READ_OWNER_H_

#include <sys/types.h>

#include <string>

#include "ipc/owner.h"

namespace gpushared::server {

struct OwnerSources {
  std::string proc = "/proc";
  // Where a kubelet keeps a link for each container, POD_NAMESPACE_CONTAINER-ID.log.
  std::string container_logs = "/var/log/containers";
};

// Adds to the owner what /proc reports about a process: its program and, if `owner` names neither a
// pod nor a container, its container. The names of a container come from the kubelet, because the
// process could lie. Without the kubelet's names, the container's name is the beginning of its id,
// as Docker shows it.
// Fields stay empty if the process has ended, or if `pid` is 0 because the process is in a PID
// namespace that the server cannot see. Reads files, so it is a slow call.
void ReadOwner(pid_t pid, ipc::Owner& owner, const OwnerSources& sources = {});

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_READ_OWNER_H_
