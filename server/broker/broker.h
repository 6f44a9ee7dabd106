// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_BROKER_H_
#define GPUSHARED_SERVER_BROKER_BROKER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/logger.h>

#include "gpushared/status.h"

#include "server/broker/access_rules.h"
#include "server/broker/admin_request_handler.h"
#include "server/broker/admin_rights.h"
#include "server/broker/background_reader.h"
#include "server/broker/device_table.h"
#include "server/broker/endpoint_table.h"
#include "server/broker/inventory_watch.h"
#include "server/broker/listener.h"
#include "server/broker/new_clients.h"
#include "server/broker/rated_log.h"
#include "server/broker/registry_reader.h"
#include "server/broker/session_log.h"
#include "server/broker/worker_watch.h"
#include "server/platform/log_rate.h"
#include "server/platform/thread_priority.h"

namespace gpushared::server {

struct BrokerOptions {
  std::string socket_path;
  std::vector<device::SelectedDevice> devices;       // At least one.
  std::vector<device::UnusedDevice> unused_devices;  // For status output.
  LiveRules rules;
  // Reads the rules again, on a separate thread. If empty, rules cannot be reloaded.
  BackgroundReader<NewRules>::Read read_rules;
  std::uint32_t own_uid = 0;
  AccessDefaults access_defaults;
  bool has_overcommit = false;  // Workers have swap space for memory beyond guarantees.
  std::string policy;           // For status output.
  std::string version;          // For status output.
  // Returns the GPUs that the machine has now. Called on separate threads, periodically and after
  // the death of a GPU's worker. Empty if no GPU is watched.
  InventoryWatch::Read read_inventory;
  std::chrono::milliseconds inventory_interval{5000};
  bool takes_new_devices = false;  // GPUs and instances that appear become devices.
  // Command line that starts the worker of a device.
  std::function<WorkerProcess::Launch(const device::SelectedDevice& device,
                                      std::uint32_t generation)>
      launch;
  // Directory in which workers listen after they lose their broker. If empty, <socket>.workers.
  std::string registry_directory;
  // Maximum wait for the registries of all workers together.
  std::chrono::milliseconds registry_wait{5000};
  // Checks, on a separate thread, whether the program's current file could replace this process.
  // Returns its version, or why it cannot. If empty, upgrades are not available.
  BackgroundReader<std::string>::Read check_successor;
  // Executes the new program in this process with these listening sockets open. Returns only on
  // failure.
  std::function<Status(const std::vector<ipc::BorrowedSocket>& sockets)> execute_successor;
  std::uint32_t upgrades = 0;  // Number of upgrades of this process so far.
  // Maximum time for which an upgrade waits for connections, clients and operators being served;
  // after that it is abandoned.
  std::chrono::milliseconds upgrade_wait_max{7000};
  // Passes a status line to the service manager. Empty if there is none.
  std::function<void(const std::string& line)> report_status;
  Listener::Limits limits;
  WorkerWatch::Limits watch;
  LogRate::Limits log_limits;
  // Raises the priority of the broker's thread over other threads of the machine, as far as the
  // machine permits (server/platform/thread_priority.h).
  bool prefers_thread = false;
  // Maximum time for which a hello waits for a starting device.
  std::chrono::milliseconds patience{5000};
  // Maximum wait for the answers of all workers together, and for the end of a session whose client
  // has asked why it ended.
  std::chrono::milliseconds admin_wait_max{1000};
  std::chrono::milliseconds stop_grace{2000};  // Time from the second signal to SIGKILL.
  // Time from the end of a worker's last session, or from the first signal, to SIGKILL.
  std::chrono::milliseconds drain_grace{5000};
};

// Listens, admits clients, hands their connections over to workers, watches the workers, and
// answers operators. The broker owns no device and no client memory. After the handover of a client
// the broker is not involved in its work.
//
// Confined to the thread that runs `context`. Must be destroyed only while `context` is not
// running.
class Broker {
 public:
  Broker(boost::asio::io_context& context, BrokerOptions options,
         std::shared_ptr<spdlog::logger> log);
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // Opens the socket, starts the workers and accepts clients. The caller then runs the context
  // until exit_code() has a value. `inherited`: listening sockets passed by the service manager or
  // an earlier program.
  Status Start(std::vector<ipc::InheritedSocket> inherited = {});

