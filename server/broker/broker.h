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
#include "server/broker/aside_reader.h"
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
  std::vector<device::UnusedDevice> unused_devices;  // For people.
  LiveRules rules;
  // Reads them again, on a thread of its own; empty: nobody can.
  AsideReader<NewRules>::Read read_rules;
  std::uint32_t own_uid = 0;
  AccessDefaults access_defaults;
  bool has_overcommit = false;  // Workers have room for memory beyond guarantees.
  std::string policy;           // For people.
  std::string version;          // For people.
  // What GPUs the machine has now; empty: nobody looks, as where no device is a GPU. Called on
  // threads of its own, every so often and after the death of a GPU's worker.
  InventoryWatch::Read read_inventory;
  std::chrono::milliseconds inventory_interval{5000};
  bool takes_new_clients = false;  // GPUs and instances that appear become devices.
  // The program to execute as the worker of a device.
  std::function<WorkerProcess::Launch(const device::SelectedDevice& device,
                                      std::uint32_t generation)>
      launch;
  // Where workers listen that lost their broker; empty: <socket>.workers.
  std::string registry_directory;
  std::chrono::milliseconds registry_wait{5000};  // For all registries together.
  // Whether the program's file as it is now could go on in this one's place: its version, or why
  // not. On a thread of its own. Empty: there are no upgrades.
  AsideReader<std::string>::Read check_successor;
  // Executes it in place of this process, with these listening sockets open. Returns if that fails.
  std::function<Status(const std::vector<ipc::BorrowedSocket>& sockets)> execute_successor;
  std::uint32_t upgrades = 0;  // How often this process did so.
  // For connections, clients and operators that are being served, before it is given up.
  std::chrono::milliseconds upgrade_wait_max{7000};
  // A line for whoever asks the service manager how we are; empty: there is none.
  std::function<void(const std::string& line)> tell_status;
  Listener::Limits limits;
  WorkerWatch::Limits watch;
  LogRate::Limits log_limits;
  // Whether the thread goes before other threads of the machine, as far as it allows that
  // (server/platform/thread_priority.h).
  bool prefers_thread = false;
  // How long a hello waits for a device that is starting, and a client's question for a session
  // whose worker is just dying.
  std::chrono::milliseconds patience{5000};
  std::chrono::milliseconds admin_wait_max{1000};  // For all workers' answers together.
  std::chrono::milliseconds stop_grace{2000};      // From the second signal to SIGKILL,
  std::chrono::milliseconds drain_grace{5000};  // and from a worker's last session, or the first.
};

// Listens, admits, hands connections over to workers, watches the workers, and answers
// operators. It owns no device and no client memory, and stays off the path of every client once
// that client is handed over.
//
// Confined to the thread that runs `context`. Destroyed only when `context` is not running.
class Broker {
 public:
  Broker(boost::asio::io_context& context, BrokerOptions options,
         std::shared_ptr<spdlog::logger> log);
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // Takes the socket, starts the workers and accepts clients. Then run the context until
  // exit_code() has a value. `inherited`: listening sockets that came with the start.
  Status Start(std::vector<ipc::InheritedSocket> inherited = {});

  // First call: takes no new clients, ends when the last session has ended. Second call: ends
  // every session with a sentence, and then itself.
  void Stop(const std::string& because);

  // Takes over the rules as the configuration has them now: all of them, or none where one of them
  // cannot be. Sessions that are here keep what they have. `done` gets the options that need a
  // restart, or why nothing has changed; both are in the log, too.
  using ReloadDone = std::function<void(const Result<std::vector<std::string>>& need_restart)>;
  void Reload(ReloadDone done);

  // What main returns; meaningful after the context has stopped.
  int exit_code() const { return exit_code_; }

 private:
  struct ParkedHello;
  struct ParkedWhy;

  // What an earlier broker left that died: its counts, and its workers.
  Status OpenCounts();
  void OpenRegistryDirectory();
  // Where the device's workers count, see DeviceTotals.
  std::string TotalsFile(const DeviceEntry& device) const;
  void TakeOverSurvivors();
  void Adopt(Survivor survivor);
  DeviceEntry& RowFor(const Survivor& survivor);
  WorkerProcess::Events GetEvents(DeviceEntry& device);
  // Ends the worker of an earlier broker's options or version if nobody is on it: the next one has
  // this broker's.
  void RenewIfEmpty(DeviceEntry& device);

