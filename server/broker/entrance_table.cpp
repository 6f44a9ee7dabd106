// SPDX-License-Identifier: Apache-2.0
#include "server/broker/entrance_table.h"

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

constexpr mode_t kSocketMode = 0666;  // The rules know who connects.
constexpr mode_t kFolderMode = 0755;
constexpr const char* kSocketName = "/gpushared.sock";

Status FolderFailed(const std::string& what, const std::string& folder) {
  return {StatusCode::kInternal,
          what + " '" + folder + "' failed: " + std::generic_category().message(errno)};
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// One level. A folder that is there stays as it is.
Status MakeFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), kFolderMode) != 0) {
    return errno == EEXIST ? Status::Ok() : FolderFailed("making folder", folder);
  }
  // Whatever the umask is: others pass through it to the socket.
  if (::chmod(folder.c_str(), kFolderMode) != 0) return FolderFailed("opening folder", folder);
  return Status::Ok();
}

// Nobody else, no group either, may replace what is in it: who could replace our socket could be
// taken for us.
Status CheckFolder(const std::string& folder) {
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0) return FolderFailed("looking at folder", folder);
  const bool is_ours = facts.st_uid == ::geteuid() || facts.st_uid == kRootUid;
  const bool is_closed =
      (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (facts.st_mode & S_ISVTX) != 0;
  if (S_ISDIR(facts.st_mode) && is_ours && is_closed) return Status::Ok();
  return {StatusCode::kPermissionDenied,
          "'" + folder +
              "' is no folder of root or the server's own user, or others may replace "
              "what is in it"};
}

void RemoveFolder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

std::string LeaseReply(const Entrance& entrance) {
  return nlohmann::json{{"entrance", entrance.rule.name}, {"socket", entrance.socket}}.dump();
}

}  // namespace

// The connection that keeps a lease alive.
struct EntranceTable::LeaseHold {
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
    // Those who keep it have it open, too.
    ::shutdown(socket.native_handle(), SHUT_RDWR);
    closing.CloseSocket(ipc::UniqueFd(socket.release()));
  }

  ipc::UnboundedCalls& closing;
  boost::asio::posix::stream_descriptor socket;
  const std::string terms;
  boost::asio::steady_timer grace;
};

EntranceTable::EntranceTable(boost::asio::io_context& context, Surroundings around)
    : context_(context), around_(std::move(around)) {}

EntranceTable::~EntranceTable() = default;

std::string EntranceTable::LeasesFolder() const { return main_path_ + ".leases"; }

Status EntranceTable::OpenMain(const std::string& path) {
  main_path_ = path;
  auto entrance = std::make_shared<Entrance>();
  entrance->rule.name = "main";
  entrance->socket = path;
  return Listen(entrance);
}

void EntranceTable::KeepCounts(KeptCounts& counts) {
  counts_ = &counts;
  for (const auto& [name, number] : counts.Numbers()) {
    Expect(name, static_cast<std::uint32_t>(number));
  }
  for (const auto& [number, entrance] : entrances_) entrance->counts = &RowOf(*entrance);
}

EntranceCounts& EntranceTable::RowOf(const Entrance& entrance) {
  if (counts_ == nullptr) return uncounted_;
  // An entrance of the configuration may have the name of the server's own.
  return counts_->Claim(entrance.IsMain() ? "" : entrance.rule.name, entrance.number);
}

void EntranceTable::DropOtherCounts() {
  std::set<const EntranceCounts*> used;
  for (const auto& [number, entrance] : entrances_) used.insert(entrance->counts);
  counts_->FreeAllBut(used);
}

void EntranceTable::Expect(const std::string& name, std::uint32_t number) {
  std::uint32_t& expected = expected_[name];
  expected = std::max(expected, number);
  last_number_ = std::max(last_number_, number);
}

std::uint32_t EntranceTable::NumberFor(const std::string& name) {
  const auto expected = expected_.extract(name);
  const bool has_one = !expected.empty() && !entrances_.contains(expected.mapped());
  return has_one ? expected.mapped() : ++last_number_;
}

