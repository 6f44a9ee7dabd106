// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_DEVICE_TABLE_H_
#define GPUSHARED_SERVER_BROKER_DEVICE_TABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "gpushared/result.h"

#include "ipc/wire/control.h"
#include "server/broker/restart_backoff.h"
#include "server/broker/session_log.h"
#include "server/broker/worker_process.h"
#include "server/device/inventory/inventory.h"

namespace gpushared::server {

// A device and its current worker.
struct DeviceEntry {
  enum class State : std::uint8_t {
    kStarting,  // The worker is opening the device.
    kReady,
    kRestarting,  // The worker died; its successor waits for the restart delay.
    kMissing,     // No worker, because the GPU or instance has disappeared. It may come back.
    // An operator has requested a drain: no new clients; the worker exits after its last session.
    kDraining,
    kDrained,  // Drained: no worker until the operator resumes the device.
    // Not in the current configuration, but has a worker from an earlier broker, which exits after
    // its last session.
    kLeaving,
    // No worker, and none will start: a leftover worker exited, or the server is stopping.
    kGone,
  };
  DeviceEntry(boost::asio::io_context& context, const device::SelectedDevice& device)
      : selected(device), id(device.id), restart_timer(context), end_timer(context) {}

  bool TakesClients() const {
    return state == State::kReady && worker != nullptr && worker->usable() && !is_silent;
  }

  bool IsDrained() const { return state == State::kDraining || state == State::kDrained; }
  // Clients do not wait for such a device, because it comes back only through an external event.
  bool IsAway() const { return state == State::kMissing || IsDrained(); }

  bool CanBeQueried() const {
    const bool serves =
        state == State::kReady || state == State::kDraining || state == State::kLeaving;
    return serves && worker != nullptr && worker->usable() && !is_silent;
  }

  // Called when the server drains or stops: no worker is started until the server is resumed.
  void CancelRestart() {
    restart_timer.cancel();
    if (state == State::kRestarting) state = State::kGone;
  }

  const device::SelectedDevice selected;
  const std::string id;  // "cpu:0".
  State state = State::kStarting;
  // False if an earlier broker left the worker behind and the configuration does not name its
  // device.
  bool is_configured = true;
  ipc::DeviceDescription description;  // Empty until the first worker is ready.
  std::shared_ptr<WorkerProcess> worker;
  std::uint32_t generation = 0;                   // Counts the device's workers from 1.
  bool was_ready = false;                         // At least one worker has opened the device.
  std::chrono::steady_clock::time_point started;  // Start of the latest worker.
  RestartBackoff backoff;
  // The worker was started by an earlier broker with other options or another version, and is
  // replaced as soon as it has no session.
  bool is_outdated = false;
  // The operator resumed the device after its worker was asked to exit: the next worker starts at
  // once.
  bool is_resumed = false;
  bool is_new_device = false;    // The device appeared while the server was running.
  std::string missing;           // Why the device is kMissing, or is about to be.
  bool comes_back = true;        // Restart from kMissing as soon as the device is present.
  std::uint32_t times_gone = 0;  // Consecutive inventories without the device.
  // State of WorkerWatch for the current worker.
  bool is_asked = false;         // A liveness query is outstanding.
  bool is_silent = false;        // The worker has not answered for a long time.
  std::uint32_t unanswered = 0;  // Intervals since the outstanding query was sent.
  std::string last_words;        // Why the current worker is about to exit, as it reported.
  std::string last_death;        // "worker generation 1 (pid 77) was killed by signal 9 (Killed)".
  boost::asio::steady_timer restart_timer;
  // Kills a worker that does not exit in time; see Broker::ExpectEnd.
  boost::asio::steady_timer end_timer;
};
std::string_view StateName(DeviceEntry::State state);

// Devices that this server shares. Filled at start; devices may be added but are never removed.
//
// Confined to the broker's thread. Entries keep their addresses.
class DeviceTable {
 public:
  DeviceTable(boost::asio::io_context& context, const std::vector<device::SelectedDevice>& devices);

  // Selects the device for a client. `name` is an id, a UUID, or a UUID prefix that is unique among
  // the devices. Without a name, selects the device with the fewest live sessions, preferring ready
  // ones. Only devices in `among` are considered. The error lists the available names. The device
  // may not be ready; the caller decides how long to wait.
  Result<DeviceEntry*> Choose(std::string_view name, const SessionLog& session_log,
                              const std::vector<std::string>& among = {});
  // Returns the device with that name, as in Choose.
  Result<DeviceEntry*> Named(std::string_view name);
  // Returns true if `among` names the device or is empty.
  bool IsAmong(const DeviceEntry& device, const std::vector<std::string>& among);

  // Adds a device that appeared. If its number is taken, it gets the lowest free number of its
  // kind. This happens because numbers shift when a GPU disappears.
  DeviceEntry& Add(device::SelectedDevice device);

  // Returns the entry for a worker of an earlier broker, or null if the device is not configured.
  // Matches by UUID, because a GPU's number may have changed in the meantime.
  DeviceEntry* FindOf(const ipc::DeviceDescription& description);
  // Returns null for unknown ids.
  DeviceEntry* Find(std::string_view id);
  std::deque<DeviceEntry>& entries() { return entries_; }
  const std::deque<DeviceEntry>& entries() const { return entries_; }
  // UUIDs of GPUs and instances.
  std::vector<std::string> Uuids() const;
  bool HasWorkers() const;

 private:
  boost::asio::io_context& context_;
  std::deque<DeviceEntry> entries_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_DEVICE_TABLE_H_