  // Gives way to a newer program: new clients wait in the sockets' queues, those who are here are
  // served, and then the file is executed, which takes over as after a crash.
  void OnUpgrade(Arrival arrival);
  void BeginUpgrade();
  void AwaitQuiet(std::chrono::steady_clock::time_point deadline);
  // Who is still being served; empty: nobody.
  std::string Occupation() const;
  void GiveUpUpgrade(const std::string& why);

  // A worker keeps a lease for the next broker. `connection` stays the caller's.
  void KeepAt(DeviceEntry& device, const ipc::Keep& lease, int connection);

  // Devices and their workers.
  void StartWorker(DeviceEntry& device);
  void OnWorkerMessage(DeviceEntry& device, ipc::Frame frame);
  void OnWorkerReady(DeviceEntry& device, ipc::Ready ready);
  void OnWorkerExited(DeviceEntry& device, const std::string& how);
  void LoseSessions(DeviceEntry& device);
  void ScheduleRestart(DeviceEntry& device);
  void GiveUpOn(DeviceEntry& device, const Status& why);

  // GPUs that go and come.
  void OnInventory(const device::Inventory& inventory);
  void Compare(DeviceEntry& device, const device::Presence& presence);
  void TakeNewClients(const device::Inventory& inventory);
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
  // Has it take clients again, whether its worker has ended or is about to.
  void TakeBackDrain(DeviceEntry& device);
  Status TakeBackDrainOfServer();
  void OnResume(Arrival arrival, const std::string& name);
  // What counts for it: the rule of its endpoint, or the access rule for its user.
  const Allowance& GetAllowance(const Arrival& arrival) const;
  // Whether it may come through its endpoint.
  static Status CheckEndpoint(const Arrival& arrival);
  void EndSessionsOf(const Endpoint& endpoint, const std::string& why);
  void OnHello(Arrival arrival);
  void Admit(Arrival arrival, const ipc::Hello& hello, bool may_wait);
  void HandOver(Arrival arrival, const ipc::Hello& hello, DeviceEntry& device,
                const MemoryGrant& memory);
  void OnListDevices(Arrival arrival);
  bool AreDevicesKnown() const;
  void ReportDevices(Arrival arrival);
  bool MayPark(const Arrival& arrival) const;
  // `hello`: none of one who asked for the list of devices.
  void Park(Arrival arrival, std::optional<ipc::Hello> hello);
  void AdmitParked(std::uint64_t number);
  void RetryParked();
  void RejectArrival(Arrival arrival, const Status& why);
  void OnWhy(Arrival arrival);
  bool AnswerWhy(Arrival& arrival, std::uint64_t session);

  // Sessions and the end.
  void EndSession(std::uint64_t id, const Status& why);
  void BeginDrain();
  void StopNow();
  void ReportDrain();
  // The worker ends by itself within this time, or is killed.
  void ExpectEnd(DeviceEntry& device, std::chrono::milliseconds grace);
  void FinishWhenDone();

  boost::asio::io_context& context_;
  BrokerOptions options_;
  std::shared_ptr<spdlog::logger> log_;
  RatedLog rated_log_;  // For lines that clients cause.
  PreferredBudget preferred_budget_;
  AccessRules rules_;
  AdminRights rights_;
  // Ends of clients' sockets, and of workers that others look at. Outlives what holds a socket.
  ipc::UnboundedCalls unbounded_;
  SessionLog session_log_;
  DeviceTable devices_;
  std::optional<KeptCounts> counts_;
  std::unique_ptr<EndpointTable> endpoints_;
  std::unique_ptr<AdminRequestHandler> request_handler_;
  std::unique_ptr<InventoryWatch> watch_;  // Null where nobody looks.
  std::unique_ptr<WorkerWatch> worker_watch_;
  std::unique_ptr<AsideReader<NewRules>> reader_;      // Null where nobody can read.
  std::unique_ptr<AsideReader<std::string>> checker_;  // Null where nobody can follow.
  std::uint64_t last_parked_ = 0;
  std::map<std::uint64_t, std::unique_ptr<ParkedHello>> parked_hellos_;
  std::map<std::uint64_t, std::unique_ptr<ParkedWhy>> parked_whys_;
  boost::asio::steady_timer drain_report_;
  enum class Phase : std::uint8_t {
    kServing,
    kDraining,
    kStopping,
    kOver
  } phase_ = Phase::kServing;
  NewClients new_clients_;
  bool drain_is_final_ = false;  // A signal asked for it, and a service manager waits for the end.
  int exit_code_ = 0;
  boost::asio::steady_timer quiet_timer_;
  bool is_pausing_ = false;      // For an upgrade.
  std::string upgrade_failure_;  // Why the last one was given up.
  bool has_registries_ = false;  // Workers can be found by the next broker.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_BROKER_H_