Status EntranceTable::CheckName(const EntranceRule& rule, bool among_leases) const {
  const bool is_taken = std::ranges::any_of(entrances_, [&](const auto& each) {
    return each.second->rule.name == rule.name && (!among_leases || !each.second->lessee.empty());
  });
  if (!is_taken) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          "entrance refused: there is one with the name '" + rule.name + "'"};
}

std::optional<ipc::InheritedSocket> EntranceTable::TakeInherited(const std::string& path) {
  const auto found = std::ranges::find(around_.inherited, path, &ipc::InheritedSocket::path);
  if (found == around_.inherited.end()) return std::nullopt;
  ipc::InheritedSocket socket = std::move(*found);
  around_.inherited.erase(found);
  return socket;
}

std::vector<std::string> EntranceTable::CloseUnused() {
  std::vector<std::string> paths;
  for (const ipc::InheritedSocket& each : around_.inherited) paths.push_back(each.path);
  around_.inherited.clear();
  return paths;
}

Status EntranceTable::Listen(const std::shared_ptr<Entrance>& entrance) {
  Result<ipc::ListeningSocket> socket = ipc::ListeningSocket::Open(
      {.path = entrance->socket, .mode = kSocketMode}, TakeInherited(entrance->socket));
  if (!socket.ok()) return socket.status();
  if (socket->replaced_stale()) {
    around_.log("socket " + entrance->socket + ": replaced the one that a dead server had left");
  }
  auto listener = std::make_unique<Listener>(
      context_, around_.closing, std::move(*socket), around_.limits, around_.own_uid,
      [this, entrance](Arrival arrival) {
        arrival.entrance = entrance;
        around_.on_arrival(std::move(arrival));
      },
      around_.on_refusal);
  if (Status status = listener->Start(); !status.ok()) return status;
  entrance->counts = &RowOf(*entrance);
  entrances_.emplace(entrance->number, entrance);
  listeners_.emplace(entrance->number, std::move(listener));
  return Status::Ok();
}

std::string EntranceTable::SocketOf(const EntranceRule& rule) const {
  return rule.socket.empty() ? FolderOf(main_path_) + "/" + rule.name + kSocketName : rule.socket;
}

Status EntranceTable::Open(const EntranceRule& rule, std::uint32_t number) {
  auto entrance = std::make_shared<Entrance>();
  entrance->number = number;
  entrance->rule = rule;
  entrance->socket = SocketOf(rule);
  const std::string folder = FolderOf(entrance->socket);
  Status status = MakeFolder(folder);
  if (status.ok()) status = CheckFolder(folder);
  return status.ok() ? Listen(entrance) : status;
}

Status EntranceTable::Replace(const std::vector<EntranceRule>& rules) {
  std::map<std::uint32_t, const EntranceRule*> staying, opened;
  const auto give_back = [&](Status why) {
    for (const auto& [number, rule] : opened) Forget(number);
    return why;
  };
  for (const EntranceRule& rule : rules) {
    const auto same = std::ranges::find_if(entrances_, [&](const auto& each) {
      return !each.second->IsMain() && each.second->lessee.empty() &&
             each.second->socket == SocketOf(rule);
    });
    Status status = CheckName(rule, /*among_leases=*/true);
    // Two rules of one call may not have the same socket.
    if (status.ok() && same != entrances_.end() &&
        (staying.contains(same->first) || opened.contains(same->first))) {
      status = {StatusCode::kInvalidArgument, rule.label + " refused: its socket '" +
                                                  SocketOf(rule) + "' is that of another entrance"};
    }
    if (status.ok() && same != entrances_.end()) {
      staying.emplace(same->first, &rule);
    } else if (status.ok()) {
      const std::uint32_t number = NumberFor(rule.name);
      opened.emplace(number, &rule);
      status = Open(rule, number);
    }
    if (!status.ok()) return give_back(status);
  }
  std::vector<std::uint32_t> leaving;
  for (const auto& [number, entrance] : entrances_) {
    const bool is_of_file = !entrance->IsMain() && entrance->lessee.empty();
    if (is_of_file && !staying.contains(number) && !opened.contains(number)) {
      leaving.push_back(number);
    }
  }
  for (const std::uint32_t number : leaving) {
    around_.log(entrances_.at(number)->rule.label + " is closed");
    entrances_.at(number)->is_open = false;
    Forget(number);
  }
  for (const auto& [number, rule] : staying) entrances_.at(number)->rule = *rule;
  for (const auto& [number, rule] : opened) {
    around_.log(Describe(*rule) + ", on " + entrances_.at(number)->socket);
  }
  return Status::Ok();
}

