// SPDX-License-Identifier: Apache-2.0
#include "server/broker/endpoint_table.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/config/config_values.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using boost::asio::posix::descriptor_base;

constexpr mode_t kSocketMode = 0666;  // The access rules determine each user's rights.
constexpr mode_t kDirectoryMode = 0755;
constexpr const char* kSocketName = "/gpushared.sock";

Status DirectoryFailed(const std::string& what, const std::string& directory) {
  return {StatusCode::kInternal,
          what + " '" + directory + "' failed: " + std::generic_category().message(errno)};
}

std::string GetDirectory(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Creates one level. An existing directory is left unchanged.
Status MakeDirectory(const std::string& directory) {
  if (::mkdir(directory.c_str(), kDirectoryMode) != 0) {
    return errno == EEXIST ? Status::Ok() : DirectoryFailed("creating directory", directory);
  }
  // The mode must not depend on the umask, because clients of other users must reach the socket.
  if (::chmod(directory.c_str(), kDirectoryMode) != 0)
    return DirectoryFailed("opening directory", directory);
  return Status::Ok();
}

// Rejects a directory in which another user or group may replace files, because a process that
// replaced our socket could impersonate the server.
Status CheckDirectory(const std::string& directory) {
  struct stat facts {};
  if (::lstat(directory.c_str(), &facts) != 0)
    return DirectoryFailed("checking directory", directory);
  const bool is_ours = facts.st_uid == ::geteuid() || facts.st_uid == kRootUid;
  const bool is_closed =
      (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (facts.st_mode & S_ISVTX) != 0;
  if (S_ISDIR(facts.st_mode) && is_ours && is_closed) return Status::Ok();
  return {StatusCode::kPermissionDenied, "'" + directory +
                                             "' is not a directory of root or the server's own "
                                             "user, or other users may replace files in it"};
}

void RemoveDirectory(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

std::string LeaseReply(const Endpoint& endpoint) {
  return nlohmann::json{{"endpoint", endpoint.rule.name}, {"socket", endpoint.socket}}.dump();
}

}  // namespace

// The connection that keeps a lease alive.
struct EndpointTable::LeaseHold {
  LeaseHold(boost::asio::io_context& context, ipc::UnboundedCalls& calls, ipc::UniqueFd connection,
            std::string asked)
      : closing(calls),
        socket(context, connection.Release()),
        terms(std::move(asked)),
        grace(context) {}
  ~LeaseHold() { Close(); }
  LeaseHold(const LeaseHold&) = delete;
  LeaseHold& operator=(const LeaseHold&) = delete;

  void Close() {
    if (!socket.is_open()) return;
    // Shut down explicitly, because workers hold duplicates of the connection.
    ::shutdown(socket.native_handle(), SHUT_RDWR);
    closing.CloseSocket(ipc::UniqueFd(socket.release()));
  }

  ipc::UnboundedCalls& closing;
  boost::asio::posix::stream_descriptor socket;
  const std::string terms;
  boost::asio::steady_timer grace;
};

EndpointTable::EndpointTable(boost::asio::io_context& context, Surroundings around)
    : context_(context), around_(std::move(around)) {}

EndpointTable::~EndpointTable() = default;

std::string EndpointTable::LeasesDirectory() const { return main_path_ + ".leases"; }

Status EndpointTable::OpenMain(const std::string& path) {
  main_path_ = path;
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->rule.name = "main";
  endpoint->socket = path;
  return Listen(endpoint);
}

void EndpointTable::KeepCounts(KeptCounts& counts) {
  counts_ = &counts;
  for (const auto& [name, number] : counts.Numbers()) {
    Expect(name, static_cast<std::uint32_t>(number));
  }
  for (const auto& [number, endpoint] : endpoints_) endpoint->counts = &GetRow(*endpoint);
}

EndpointCounts& EndpointTable::GetRow(const Endpoint& endpoint) {
  if (counts_ == nullptr) return uncounted_;
  // KeptCounts has a separate row without a name for the server's own socket.
  return counts_->Claim(endpoint.IsMain() ? "" : endpoint.rule.name, endpoint.number);
}

void EndpointTable::DropOtherCounts() {
  std::set<const EndpointCounts*> used;
  for (const auto& [number, endpoint] : endpoints_) used.insert(endpoint->counts);
  counts_->FreeAllBut(used);
}

void EndpointTable::Expect(const std::string& name, std::uint32_t number) {
  std::uint32_t& expected = expected_[name];
  expected = std::max(expected, number);
  last_number_ = std::max(last_number_, number);
}

std::uint32_t EndpointTable::NumberFor(const std::string& name) {
  const auto expected = expected_.extract(name);
  const bool has_one = !expected.empty() && !endpoints_.contains(expected.mapped());
  return has_one ? expected.mapped() : ++last_number_;
}

Status EndpointTable::CheckName(const EndpointRule& rule, bool among_leases) const {
  const bool is_taken = std::ranges::any_of(endpoints_, [&](const auto& each) {
    const Endpoint& other = *each.second;
    return other.is_open && other.rule.name == rule.name &&
           (!among_leases || !other.lessee.empty());
  });
  if (!is_taken) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          "endpoint rejected: there is one with the name '" + rule.name + "'"};
}

std::optional<ipc::InheritedSocket> EndpointTable::TakeInherited(const std::string& path) {
  const auto found = std::ranges::find(around_.inherited, path, &ipc::InheritedSocket::path);
  if (found == around_.inherited.end()) return std::nullopt;
  ipc::InheritedSocket socket = std::move(*found);
  around_.inherited.erase(found);
  return socket;
}

std::vector<std::string> EndpointTable::CloseUnused() {
  std::vector<std::string> paths;
  for (const ipc::InheritedSocket& each : around_.inherited) paths.push_back(each.path);
  around_.inherited.clear();
  return paths;
}

Status EndpointTable::Listen(const std::shared_ptr<Endpoint>& endpoint) {
  Result<ipc::ListeningSocket> socket = ipc::ListeningSocket::Open(
      {.path = endpoint->socket, .mode = kSocketMode}, TakeInherited(endpoint->socket));
  if (!socket.ok()) return socket.status();
  if (socket->replaced_stale()) {
    around_.log("socket " + endpoint->socket + ": replaced the socket of a dead server");
  }
  auto listener = std::make_unique<Listener>(
      context_, around_.closing, std::move(*socket), around_.limits, around_.own_uid,
      [this, endpoint](Arrival arrival) {
        arrival.endpoint = endpoint;
        around_.on_arrival(std::move(arrival));
      },
      around_.on_rejection);
  if (Status status = listener->Start(); !status.ok()) return status;
  endpoint->counts = &GetRow(*endpoint);
  endpoints_.emplace(endpoint->number, endpoint);
  listeners_.emplace(endpoint->number, std::move(listener));
  return Status::Ok();
}

std::string EndpointTable::GetSocket(const EndpointRule& rule) const {
  return rule.socket.empty() ? GetDirectory(main_path_) + "/" + rule.name + kSocketName
                             : rule.socket;
}

Status EndpointTable::Open(const EndpointRule& rule, std::uint32_t number) {
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->number = number;
  endpoint->rule = rule;
  endpoint->socket = GetSocket(rule);
  const std::string directory = GetDirectory(endpoint->socket);
  Status status = MakeDirectory(directory);
  if (status.ok()) status = CheckDirectory(directory);
  return status.ok() ? Listen(endpoint) : status;
}

Status EndpointTable::Replace(const std::vector<EndpointRule>& rules) {
  std::map<std::uint32_t, const EndpointRule*> staying, opened;
  const auto give_back = [&](Status why) {
    for (const auto& [number, rule] : opened) Forget(number);
    return why;
  };
  for (const EndpointRule& rule : rules) {
    const auto same = std::ranges::find_if(endpoints_, [&](const auto& each) {
      return !each.second->IsMain() && each.second->lessee.empty() &&
             each.second->socket == GetSocket(rule);
    });
    Status status = CheckName(rule, /*among_leases=*/true);
    // Two rules of one configuration may not use the same socket.
    if (status.ok() && same != endpoints_.end() &&
        (staying.contains(same->first) || opened.contains(same->first))) {
      status = {StatusCode::kInvalidArgument, rule.label + " rejected: its socket '" +
                                                  GetSocket(rule) +
                                                  "' is that of another endpoint"};
    }
    if (status.ok() && same != endpoints_.end()) {
      staying.emplace(same->first, &rule);
    } else if (status.ok()) {
      const std::uint32_t number = NumberFor(rule.name);
      opened.emplace(number, &rule);
      status = Open(rule, number);
    }
    if (!status.ok()) return give_back(status);
  }
  std::vector<std::uint32_t> leaving;
  for (const auto& [number, endpoint] : endpoints_) {
    const bool is_of_file = !endpoint->IsMain() && endpoint->lessee.empty();
    if (is_of_file && !staying.contains(number) && !opened.contains(number)) {
      leaving.push_back(number);
    }
  }
  for (const std::uint32_t number : leaving) {
    around_.log(endpoints_.at(number)->rule.label + " is closed");
    endpoints_.at(number)->is_open = false;
    Forget(number);
  }
  for (const auto& [number, rule] : staying) endpoints_.at(number)->rule = *rule;
  for (const auto& [number, rule] : opened) {
    around_.log(Describe(*rule) + ", on " + endpoints_.at(number)->socket);
  }
  return Status::Ok();
}

Result<EndpointRule> EndpointTable::CheckTerms(const std::string& terms) const {
  Result<EndpointRule> rule = ParseEndpointTerms(terms, "terms of the lease");
  if (!rule.ok()) return rule;
  if (rule->who.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "lease rejected: 'who' is missing, for example who = \"uid:1000\"");
  }
  if (rule->memory_limit && !around_.has_overcommit) {
    return Status(StatusCode::kInvalidArgument,
                  "lease rejected: its memory_limit of " + rule->memory_limit->ToString() +
                      " exceeds the guarantee, and this server has no swap space; omit it, or "
                      "start the server with overcommit");
  }
  if (rule->resume_within > std::chrono::nanoseconds::zero() && rule->name.empty()) {
    return Status(
        StatusCode::kInvalidArgument,
        "lease rejected: a lease with resume_within is resumed by its name, and has none");
  }
  return rule;
}

