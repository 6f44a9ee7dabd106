// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_ADMIN_REQUEST_HANDLER_H_
#define GPUSHARED_SERVER_BROKER_ADMIN_REQUEST_HANDLER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "gpushared/status.h"

#include "ipc/wire/channel.h"
#include "server/broker/device_table.h"
#include "server/broker/endpoint_table.h"
#include "server/broker/listener.h"
#include "server/broker/new_clients.h"
#include "server/broker/session_log.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// Answers operators. What only workers know it asks them for, and waits for their answers with a
// bound: a worker that does not answer is named in the reply, not waited for.
//
// What a worker answers (kAdminRequest), as JSON: to kStatus and kDevices one object of facts
// about its device, to kClients {"clients": [{"client": session, ...}, ...]}. The desk adds what
// the broker knows: who, where, which worker.
//
// Confined to the broker's thread.
class AdminRequestHandler {
 public:
  // Rounds and unsent replies, each bounded in time. Half of them are for operators alone: who may
  // only look does not keep them from acting.
  static constexpr std::size_t kRoundsMax = 32;

  struct Surroundings {
    DeviceTable& devices;
    const std::vector<device::UnusedDevice>& unused_devices;  // For kDevices.
    SessionLog& session_log;
    const EndpointTable& endpoints;
    const KeptCounts& counts;
    std::function<std::string(const DeviceEntry&)> totals_file;  // For kStatus; DeviceTotals.
    std::function<void(const std::string& what)> log;
    std::function<void()> drain;          // The operator asked for it.
    std::function<std::string()> phase;   // "serving", "draining", ...
    std::string version, policy, socket;  // For kStatus.
    // The same: how often the broker executed its program, and why the last attempt failed.
    std::uint32_t upgrades = 0;
    const std::string& upgrade_failure;
    const NewClients& new_clients;
    std::chrono::milliseconds wait_max;
  };
  AdminRequestHandler(boost::asio::io_context& context, Surroundings around);
  ~AdminRequestHandler();
  AdminRequestHandler(const AdminRequestHandler&) = delete;
  AdminRequestHandler& operator=(const AdminRequestHandler&) = delete;

  // Takes the connection of somebody who was found to have the right.
  void Serve(Arrival arrival, const ipc::Admin& asked, bool is_operator);
  // Answers by itself: the rejection, or the JSON text.
  void Answer(Arrival arrival, const Status& rejection, std::string json);

  // Nobody is being answered.
  bool IsIdle() const { return rounds_.empty() && sending_.empty(); }

  static std::string ReloadJson(const std::vector<std::string>& need_restart);

  // News from workers. `request` is the number of a round, or of one that is over.
  void OnReply(const std::string& device, std::uint32_t request, ipc::ChannelReply reply);
  void OnWorkerGone(const std::string& device);
  void OnSessionEnded(std::uint64_t session);

 private:
  struct Round;
  struct Sending;

  void AskAll(Round& round);
  void AskOne(Round& round);
  void Conclude(std::uint32_t number);
  std::string Compose(const Round& round) const;
  nlohmann::json Devices(const Round& round) const;
  void AddTotals(nlohmann::json& devices) const;
  nlohmann::json Unused() const;
  nlohmann::json Clients(const Round& round) const;
  nlohmann::json Endpoints() const;
  nlohmann::json NewClientsJson() const;
  nlohmann::json Server() const;
  static void AddPage(Sending& sending);
  void SendOn(std::uint32_t number);

  boost::asio::io_context& context_;
  Surroundings around_;
  std::chrono::steady_clock::time_point started_;
  std::uint32_t last_number_ = 0;
  std::map<std::uint32_t, std::unique_ptr<Round>> rounds_;
  std::map<std::uint32_t, std::unique_ptr<Sending>> sending_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_ADMIN_REQUEST_HANDLER_H_