  // First call: admits no new clients and exits after the last session has ended. Second call: ends
  // every session with a message, and then the server.
  void Stop(const std::string& because);

  // Applies the reloadable rules of the configuration: all of them, or none if one is invalid.
  // Existing sessions are not changed. `done` receives the options that require a restart, or
  // why nothing has changed; both are logged, too.
  using ReloadDone = std::function<void(const Result<std::vector<std::string>>& need_restart)>;
  void Reload(ReloadDone done);

  // Return value of main. Valid after the context has stopped.
  int exit_code() const { return exit_code_; }

 private:
  struct DeferredHello;
  struct DeferredWhy;

  // State left by an earlier broker that died: its counts, and its workers.
  Status OpenCounts();
  void OpenRegistryDirectory();
  // File in which the device's workers keep their totals, see DeviceTotals.
  std::string TotalsFile(const DeviceEntry& device) const;
  void TakeOverSurvivors();
  void Adopt(Survivor survivor);
  static LiveSession GetLive(const ipc::RegistrySession& row, const DeviceEntry& device);
  DeviceEntry& RowFor(const Survivor& survivor);
  WorkerProcess::Events GetEvents(DeviceEntry& device);
  // Replaces a worker once it has no session, if it was started with other options or another
  // version than this broker's.
  void RenewIfEmpty(DeviceEntry& device);

  // Upgrade: new clients wait in the sockets' queues while pending handshakes and requests are
  // completed. Then the new program is executed, which takes over as after a crash.
  void OnUpgrade(Arrival arrival);
  void BeginUpgrade();
  void AwaitQuiet(std::chrono::steady_clock::time_point deadline);
  // Names what is still being served; empty if nothing is.
  std::string Occupation() const;
  void GiveUpUpgrade(const std::string& why);

  // Moves of clients; in moves.cpp.
  //
  // A move from the request until its result is known. Each of the two workers reports it, and the
  // death of one does not end the session while the other may own it.
  struct Move {
    std::string from, to;       // Devices.
    std::uint32_t request = 0;  // Number of the operator's request.
    bool source_is_gone = false, target_is_gone = false;
  };
  // Starts a move, which is answered with the number `request`.
  Status StartMove(const LiveSession& session, const std::string& device, std::uint32_t request);
  Status CheckMove(const LiveSession& session, DeviceEntry& from, DeviceEntry& to);
  void OnMoveEnded(DeviceEntry& device, const ipc::MoveEnded& ended);
  // A session that has arrived at the device. Returns why the report is invalid.
  Status OnRow(DeviceEntry& device, const ipc::RegistrySession& row);
  // The source has rejected the move.
  void OnMoveFailed(std::uint32_t request);
  // Must be called before the sessions of a dead worker are ended.
  void OnMoverGone(const DeviceEntry& device);
  // Called when a session has ended on the device or left it.
  void OnSessionLeft(DeviceEntry& device);

  // Has a worker keep a lease for the next broker. The caller keeps ownership of `connection`.
  void KeepAt(DeviceEntry& device, const ipc::Keep& lease, int connection);

  // Devices and their workers.
  void StartWorker(DeviceEntry& device);
  void OnWorkerMessage(DeviceEntry& device, ipc::Frame frame);
  void OnWorkerReady(DeviceEntry& device, ipc::Ready ready);
  void OnWorkerExited(DeviceEntry& device, const std::string& how);
  void LoseSessions(DeviceEntry& device);
  void ScheduleRestart(DeviceEntry& device);
  void GiveUpOn(DeviceEntry& device, const Status& why);

  // GPUs that disappear and appear.
  void OnInventory(const device::Inventory& inventory);
  void Compare(DeviceEntry& device, const device::Presence& presence);
  void TakeNewDevices(const device::Inventory& inventory);
  void GoMissing(DeviceEntry& device, const std::string& why);

