// SPDX-License-Identifier: Apache-2.0
#include "server/broker/listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

using boost::asio::posix::descriptor_base;

constexpr int kAcceptsPerTurn = 32;
// Without free descriptors, accept fails while the socket stays readable; an immediate retry would
// spin.
constexpr std::chrono::milliseconds kAcceptRetry{100};
constexpr std::size_t kGroupsMax = 65536;

// Returns the supplementary groups that the kernel recorded at connect.
std::vector<std::uint32_t> GetGroups(int socket) {
  std::vector<std::uint32_t> groups(32);
  while (true) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return groups;
    }
    const std::size_t wanted = bytes / sizeof(gid_t);
    if (errno != ERANGE || wanted <= groups.size() || wanted > kGroupsMax) return {};
    groups.resize(wanted);
  }
}

}  // namespace

void Reject(ipc::ClientSocket socket, std::uint32_t request, const Status& why) {
  ipc::Outbox outbox;
  if (!outbox.Add(request, ipc::Rejected{why}).ok()) return;
  (void)outbox.Flush(socket.get());
}

struct Listener::Waiting {
  Waiting(boost::asio::io_context& context, ipc::UnboundedCalls& calls,
          ipc::ClientSocket connection)
      : closing(calls), socket(context, connection.Release().Release()), timer(context) {}
  ~Waiting() { TakeSocket(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  ipc::ClientSocket TakeSocket() {
    return {ipc::UniqueFd(socket.is_open() ? socket.release() : -1), closing};
  }

  ipc::UnboundedCalls& closing;

  boost::asio::posix::stream_descriptor socket;
  boost::asio::steady_timer timer;
  ipc::UniqueFd pidfd;
  Peer peer;
  ipc::FrameReader reader{ipc::FirstFrameRules, ipc::Descriptors::kRejected};
};

Listener::Listener(boost::asio::io_context& context, ipc::UnboundedCalls& closing,
                   ipc::ListeningSocket socket, Limits limits, std::uint32_t own_uid,
                   ArrivalFunction on_arrival, RejectionFunction on_rejection)
    : context_(context),
      closing_(closing),
      socket_(std::move(socket)),
      limits_(limits),
      own_uid_(own_uid),
      on_arrival_(std::move(on_arrival)),
      on_rejection_(std::move(on_rejection)),
      readable_(context),
      retry_(context) {}

Listener::~Listener() = default;

Status Listener::Start() {
  // Asio closes the descriptor it watches, and so does ListeningSocket; therefore each has its own.
  Result<ipc::UniqueFd> duplicate = ipc::DuplicateFd(socket_.fd());
  if (!duplicate.ok()) return duplicate.status();
  readable_.assign(duplicate->Release());
  WaitForConnection();
  return Status::Ok();
}

void Listener::Stop() {
  boost::system::error_code ignored;
  readable_.close(ignored);
  retry_.cancel();
  socket_.Close();
  waiting_.clear();
  waiting_of_uid_.clear();
}

// After Stop or destruction, pending handlers are called only with an error, and must not touch the
// object.
void Listener::WaitForConnection() {
  readable_.async_wait(descriptor_base::wait_read, [this](const boost::system::error_code& error) {
    if (!error) AcceptSome();
  });
}

void Listener::Pause() {
  is_paused_ = true;
  boost::system::error_code ignored;
  readable_.cancel(ignored);
  retry_.cancel();
}

void Listener::Resume() {
  if (std::exchange(is_paused_, false) && readable_.is_open()) WaitForConnection();
}

void Listener::AcceptSome() {
  if (is_paused_) return;  // The handler was queued before Pause was called.
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Result<std::optional<ipc::UniqueFd>> accepted = socket_.Accept();
    if (!accepted.ok()) {
      on_rejection_(nullptr, accepted.status());
      retry_.expires_after(kAcceptRetry);
      retry_.async_wait([this](const boost::system::error_code& error) {
        if (!error && !is_paused_) WaitForConnection();
      });
      return;
    }
    if (!accepted->has_value()) break;
    Admit({std::move(**accepted), closing_});
  }
  WaitForConnection();
}

void Listener::Admit(ipc::ClientSocket socket) {
  const Result<ipc::PeerIdentity> identity = ipc::GetPeer(socket.get());
  // Opened immediately, because the process id could be reused until the pidfd exists.
  Result<ipc::UniqueFd> pidfd = ipc::OpenPeerPidfd(socket.get());
  if (!identity.ok() || !pidfd.ok()) {
    const Status why = identity.ok() ? pidfd.status() : identity.status();
    on_rejection_(nullptr, why);
    Reject(std::move(socket), 0, why);
    return;
  }
  Peer peer = {.uid = identity->uid,
               .gid = identity->gid,
               .groups = GetGroups(socket.get()),
               .pid = identity->pid};
  EnforceLimits(peer.uid);
  const std::uint64_t number = ++last_number_;
  auto waiting = std::make_unique<Waiting>(context_, closing_, std::move(socket));
  waiting->pidfd = std::move(*pidfd);
  waiting->peer = std::move(peer);
  ++waiting_of_uid_[waiting->peer.uid];
  waiting->timer.expires_after(limits_.first_frame_max);
  waiting->timer.async_wait([this, number](const boost::system::error_code& error) {
    if (error) return;
    GiveUp(number, {StatusCode::kTimedOut, "connection rejected: no whole first message within " +
                                               FormatDuration(limits_.first_frame_max)});
  });
  waiting_.emplace(number, std::move(waiting));
  ReadFrame(number);
}

void Listener::EnforceLimits(std::uint32_t uid) {
  const auto of_uid = waiting_of_uid_.find(uid);
  if (of_uid != waiting_of_uid_.end() && of_uid->second >= limits_.waiting_per_uid_max) {
    return DropOldest(uid);
  }
  if (IsTrusted(uid, own_uid_) || WaitingOfOtherUsers() < limits_.waiting_max) return;
  std::optional<std::pair<std::uint32_t, std::size_t>> most;
  for (const auto& each : waiting_of_uid_) {
    if (!IsTrusted(each.first, own_uid_) && (!most || each.second > most->second)) most = each;
  }
  if (most) DropOldest(most->first);
}

std::size_t Listener::WaitingOfOtherUsers() const {
  std::size_t total = 0;
  for (const auto& [uid, count] : waiting_of_uid_) {
    if (!IsTrusted(uid, own_uid_)) total += count;
  }
  return total;
}

void Listener::DropOldest(std::uint32_t uid) {
  const auto oldest = std::ranges::find_if(
      waiting_, [uid](const auto& entry) { return entry.second->peer.uid == uid; });
  GiveUp(oldest->first,
         {StatusCode::kLimitExceeded,
          "connection rejected: dropped for a newer one; too many unauthenticated connections: " +
              std::to_string(waiting_of_uid_.at(uid)) + " of this uid and " +
              std::to_string(WaitingOfOtherUsers()) +
              " of all ordinary users, allowed: " + std::to_string(limits_.waiting_per_uid_max) +
              " and " + std::to_string(limits_.waiting_max)});
}

void Listener::WaitForFrame(std::uint64_t number) {
  waiting_.at(number)->socket.async_wait(descriptor_base::wait_read,
                                         [this, number](const boost::system::error_code& error) {
                                           if (!error) ReadFrame(number);
                                         });
}

void Listener::ReadFrame(std::uint64_t number) {
  // The connection may have closed while this handler was queued.
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;
  Waiting& waiting = *found->second;
  ipc::Frame frame;
  const Result<ipc::FrameReader::Progress> progress =
      waiting.reader.Read(waiting.socket.native_handle(), frame);
  if (!progress.ok()) return GiveUp(number, progress.status());
  if (*progress == ipc::FrameReader::Progress::kWouldBlock) return WaitForFrame(number);
  if (*progress == ipc::FrameReader::Progress::kClosed) return GiveUp(number, Status::Ok());
  Arrival arrival = {.socket = waiting.TakeSocket(),
                     .pidfd = std::move(waiting.pidfd),
                     .peer = waiting.peer,
                     .frame = std::move(frame),
                     .endpoint = nullptr};
  GiveUp(number, Status::Ok());
  on_arrival_(std::move(arrival));
}

// An Ok status means that no reply is sent.
void Listener::GiveUp(std::uint64_t number, const Status& why) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;
  Waiting& waiting = *found->second;
  if (!why.ok()) {
    on_rejection_(&waiting.peer, {why.code(), why.message() + " [" + waiting.peer.Who() + "]"});
    Reject(waiting.TakeSocket(), 0, why);
  }
  const auto of_uid = waiting_of_uid_.find(waiting.peer.uid);
  if (--of_uid->second == 0) waiting_of_uid_.erase(of_uid);
  waiting_.erase(found);
}

}  // namespace gpushared::server
