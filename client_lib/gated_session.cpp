// SPDX-License-Identifier: Apache-2.0
#include "client_lib/gated_session.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/wire/command.h"

namespace gpushared::client {

Result<std::unique_ptr<GatedSession>> GatedSession::Connect(ClientOptions options, const Gpu& gpu) {
  const Result<std::vector<KnownDevice>> devices = Connection::ListKnownDevices(options);
  if (!devices.ok()) return devices.status();
  const std::optional<std::size_t> device = DeviceOfGpu(gpu.uuid, gpu.number, *devices);
  if (!device) {
    const KnownDevice wanted{.uuid = gpu.uuid};
    return Status(StatusCode::kNotFound,
                  "the server does not serve GPU " + std::to_string(gpu.number) + " (" +
                      wanted.VisibleName() + "); `gpusharedctl status` lists its devices");
  }
  options.device = (*devices)[*device].id;
  Result<Connection::Opened> opened = Connection::Open(options, Connection::Kind::kGated);
  if (!opened.ok()) return opened.status();
  // Does not spin, because the thread waits for work of other clients, which takes longer than a
  // spin.
  Result<std::unique_ptr<DataPlane>> plane =
      DataPlane::Make(std::move(opened->fds), std::chrono::nanoseconds(0), *opened->connection);
  if (!plane.ok()) return plane.status();
  // Not make_unique, because the constructor is private.
  return std::unique_ptr<GatedSession>(
      new GatedSession(std::move(opened->connection), *std::move(plane), opened->welcome));
}

GatedSession::GatedSession(std::unique_ptr<Connection> connection, std::unique_ptr<DataPlane> plane,
                           const ipc::Welcome& welcome)
    : connection_(std::move(connection)),
      plane_(std::move(plane)),
      id_(welcome.session),
      device_(welcome.device.id),
      quota_bytes_(welcome.quota_bytes) {}

bool GatedSession::Ask(std::uint64_t last) {
  const MutexLock lock(ask_);
  if (asked_ != last) return true;
  const ipc::PlainRecord record{.header = {.op = static_cast<std::uint8_t>(ipc::Op::kTurn)}};
  const Result<std::uint64_t> asked = plane_->Submit(stream_, record);
  if (!asked.ok()) return false;
  asked_ = *asked;
  turn_.store(asked_, std::memory_order_relaxed);
  return true;
}

}  // namespace gpushared::client