std::shared_ptr<Endpoint> EndpointTable::FindResumable(const EndpointRule& rule,
                                                       std::uint32_t uid) const {
  for (const auto& [number, endpoint] : endpoints_) {
    const bool is_resumable =
        endpoint->is_open && endpoint->rule.resume_within > std::chrono::nanoseconds::zero();
    if (is_resumable && endpoint->rule.name == rule.name && endpoint->lessee_uid == uid) {
      return endpoint;
    }
  }
  return nullptr;
}

Result<std::shared_ptr<Endpoint>> EndpointTable::OpenLease(const ipc::Keep& lease,
                                                           std::uint32_t uid) {
  Result<EndpointRule> rule = ParseEndpointTerms(lease.terms, "terms of the lease");
  if (!rule.ok()) return rule.status();
  if (leases_.size() >= kLeasesMax) {
    return Status(StatusCode::kLimitExceeded,
                  "lease rejected: there are " + std::to_string(kLeasesMax) + " already");
  }
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->number = lease.endpoint;
  if (rule->name.empty()) {
    rule->name = "lease-" + std::to_string(endpoint->number);
    rule->label = "endpoint '" + rule->name + "'";
  }
  if (Status status = CheckName(*rule, /*among_leases=*/false); !status.ok()) return status;
  endpoint->rule = std::move(*rule);
  endpoint->lessee = lease.lessee;
  endpoint->lessee_uid = uid;
  const std::string directory = LeasesDirectory() + "/" + std::to_string(endpoint->number);
  endpoint->socket = directory + kSocketName;
  Status status = MakeDirectory(LeasesDirectory());
  if (status.ok()) status = CheckDirectory(LeasesDirectory());
  if (status.ok()) status = MakeDirectory(directory);
  if (status.ok()) status = Listen(endpoint);
  if (status.ok()) return endpoint;
  RemoveDirectory(directory);
  return status;
}