Status EntranceTable::CheckTerms(const std::string& terms) const {
  const Result<EntranceRule> rule = ParseEntranceTerms(terms, "terms of the lease");
  if (!rule.ok()) return rule.status();
  if (!rule->memory_limit || around_.has_overcommit) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          "lease refused: its memory_limit of " + rule->memory_limit->ToString() +
              " is memory beyond a guarantee, and this server has no room for that; leave it out, "
              "or have the server started with overcommit"};
}

Result<std::shared_ptr<Entrance>> EntranceTable::OpenLease(const ipc::Keep& lease) {
  Result<EntranceRule> rule = ParseEntranceTerms(lease.terms, "terms of the lease");
  if (!rule.ok()) return rule.status();
  if (rule->who.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "lease refused: it does not say who may come, such as who = \"uid:1000\"");
  }
  if (leases_.size() >= kLeasesMax) {
    return Status(StatusCode::kLimitExceeded,
                  "lease refused: there are " + std::to_string(kLeasesMax) + " already");
  }
  auto entrance = std::make_shared<Entrance>();
  entrance->number = lease.entrance;
  if (rule->name.empty()) {
    rule->name = "lease-" + std::to_string(entrance->number);
    rule->label = "entrance '" + rule->name + "'";
  }
  if (Status status = CheckName(*rule, /*among_leases=*/false); !status.ok()) return status;
  entrance->rule = std::move(*rule);
  entrance->lessee = lease.lessee;
  const std::string folder = LeasesFolder() + "/" + std::to_string(entrance->number);
  entrance->socket = folder + kSocketName;
  Status status = MakeFolder(LeasesFolder());
  if (status.ok()) status = CheckFolder(LeasesFolder());
  if (status.ok()) status = MakeFolder(folder);
  if (status.ok()) status = Listen(entrance);
  if (status.ok()) return entrance;
  RemoveFolder(folder);
  return status;
}

void EntranceTable::Hold(const std::shared_ptr<Entrance>& entrance, const std::string& terms,
                         ipc::UniqueFd connection) {
  around_.log(Describe(entrance->rule) + ", on " + entrance->socket + ", leased by " +
              entrance->lessee);
  leases_.emplace(entrance->number, std::make_unique<LeaseHold>(context_, around_.closing,
                                                                std::move(connection), terms));
  Watch(entrance->number);
}

Status EntranceTable::Lease(const std::string& terms, Arrival& asker) {
  if (Status status = CheckTerms(terms); !status.ok()) return status;
  const ipc::Keep lease = {.entrance = ++last_number_, .lessee = asker.peer.Who(), .terms = terms};
  const Result<std::shared_ptr<Entrance>> entrance = OpenLease(lease);
  if (!entrance.ok()) return entrance.status();
  ipc::Outbox outbox;
  Status status = outbox.Add(asker.frame.request, ipc::AdminReply{.text = LeaseReply(**entrance)});
  if (status.ok()) {
    // A new connection's buffer is empty, so it takes this at once.
    const Result<bool> sent = outbox.Flush(asker.socket.get());
    if (!sent.ok() || !*sent) status = {StatusCode::kDisconnected, "lease refused: nobody reads"};
  }
  if (!status.ok()) {
    Forget(lease.entrance);
    RemoveFolder(FolderOf((*entrance)->socket));
    return status;
  }
  around_.keep(lease, asker.socket.get());
  Hold(*entrance, terms, asker.socket.Release());
  return Status::Ok();
}

Status EntranceTable::Restore(const ipc::Keep& lease, ipc::UniqueFd connection) {
  last_number_ = std::max(last_number_, lease.entrance);
  if (entrances_.contains(lease.entrance)) return Status::Ok();
  const Result<std::shared_ptr<Entrance>> entrance = OpenLease(lease);
  if (entrance.ok()) Hold(*entrance, lease.terms, std::move(connection));
  return entrance.status();
}

