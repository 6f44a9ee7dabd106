// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_REGISTRY_READER_H_
#define GPUSHARED_SERVER_BROKER_REGISTRY_READER_H_

#include <chrono>
#include <string>
#include <vector>

#include "ipc/registry_socket.h"
#include "ipc/unique_fd.h"
#include "ipc/wire/channel.h"

namespace gpushared::server {

// A lease granted by an earlier broker.
struct KeptLease {
  ipc::Kept kept;
  ipc::UniqueFd connection;  // Connection to the lease's holder.
};

// A worker that outlived its broker, with its registry, which has been validated and describes only
// the worker's own sessions.
struct Survivor {
  ipc::FoundWorker worker;
  ipc::Registry registry;
  std::vector<ipc::RegistrySession> sessions;
  std::vector<ipc::RegistryEnd> ends;
  std::vector<KeptLease> kept;
  ipc::Ready ready;
};

struct Survivors {
  std::vector<Survivor> workers;
  // For the log: workers that were not adopted, and why. They exit after their last session.
  std::vector<std::string> remarks;
};

// Adopts the workers whose sockets are in the directory. Blocks until each has sent its whole
// registry, or for `patience`. Removes the files of dead workers. Requires that the caller holds
// the lock of the server's socket, so that no other broker does the same.
Survivors TakeOverWorkers(const std::string& directory, std::chrono::milliseconds patience);

// Creates the directory with access for this process's user only. Rejects an existing directory
// that others may access or that belongs to another user.
Status PrepareRegistryDirectory(const std::string& directory);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_REGISTRY_READER_H_