void EndpointTable::Hold(const std::shared_ptr<Endpoint>& endpoint, const std::string& terms,
                         ipc::UniqueFd connection) {
  around_.log(Describe(endpoint->rule) + ", on " + endpoint->socket + ", leased by " +
              endpoint->lessee);
  // Replaces the previous connection of a lease that is resumed.
  leases_.insert_or_assign(
      endpoint->number,
      std::make_unique<LeaseHold>(context_, around_.closing, std::move(connection), terms));
  Watch(endpoint->number);
}

Status EndpointTable::Lease(const std::string& terms, Arrival& asker) {
  const Result<EndpointRule> rule = CheckTerms(terms);
  if (!rule.ok()) return rule.status();
  const std::shared_ptr<Endpoint> resumed = FindResumable(*rule, asker.peer.uid);
  const ipc::Keep lease = {.endpoint = resumed != nullptr ? resumed->number : ++last_number_,
                           .lessee = asker.peer.Who(),
                           .terms = terms};
  const Result<std::shared_ptr<Endpoint>> endpoint =
      resumed != nullptr ? Result<std::shared_ptr<Endpoint>>(resumed)
                         : OpenLease(lease, asker.peer.uid);
  if (!endpoint.ok()) return endpoint.status();
  ipc::Outbox outbox;
  Status status = outbox.Add(asker.frame.request, ipc::AdminReply{.text = LeaseReply(**endpoint)});
  if (status.ok()) {
    // The send buffer of a new connection is empty, so it accepts this at once.
    const Result<bool> sent = outbox.Flush(asker.socket.get());
    if (!sent.ok() || !*sent)
      status = {StatusCode::kDisconnected, "lease rejected: the connection was closed"};
  }
  if (!status.ok() && resumed == nullptr) {
    Forget(lease.endpoint);
    RemoveDirectory(GetDirectory((*endpoint)->socket));
  }
  if (!status.ok()) return status;
  if (resumed != nullptr) {
    resumed->rule = *rule;
    resumed->lessee = lease.lessee;
    resumed->is_held = true;
  }
  around_.keep(lease, asker.socket.get());
  Hold(*endpoint, terms, asker.socket.Release());
  return Status::Ok();
}

