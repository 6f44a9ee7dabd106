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

// One device and the worker that has it at the moment.
struct DeviceEntry {
  enum class State : std::uint8_t {
    kStarting,  // The worker opens the device.
    kReady,
    kRestarting,  // The worker died; the next one waits for its turn.
    kMissing,     // No worker: the GPU or instance is not there. It may come back.
    kDraining,    // An operator wants it empty: no new clients; the worker ends with its last
                  // session.
    kDrained,     // It is, and has no worker until the operator resumes it.
    kLeaving,  // Of an earlier broker, and not in this one's configuration: ends when it is empty.
    kGone,     // The worker ended after a drain, or no further one is wanted.
  };
  DeviceEntry(boost::asio::io_context& context, const device::SelectedDevice& device)
      : selected(device), id(device.id), restart_timer(context), end_timer(context) {}

  bool TakesClients() const {
    return state == State::kReady && worker != nullptr && worker->usable() && !is_silent;
  }

  bool IsDrained() const { return state == State::kDraining || state == State::kDrained; }
  // Nobody waits for it: it comes back when somebody else wants it to.
  bool IsAway() const { return state == State::kMissing || IsDrained(); }

  // Whether it can be asked.
  bool HasVoice() const {
    const bool serves =
        state == State::kReady || state == State::kDraining || state == State::kLeaving;
    return serves && worker != nullptr && worker->usable() && !is_silent;
  }

  // The server ends: no further worker is wanted.
  void GiveUpWaiting() {
    const bool has_none =
        state == State::kRestarting || state == State::kMissing || state == State::kDrained;
    if (has_none) state = State::kGone;
  }

  const device::SelectedDevice selected;
  const std::string id;  // "cpu:0".
  State state = State::kStarting;
  ipc::DeviceDescription description;  // Empty until the first worker was ready.
  std::shared_ptr<WorkerProcess> worker;
  std::uint32_t generation = 0;                   // Of the latest worker; the first one is 1.
  bool was_ready = false;                         // At least one worker has opened the device.
  std::chrono::steady_clock::time_point started;  // The latest worker.
  RestartBackoff backoff;
  // An earlier broker started its worker with other options or in another version: the worker is
  // replaced as soon as it has no session.
  bool is_outdated = false;
  // Its worker was told to end, and the operator took that back: the next one starts at once.
  bool is_resumed = false;
  bool is_new_client = false;    // It appeared while the server ran.
  std::string missing;           // Why it is kMissing, or is about to be.
  bool comes_back = true;        // From kMissing as soon as it is there.
  std::uint32_t times_gone = 0;  // In a row, as the inventory has it.
  // Of the present worker; see WorkerWatch.
  bool is_asked = false;         // Whether it is there, and has not answered yet.
  bool is_silent = false;        // For long.
  std::uint32_t unanswered = 0;  // Looks since it was asked.
  std::string last_words;        // Of the present worker: why it is about to end.
  std::string last_death;        // "worker generation 1 (pid 77) was killed by signal 9 (Killed)".
  boost::asio::steady_timer restart_timer;
  boost::asio::steady_timer end_timer;  // When its worker is killed, where no other will be.
};
std::string_view StateName(DeviceEntry::State state);

// The devices this server shares out; a table that is filled at start, may grow, and keeps its
// rows.
//
// Confined to the broker's thread. Entries stay where they are.
class DeviceTable {
 public:
  DeviceTable(boost::asio::io_context& context, const std::vector<device::SelectedDevice>& devices);

  // The device a client gets. A name is an id, a UUID, or the beginning of a UUID that only one
  // device has. Without a name it is the one with the fewest live sessions, a ready one before all
  // others. Those that are not `among` do not count. kNotFound, with the names there are. The
  // device may be not ready; the caller decides how long to wait.
  Result<DeviceEntry*> Choose(std::string_view name, const SessionLog& session_log,
                              const std::vector<std::string>& among = {});
  // The device of that name, as Choose takes it.
  Result<DeviceEntry*> Named(std::string_view name);
  // Whether the device is one of those that `among` names; none are named: all are.
  bool IsAmong(const DeviceEntry& device, const std::vector<std::string>& among);

  // A device that appeared. Its id is the next free number of its kind where another device has
  // it: numbers move when a GPU goes.
  DeviceEntry& Add(device::SelectedDevice device);

  // The row of a worker that an earlier broker started. A GPU's number may have moved since, its
  // UUID has not. Null: none of ours.
  DeviceEntry* FindOf(const ipc::DeviceDescription& description);
  // Null for unknown ids.
  DeviceEntry* Find(std::string_view id);
  std::deque<DeviceEntry>& entries() { return entries_; }
  const std::deque<DeviceEntry>& entries() const { return entries_; }
  // The UUIDs of GPUs and instances.
  std::vector<std::string> Uuids() const;
  bool AllGone() const;

 private:
  boost::asio::io_context& context_;
  std::deque<DeviceEntry> entries_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_DEVICE_TABLE_H_
