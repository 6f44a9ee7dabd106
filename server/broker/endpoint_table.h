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

// A listening socket and the rule for all clients that connect through it.
struct Endpoint {
  std::uint32_t number = 0;  // 0: the server's own socket, which is subject to the access rules.
  EndpointRule rule;         // For number 0 only the name is used.
  std::string socket;
  // Human-readable owner of the lease; empty if the endpoint is in the configuration.
  std::string lessee;
  std::uint32_t lessee_uid = 0;
  bool is_open = true;               // An expired lease admits no clients.
  bool is_held = true;               // False while a lease waits to be resumed.
  EndpointCounts* counts = nullptr;  // Never null once the endpoint is in the table.

  bool IsMain() const { return number == 0; }
};

// The server's listening sockets: its own, those of the configuration, and those leased by
// operators. A lease ends when the connection that requested it closes. The endpoint's socket is
// then closed, and after a grace period the remaining sessions are ended. A lease with the term
// resume_within ends that much later, unless the same user resumes it by requesting a lease with
// the same name. The new connection and terms then apply, and the socket and the sessions remain.
// Workers keep copies of leases so that the next broker can restore them if this one dies.
//
// Confined to the broker's thread.
class EndpointTable {
 public:
  static constexpr std::size_t kLeasesMax = 256;

  struct Surroundings {
    ipc::UnboundedCalls& closing;  // Must outlive this object and all arrivals.
    Listener::Limits limits;
    std::uint32_t own_uid = 0;
    bool has_overcommit = false;                  // See BrokerOptions.
    std::vector<ipc::InheritedSocket> inherited;  // Used for endpoints with the same paths.
    std::function<void(Arrival arrival)> on_arrival;
    Listener::RejectionFunction on_rejection;
    std::function<void(const std::string& what)> log;
    // Ends the sessions of the endpoint.
    std::function<void(const Endpoint& endpoint, const std::string& why)> end_sessions;
    // Pass a lease to the workers, which outlive this broker, and withdraw it from them.
    std::function<void(const ipc::Keep& lease, int connection)> keep;
    std::function<void(std::uint32_t endpoint)> forget;
  };
  EndpointTable(boost::asio::io_context& context, Surroundings around);
  ~EndpointTable();
  EndpointTable(const EndpointTable&) = delete;
  EndpointTable& operator=(const EndpointTable&) = delete;

  // Opens the server's own socket. Must be called first. Clients can connect from then on.
  Status OpenMain(const std::string& path);
  // Called once, after OpenMain: counts and numbers are persisted in `counts`, which must outlive
  // this object.
  void KeepCounts(KeptCounts& counts);
  // Called after Replace: drops the counts of endpoints that no longer exist.
  void DropOtherCounts();
  // Called before Replace: makes the endpoint of that name get the number that it had under an
  // earlier broker.
  void Expect(const std::string& name, std::uint32_t number);
  // Called before Replace: restores a lease that an earlier broker granted. Has no effect if
  // another worker has already reported it.
  Status Restore(const ipc::Keep& lease, ipc::UniqueFd connection);
  // Called after all leases are restored: removes the directories of expired ones.
  void RemoveDeadLeases();
  // Passes all leases to a new worker.
  void ReportLeases(const std::function<void(const ipc::Keep& lease, int connection)>& keep) const;
  // Applies the endpoints of the configuration: all of them, or none if one cannot be opened. An
  // endpoint that keeps its socket keeps its sessions and applies the new rule to new clients. A
  // removed endpoint admits no further clients. Missing directories are created.
  Status Replace(const std::vector<EndpointRule>& rules);
  void SetLeaseGrace(std::chrono::nanoseconds grace) { lease_grace_ = grace; }
  // Creates an endpoint for the requesting operator, or resumes one; retains the connection, and
  // answers on it with the path. A rejected request leaves `asker` to the caller.
  Status Lease(const std::string& terms, Arrival& asker);
  // Closes inherited sockets that match no endpoint, and returns their paths.
  std::vector<std::string> CloseUnused();
  // Stop accepting and accept again; new clients wait in the sockets' queues in between.
  void Pause();
  void Resume();
  // Number of connections whose first frame has not arrived.
  std::size_t waiting() const;
  std::size_t leases() const { return leases_.size(); }
  // Sockets for the successor.
  std::vector<ipc::BorrowedSocket> Borrow() const;
  // Closes and removes all sockets.
  void Stop();

  // Numbers of the endpoints that share a budget with this one, including its own.
  std::set<std::uint32_t> SharersWith(const Endpoint& endpoint) const;
  // Ordered by number.
  const std::map<std::uint32_t, std::shared_ptr<Endpoint>>& endpoints() const { return endpoints_; }

 private:
  struct LeaseHold;

  std::string LeasesDirectory() const;
  std::string GetSocket(const EndpointRule& rule) const;
  Status Open(const EndpointRule& rule, std::uint32_t number);
  std::uint32_t NumberFor(const std::string& name);
  std::optional<ipc::InheritedSocket> TakeInherited(const std::string& path);
  EndpointCounts& GetRow(const Endpoint& endpoint);
  Result<std::shared_ptr<Endpoint>> OpenLease(const ipc::Keep& lease, std::uint32_t uid);
  // Parses the terms of a new lease, and makes the checks from which endpoints of the configuration
  // and leases of an earlier broker are exempt.
  Result<EndpointRule> CheckTerms(const std::string& terms) const;
  void Hold(const std::shared_ptr<Endpoint>& endpoint, const std::string& terms,
            ipc::UniqueFd connection);
  Status Listen(const std::shared_ptr<Endpoint>& endpoint);
  // Checks that the name is not in use: by any open endpoint or, if `among_leases`, by any open
  // lease.
  Status CheckName(const EndpointRule& rule, bool among_leases) const;
  // Returns the lease that a request of this user for `rule` resumes, or null.
  std::shared_ptr<Endpoint> FindResumable(const EndpointRule& rule, std::uint32_t uid) const;
  void Watch(std::uint32_t number);
  void OnLesseeLost(std::uint32_t number, const std::string& how);
  void EndLease(std::uint32_t number, const std::string& how);
  void Forget(std::uint32_t number);

  boost::asio::io_context& context_;
  Surroundings around_;
  std::string main_path_;
  std::chrono::nanoseconds lease_grace_{};
  std::uint32_t last_number_ = 0;
  std::map<std::string, std::uint32_t> expected_;  // See Expect.
  KeptCounts* counts_ = nullptr;
  EndpointCounts uncounted_{};  // Used by endpoints that are no longer in the table.
  std::map<std::uint32_t, std::shared_ptr<Endpoint>> endpoints_;
  std::map<std::uint32_t, std::unique_ptr<Listener>> listeners_;
  std::map<std::uint32_t, std::unique_ptr<LeaseHold>> leases_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_ENDPOINT_TABLE_H_