  // New connections.
  void KeepWithinBudget();
  void OnArrival(Arrival arrival);
  void OnAdmin(Arrival arrival);
  void OnReload(Arrival arrival);
  Status TakeOver(const LiveRules& rules);
  void OnLease(Arrival arrival, const std::string& terms);
  void OnTrace(Arrival arrival, const std::string& name, bool is_operator);
  void OnSetNewClients(Arrival arrival, const std::string& terms);
  void OnDrainDevice(Arrival arrival, const std::string& name);
  Status DrainDevice(DeviceEntry& device);
  Status ResumeDevice(DeviceEntry& device);
  // Makes the device admit clients again. Its worker may have ended or be about to end.
  void TakeBackDrain(DeviceEntry& device);
  Status TakeBackDrainOfServer();
  void OnResume(Arrival arrival, const std::string& name);
  // Rule that applies to the arrival: that of its endpoint, or the access rule for its user.
  const Allowance& GetAllowance(const Arrival& arrival) const;
  // Checks whether the peer may use its endpoint.
  static Status CheckEndpoint(const Arrival& arrival);
  void EndSessionsOf(const Endpoint& endpoint, const std::string& why);
  void OnHello(Arrival arrival);
  void Admit(Arrival arrival, const ipc::Hello& hello, bool may_wait);
  void HandOver(Arrival arrival, const ipc::Hello& hello, DeviceEntry& device,
                const MemoryGrant& memory);
  void OnListDevices(Arrival arrival);
  bool AreDevicesKnown() const;
  void ReportDevices(Arrival arrival);
  bool MayDefer(const Arrival& arrival) const;
  // `hello` is unset if the client asked for the list of devices.
  void Defer(Arrival arrival, std::optional<ipc::Hello> hello);
  void AdmitDeferred(std::uint64_t number);
  void RetryDeferred();
  void RejectArrival(Arrival arrival, const Status& why);
  void OnWhy(Arrival arrival);
  bool AnswerWhy(Arrival& arrival, std::uint64_t session);

  // Sessions and shutdown.
  void EndSession(std::uint64_t id, const Status& why);
  void BeginDrain();
  void StopNow();
  void ReportDrain();
  // Kills the worker if it has not exited within this time.
  void ExpectEnd(DeviceEntry& device, std::chrono::milliseconds grace);
  void FinishWhenDone();

  boost::asio::io_context& context_;
  BrokerOptions options_;
  std::shared_ptr<spdlog::logger> log_;
  RatedLog rated_log_;  // For log lines that clients cause.
  PreferredBudget preferred_budget_;
  AccessRules rules_;
  AdminRights rights_;
  // Closes clients' sockets and reaps workers. Other processes can make both calls block. Must
  // outlive every socket.
  ipc::UnboundedCalls unbounded_;
  SessionLog session_log_;
  DeviceTable devices_;
  std::optional<KeptCounts> counts_;
  std::unique_ptr<EndpointTable> endpoints_;
  std::unique_ptr<AdminRequestHandler> request_handler_;
  std::unique_ptr<InventoryWatch> watch_;  // Null if no GPU is watched.
  std::unique_ptr<WorkerWatch> worker_watch_;
  std::unique_ptr<BackgroundReader<NewRules>> reader_;      // Null if rules cannot be reloaded.
  std::unique_ptr<BackgroundReader<std::string>> checker_;  // Null if upgrades are not available.
  std::uint64_t last_deferred_ = 0;
  std::map<std::uint64_t, std::unique_ptr<DeferredHello>> deferred_hellos_;
  std::map<std::uint64_t, std::unique_ptr<DeferredWhy>> deferred_whys_;
  boost::asio::steady_timer drain_report_;
  enum class Phase : std::uint8_t {
    kServing,
    kDraining,
    kStopping,
    kOver
  } phase_ = Phase::kServing;
  std::map<std::uint64_t, Move> moves_;  // By session.
  NewClients new_clients_;
  // The drain was requested by a signal and cannot be undone: a service manager waits for the exit.
  bool drain_is_final_ = false;
  int exit_code_ = 0;
  boost::asio::steady_timer quiet_timer_;
  bool is_pausing_ = false;      // New clients wait, because an upgrade is being prepared.
  std::string upgrade_failure_;  // Why the last upgrade was abandoned.
  bool has_registries_ = false;  // The next broker can find the workers.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_BROKER_H_
