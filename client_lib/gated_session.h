// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_GATED_SESSION_H_
#define GPUSHARED_CLIENT_LIB_GATED_SESSION_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "client_lib/connection.h"
#include "client_lib/data_plane.h"
#include "client_lib/fork_guard.h"
#include "client_lib/visible_devices.h"
#include "ipc/wire/layout.h"

namespace gpushared::client {

// Session of a client that submits its work directly to the driver. The client requests turns from
// the server, and submits while its gate is open (docs/protocol.md).
//
// Thread-safe.
class GatedSession {
 public:
  // A GPU as the program's driver describes it.
  struct Gpu {
    std::size_t number = 0;
    DeviceUuid uuid = {};
  };
  // Connects to the server's device that is this GPU. `options`, except its device, and the
  // environment determine everything else. kNotFound if the server has no such device.
  static Result<std::unique_ptr<GatedSession>> Connect(ClientOptions options, const Gpu& gpu);

  std::uint64_t id() const { return id_; }
  const std::string& device() const { return device_; }
  // Upper limit on the device memory of the client.
  std::uint64_t quota_bytes() const { return quota_bytes_; }
  const ipc::GateState& gate() const { return plane_->gate(); }
  ipc::GateUse& use() { return plane_->gate_use(); }
  // False in a forked child, in which the session's shared memory is not mapped.
  bool InOwner() const { return fork_guard_.InOwner(); }

  // Number of the client's latest turn; 0 before the first.
  std::uint64_t turn() const { return turn_.load(std::memory_order_relaxed); }
  // Returns whether the latest turn is open. Sequentially consistent with the store by which the
  // worker closes the turn.
  bool IsOpen() const {
    const std::uint64_t turn = turn_.load(std::memory_order_relaxed);
    return turn != 0 && gate().open.load(std::memory_order_seq_cst) == turn;
  }
  bool HasEnded(std::uint64_t turn) const {
    return plane_->progress().HasEnded({.stream = 0, .sequence = turn});
  }
  // Requests the turn after `last`, unless another thread has done so. Returns false if the session
  // has ended.
  bool Ask(std::uint64_t last) GPUSHARED_EXCLUDES(ask_);
  // As DataPlane::AwaitGate.
  template <typename Done>
  bool Await(Done done, std::chrono::nanoseconds limit) {
    return plane_->AwaitGate(done, limit);
  }

  // Returns false once the session has ended. CheckAlive also polls the socket.
  bool is_alive() const { return !connection_->ended(); }
  bool CheckAlive() { return connection_->CheckAlive(); }
  Status end_status() const { return connection_->end_status(); }

 private:
  GatedSession(std::unique_ptr<Connection> connection, std::unique_ptr<DataPlane> plane,
               const ipc::Welcome& welcome);

  const std::unique_ptr<Connection> connection_;
  const std::unique_ptr<DataPlane> plane_;
  const std::uint64_t id_;
  const std::string device_;
  const std::uint64_t quota_bytes_;
  const StreamRecord stream_{0, 0};
  const ForkGuard fork_guard_;
  Mutex ask_;
  std::uint64_t asked_ GPUSHARED_GUARDED_BY(ask_) = 0;  // Latest requested turn; 0 if none.
  std::atomic<std::uint64_t> turn_{0};                  // asked_, for reading without the lock.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_GATED_SESSION_H_