Status EndpointTable::Restore(const ipc::Keep& lease, ipc::UniqueFd connection) {
  last_number_ = std::max(last_number_, lease.endpoint);
  if (endpoints_.contains(lease.endpoint)) return Status::Ok();
  const Result<ipc::PeerIdentity> lessee = ipc::GetPeer(connection.get());
  if (!lessee.ok()) return lessee.status();
  const Result<std::shared_ptr<Endpoint>> endpoint = OpenLease(lease, lessee->uid);
  if (endpoint.ok()) Hold(*endpoint, lease.terms, std::move(connection));
  return endpoint.status();
}

void EndpointTable::ReportLeases(
    const std::function<void(const ipc::Keep& lease, int connection)>& keep) const {
  for (const auto& [number, hold] : leases_) {
    // A lease in its grace period no longer has a connection, and ends with this broker.
    if (!hold->socket.is_open()) continue;
    keep({.endpoint = number, .lessee = endpoints_.at(number)->lessee, .terms = hold->terms},
         hold->socket.native_handle());
  }
}

void EndpointTable::RemoveDeadLeases() {
  if (!CheckDirectory(LeasesDirectory()).ok()) return;
  std::error_code ignored;
  std::vector<std::string> dead;
  for (const auto& entry : std::filesystem::directory_iterator(LeasesDirectory(), ignored)) {
    const bool is_alive = std::ranges::any_of(leases_, [&](const auto& lease) {
      return entry.path().filename() == std::to_string(lease.first);
    });
    if (!is_alive) dead.push_back(entry.path());
  }
  for (const std::string& directory : dead) RemoveDirectory(directory);
  (void)::rmdir(LeasesDirectory().c_str());  // Succeeds only if it is empty.
}

