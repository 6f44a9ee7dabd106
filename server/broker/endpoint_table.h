// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_ENDPOINT_TABLE_H_
#define GPUSHARED_SERVER_BROKER_ENDPOINT_TABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "gpushared/result.h"

#include "ipc/listening_socket.h"
#include "ipc/unique_fd.h"
#include "ipc/wire/channel.h"
#include "server/broker/kept_counts.h"
#include "server/broker/listener.h"
#include "server/config/config.h"

namespace gpushared::server {

// A way in: a listening socket, and the rule for all who come through it.
struct Endpoint {
  std::uint32_t number = 0;  // 0: the server's own socket, where the access rules count.
  EndpointRule rule;         // Not of number 0, but for its name.
  std::string socket;
  std::string lessee;   // Who leased it, for people; empty: it is in the configuration.
  bool is_open = true;  // A lease that is over lets nobody in.
  EndpointCounts* counts = nullptr;  // Set while the table has it and after.

  bool IsMain() const { return number == 0; }
};

// The server's sockets: its own, those of the configuration, and those that operators lease. A
// lease ends when the connection that asked for it does, however its process ended. Then nobody
// comes in any more, and after a grace the sessions that are left are ended. Workers keep leases
// for the next broker, should this one die.
//
// Confined to the broker's thread.
class EndpointTable {
 public:
  static constexpr std::size_t kLeasesMax = 256;

  struct Surroundings {
    ipc::UnboundedCalls& closing;  // Outlives this and all arrivals.
    Listener::Limits limits;
    std::uint32_t own_uid = 0;
    bool has_overcommit = false;                  // See BrokerOptions.
    std::vector<ipc::InheritedSocket> inherited;  // Used for endpoints of their paths.
    std::function<void(Arrival arrival)> on_arrival;
    Listener::RejectionFunction on_rejection;
    std::function<void(const std::string& what)> log;
    // Ends the sessions that came through it.
    std::function<void(const Endpoint& endpoint, const std::string& why)> end_sessions;
    // Hands a lease to those who outlive this broker, or takes it back from them.
    std::function<void(const ipc::Keep& lease, int connection)> keep;
    std::function<void(std::uint32_t endpoint)> forget;
  };
  EndpointTable(boost::asio::io_context& context, Surroundings around);
  ~EndpointTable();
  EndpointTable(const EndpointTable&) = delete;
  EndpointTable& operator=(const EndpointTable&) = delete;

  // The server's own socket, first; clients come from here on.
  Status OpenMain(const std::string& path);
  // Once, after OpenMain: counts and numbers are kept there from now on. `counts` outlives this.
  void KeepCounts(KeptCounts& counts);
  // After Replace: counts of endpoints that are not here any more are dropped.
  void DropOtherCounts();
  // Before Replace: under an earlier broker the endpoint of that name had that number, and it gets
  // it again.
  void Expect(const std::string& name, std::uint32_t number);
  // Before Replace: a lease that an earlier broker granted. Does nothing where it is here already,
  // from another keeper.
  Status Restore(const ipc::Keep& lease, ipc::UniqueFd connection);
  // After all leases are restored: removes the directories of those that are over.
  void RemoveDeadLeases();
  // For one more who keeps them.
  void ReportLeases(const std::function<void(const ipc::Keep& lease, int connection)>& keep) const;
  // The endpoints of the configuration from now on: all of them, or as before where one cannot be
  // opened. One that keeps its socket keeps its sessions, and gives new clients what the new rule
  // says. One that is gone lets nobody in any more. Directories are made where they are not there.
  Status Replace(const std::vector<EndpointRule>& rules);
  void SetLeaseGrace(std::chrono::nanoseconds grace) { lease_grace_ = grace; }
  // Makes an endpoint for whoever asked, and keeps the connection, on which the path is answered.
  // Rejections leave `asker` to the caller.
  Status Lease(const std::string& terms, Arrival& asker);
  // Closes the sockets that came with the start and are no endpoint's; their paths.
  std::vector<std::string> CloseUnused();
  // New clients wait in the sockets' queues from now on, or no longer.
  void Pause();
  void Resume();
  // Connections that have not said yet what they want.
  std::size_t waiting() const;
  std::size_t leases() const { return leases_.size(); }
  // For a successor.
  std::vector<ipc::BorrowedSocket> Borrow() const;
  // Removes all sockets.
  void Stop();

  // The numbers of those that share a budget with it, its own included.
  std::set<std::uint32_t> SharersWith(const Endpoint& endpoint) const;
  // Ascending by number.
  const std::map<std::uint32_t, std::shared_ptr<Endpoint>>& endpoints() const { return endpoints_; }

 private:
  struct LeaseHold;

  std::string LeasesDirectory() const;
  std::string GetSocket(const EndpointRule& rule) const;
  Status Open(const EndpointRule& rule, std::uint32_t number);
  std::uint32_t NumberFor(const std::string& name);
  std::optional<ipc::InheritedSocket> TakeInherited(const std::string& path);
  EndpointCounts& GetRow(const Endpoint& endpoint);
  Result<std::shared_ptr<Endpoint>> OpenLease(const ipc::Keep& lease);
  // What ParseEndpointTerms cannot know. A lease of an earlier broker stays in any case.
  Status CheckTerms(const std::string& terms) const;
  void Hold(const std::shared_ptr<Endpoint>& endpoint, const std::string& terms,
            ipc::UniqueFd connection);
  Status Listen(const std::shared_ptr<Endpoint>& endpoint);
  // Whether no endpoint has that name, or no lease.
  Status CheckName(const EndpointRule& rule, bool among_leases) const;
  void Watch(std::uint32_t number);
  void EndLease(std::uint32_t number, const std::string& how);
  void Forget(std::uint32_t number);

  boost::asio::io_context& context_;
  Surroundings around_;
  std::string main_path_;
  std::chrono::nanoseconds lease_grace_{};
  std::uint32_t last_number_ = 0;
  std::map<std::string, std::uint32_t> expected_;  // See Expect.
  KeptCounts* counts_ = nullptr;
  EndpointCounts uncounted_{};  // For endpoints that the table does not have.
  std::map<std::uint32_t, std::shared_ptr<Endpoint>> endpoints_;
  std::map<std::uint32_t, std::unique_ptr<Listener>> listeners_;
  std::map<std::uint32_t, std::unique_ptr<LeaseHold>> leases_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_ENDPOINT_TABLE_H_
