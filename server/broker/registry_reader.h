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

// A lease that an earlier broker granted.
struct KeptLease {
  ipc::Kept kept;
  ipc::UniqueFd connection;  // The holder's.
};

// A worker that outlived its broker, and what it says: checked, and about nobody else's sessions.
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
  // For the log: who was not taken over, and why. Such workers end with their last session.
  std::vector<std::string> remarks;
};

// Takes over the workers whose sockets are in the directory. Blocks until each has told its whole
// registry, or for `patience`. Files of workers that died are removed. The caller has the lock of
// the server's socket, so no other broker does the same.
Survivors TakeOverWorkers(const std::string& directory, std::chrono::milliseconds patience);

// Makes the directory, which nobody but this process's user may enter; a directory that is open to
// others or of another user is rejected.
Status PrepareRegistryDirectory(const std::string& directory);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_REGISTRY_READER_H_