void EndpointTable::Watch(std::uint32_t number) {
  LeaseHold& hold = *leases_.at(number);
  hold.socket.async_wait(descriptor_base::wait_read, [this, number](
                                                         const boost::system::error_code& error) {
    if (error || !leases_.contains(number)) return;
    // If closed, another handler has already handled the end. There may be two, because a resumed
    // lease has had two connections.
    if (!leases_.at(number)->socket.is_open()) return;
    char byte = 0;
    const int fd = leases_.at(number)->socket.native_handle();
    const ssize_t got = ::recv(fd, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Watch(number);
    OnLesseeLost(number, got > 0 ? "sent data after its lease request" : "closed its connection");
  });
}

void EndpointTable::OnLesseeLost(std::uint32_t number, const std::string& how) {
  Endpoint& endpoint = *endpoints_.at(number);
  if (endpoint.rule.resume_within == std::chrono::nanoseconds::zero()) {
    return EndLease(number, how);
  }
  LeaseHold& hold = *leases_.at(number);
  hold.Close();
  endpoint.is_held = false;
  around_.log(endpoint.rule.label + ": " + endpoint.lessee + " " + how +
              "; the lease can be resumed within " + FormatDuration(endpoint.rule.resume_within));
  hold.grace.expires_after(endpoint.rule.resume_within);
  hold.grace.async_wait([this, number](const boost::system::error_code& error) {
    // If the socket is open, the lease was resumed after the timer had expired.
    if (error || !leases_.contains(number) || leases_.at(number)->socket.is_open()) return;
    EndLease(number, "did not resume its lease");
  });
}

void EndpointTable::EndLease(std::uint32_t number, const std::string& how) {
  const std::shared_ptr<Endpoint> endpoint = endpoints_.at(number);
  LeaseHold& hold = *leases_.at(number);
  endpoint->is_open = false;
  hold.Close();
  listeners_.at(number)->Stop();
  RemoveDirectory(GetDirectory(endpoint->socket));
  around_.log(endpoint->rule.label + ": " + endpoint->lessee + " " + how +
              "; remaining sessions end in " + FormatDuration(lease_grace_));
  hold.grace.expires_after(lease_grace_);
  hold.grace.async_wait([this, number, endpoint](const boost::system::error_code& error) {
    if (error) return;
    around_.end_sessions(*endpoint, "the lease of its " + endpoint->rule.label + " is over");
    Forget(number);
  });
}

void EndpointTable::Forget(std::uint32_t number) {
  if (leases_.erase(number) > 0) around_.forget(number);
  listeners_.erase(number);
  const auto endpoint = endpoints_.extract(number);
  if (endpoint.empty()) return;
  // A newer endpoint may have the same name, and so the same row.
  EndpointCounts* const row = std::exchange(endpoint.mapped()->counts, &uncounted_);
  const bool is_shared = std::ranges::any_of(
      endpoints_, [row](const auto& each) { return each.second->counts == row; });
  if (counts_ != nullptr && !is_shared) counts_->Free(*row);
}

void EndpointTable::Pause() {
  for (auto& [number, listener] : listeners_) listener->Pause();
}

void EndpointTable::Resume() {
  for (auto& [number, listener] : listeners_) listener->Resume();
}

std::size_t EndpointTable::waiting() const {
  std::size_t sum = 0;
  for (const auto& [number, listener] : listeners_) sum += listener->waiting();
  return sum;
}

std::vector<ipc::BorrowedSocket> EndpointTable::Borrow() const {
  std::vector<ipc::BorrowedSocket> sockets;
  for (const auto& [number, listener] : listeners_) {
    if (endpoints_.at(number)->is_open) sockets.push_back(listener->Borrow());
  }
  return sockets;
}

std::set<std::uint32_t> EndpointTable::SharersWith(const Endpoint& endpoint) const {
  std::set<std::uint32_t> sharers = {endpoint.number};
  for (const auto& [number, other] : endpoints_) {
    const bool is_shared = !endpoint.rule.budget.empty() && !other->IsMain();
    if (is_shared && other->rule.budget == endpoint.rule.budget) sharers.insert(number);
  }
  return sharers;
}

void EndpointTable::Stop() {
  for (auto& [number, listener] : listeners_) listener->Stop();
  leases_.clear();
  if (!main_path_.empty() && CheckDirectory(LeasesDirectory()).ok())
    RemoveDirectory(LeasesDirectory());
}

}  // namespace gpushared::server