void EntranceTable::TellLeases(
    const std::function<void(const ipc::Keep& lease, int connection)>& keep) const {
  for (const auto& [number, hold] : leases_) {
    // One whose grace runs has no connection any more, and ends with this broker.
    if (!hold->socket.is_open()) continue;
    keep({.entrance = number, .lessee = entrances_.at(number)->lessee, .terms = hold->terms},
         hold->socket.native_handle());
  }
}

void EntranceTable::RemoveDeadLeases() {
  if (!CheckFolder(LeasesFolder()).ok()) return;
  std::error_code ignored;
  std::vector<std::string> dead;
  for (const auto& entry : std::filesystem::directory_iterator(LeasesFolder(), ignored)) {
    const bool is_alive = std::ranges::any_of(leases_, [&](const auto& lease) {
      return entry.path().filename() == std::to_string(lease.first);
    });
    if (!is_alive) dead.push_back(entry.path());
  }
  for (const std::string& folder : dead) RemoveFolder(folder);
  (void)::rmdir(LeasesFolder().c_str());  // Where it is empty now.
}

void EntranceTable::Watch(std::uint32_t number) {
  LeaseHold& hold = *leases_.at(number);
  hold.socket.async_wait(
      descriptor_base::wait_read, [this, number](const boost::system::error_code& error) {
        if (error || !leases_.contains(number)) return;
        char byte = 0;
        const int fd = leases_.at(number)->socket.native_handle();
        const ssize_t got = ::recv(fd, &byte, 1, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Watch(number);
        EndLease(number, got > 0 ? "said more than its lease" : "closed its connection");
      });
}

void EntranceTable::EndLease(std::uint32_t number, const std::string& how) {
  const std::shared_ptr<Entrance> entrance = entrances_.at(number);
  LeaseHold& hold = *leases_.at(number);
  entrance->is_open = false;
  hold.Close();
  listeners_.at(number)->Stop();
  RemoveFolder(FolderOf(entrance->socket));
  around_.log(entrance->rule.label + ": " + entrance->lessee + " " + how +
              "; sessions that are left end in " + FormatDuration(lease_grace_));
  hold.grace.expires_after(lease_grace_);
  hold.grace.async_wait([this, number, entrance](const boost::system::error_code& error) {
    if (error) return;
    around_.end_sessions(*entrance, "the lease of its " + entrance->rule.label + " is over");
    Forget(number);
  });
}

void EntranceTable::Forget(std::uint32_t number) {
  if (leases_.erase(number) > 0) around_.forget(number);
  listeners_.erase(number);
  const auto entrance = entrances_.extract(number);
  if (entrance.empty()) return;
  // A newer entrance may have its name, and so its row.
  EntranceCounts* const row = std::exchange(entrance.mapped()->counts, &uncounted_);
  const bool is_shared = std::ranges::any_of(
      entrances_, [row](const auto& each) { return each.second->counts == row; });
  if (counts_ != nullptr && !is_shared) counts_->Free(*row);
}

void EntranceTable::Pause() {
  for (auto& [number, listener] : listeners_) listener->Pause();
}

void EntranceTable::Resume() {
  for (auto& [number, listener] : listeners_) listener->Resume();
}

std::size_t EntranceTable::waiting() const {
  std::size_t sum = 0;
  for (const auto& [number, listener] : listeners_) sum += listener->waiting();
  return sum;
}

std::vector<ipc::BorrowedSocket> EntranceTable::Borrow() const {
  std::vector<ipc::BorrowedSocket> sockets;
  for (const auto& [number, listener] : listeners_) {
    if (entrances_.at(number)->is_open) sockets.push_back(listener->Borrow());
  }
  return sockets;
}

std::set<std::uint32_t> EntranceTable::SharersWith(const Entrance& entrance) const {
  std::set<std::uint32_t> sharers = {entrance.number};
  for (const auto& [number, other] : entrances_) {
    const bool is_shared = !entrance.rule.budget.empty() && !other->IsMain();
    if (is_shared && other->rule.budget == entrance.rule.budget) sharers.insert(number);
  }
  return sharers;
}

void EntranceTable::Stop() {
  for (auto& [number, listener] : listeners_) listener->Stop();
  leases_.clear();
  if (!main_path_.empty() && CheckFolder(LeasesFolder()).ok()) RemoveFolder(LeasesFolder());
}

}  // namespace gpushared::server
