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

// Answers the requests of operators. Queries the workers for facts that only they have, with a time
// limit: the reply names each worker that does not answer in time.
//
// Workers answer (kAdminRequest) in JSON: to kStatus and kDevices with one object of facts about
// their device, to kClients with {"clients": [{"client": session, ...}, ...]}. The handler adds the
// broker's own facts: the peer, the endpoint and the worker of each client.
//
// Confined to the broker's thread.
class AdminRequestHandler {
 public:
  // Limit of rounds (queries to workers) and unsent replies, each of which is bounded in time. Half
  // of them are reserved for operators, so that observers cannot lock them out.
  static constexpr std::size_t kRoundsMax = 32;

  struct Surroundings {
    DeviceTable& devices;
    const std::vector<device::UnusedDevice>& unused_devices;  // For kDevices.
    SessionLog& session_log;
    const EndpointTable& endpoints;
    const KeptCounts& counts;
    // For kStatus: returns the path of the device's totals, see DeviceTotals.
    std::function<std::string(const DeviceEntry&)> totals_file;
    std::function<void(const std::string& what)> log;
    // Starts the move of a session to the device named `to`. The answer has the number `request`,
    // or is passed to OnMoved.
    std::function<Status(const LiveSession& session, const std::string& to, std::uint32_t request)>
        move;
    std::function<void()> drain;          // Called when an operator requests a drain.
    std::function<std::string()> phase;   // "serving", "draining", ...
    std::string version, policy, socket;  // For kStatus.
    // For kStatus: how often the broker has executed a new program, and why the last attempt
    // failed.
    std::uint32_t upgrades = 0;
    const std::string& upgrade_failure;
    const NewClients& new_clients;
    std::chrono::milliseconds wait_max;
  };
  AdminRequestHandler(boost::asio::io_context& context, Surroundings around);
  ~AdminRequestHandler();
  AdminRequestHandler(const AdminRequestHandler&) = delete;
  AdminRequestHandler& operator=(const AdminRequestHandler&) = delete;

  // Takes over the connection of a peer whose right has been checked.
  void Serve(Arrival arrival, const ipc::Admin& asked, bool is_operator);
  // Answers without a round: with the rejection if there is one, otherwise with the JSON text.
  void Answer(Arrival arrival, const Status& rejection, std::string json);

  // Returns true if no reply is pending or being sent.
  bool IsIdle() const { return rounds_.empty() && sending_.empty(); }

  static std::string ReloadJson(const std::vector<std::string>& need_restart);

  // Events from workers. `request` is the number of a round, which may already be over.
  void OnReply(const std::string& device, std::uint32_t request, ipc::ChannelReply reply);
  void OnWorkerGone(const std::string& device);
  void OnSessionEnded(std::uint64_t session);
  // `json` answers the operator who asked for the move of the session.
  void OnMoved(std::uint64_t session, const std::string& json);

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
