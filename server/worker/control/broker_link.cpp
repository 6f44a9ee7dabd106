// SPDX-License-Identifier: Apache-2.0
// Link to the broker: its messages, its loss, and operation without a broker.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "gpushared/check.h"

#include "ipc/share.h"
#include "server/worker/control/incoming_move.h"
#include "server/worker/control/session_calls.h"
#include "server/worker/control/worker_impl.h"

namespace gpushared::server {

void Worker::Impl::WatchChannel() {
  // The handler may run late, when a different channel is in use.
  channel_.async_wait(Descriptor::wait_read,
                      [this, number = channel_number_](const boost::system::error_code& error) {
                        if (!error && has_channel_ && number == channel_number_)
                          OnChannelReadable();
                      });
}

void Worker::Impl::OnChannelReadable() {
  Result<std::optional<ipc::Frame>> frame =
      ipc::ReceiveChannelMessage(channel_.native_handle(), ipc::ChannelToWorkerRules);
  if (!frame.ok()) return LoseBroker(frame.status().message());
  if (frame->has_value()) HandleFrame(std::move(**frame));
  if (has_channel_) WatchChannel();
}

void Worker::Impl::LoseBroker(const std::string& why) {
  if (!std::exchange(has_channel_, false)) return;
  has_broker_ = false;
  boost::system::error_code ignored;
  channel_.close(ignored);
  channel_outbox_ = ipc::Outbox(ipc::Outbox::Kind::kSeqpacket);
  is_channel_flushing_ = false;
  ++channel_number_;
  if (!registry_socket_) {
    spdlog::warn("lost the broker ({}): finishing the remaining sessions", why);
    BeginDrain();
    return CheckDone();
  }
  spdlog::warn("the broker has exited ({}): {} sessions continue, waiting for another broker", why,
               sessions_.size());
  AwaitBroker();
  WatchAlone(false);
  CheckDone();
}

void Worker::Impl::WatchRegistrySocket() {
  if (options_.registry_directory.empty()) return;
  Result<ipc::RegistrySocket> socket = ipc::RegistrySocket::Open(options_.registry_directory);
  Result<ipc::UniqueFd> watched =
      socket.ok() ? ipc::DuplicateFd(socket->fd()) : Result<ipc::UniqueFd>(socket.status());
  if (!watched.ok()) {
    return spdlog::warn("this worker will exit with its last session if its broker dies: {}",
                        watched.status().message());
  }
  registry_socket_.emplace(*std::move(socket));
  registry_descriptor_.assign(watched->Release());
}

void Worker::Impl::AwaitBroker() {
  registry_descriptor_.async_wait(
      Descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (error || has_channel_) return;
        Result<std::optional<ipc::UniqueFd>> channel = registry_socket_->Accept();
        if (!channel.ok()) spdlog::warn("{}", channel.status().message());
        if (!channel.ok() || !channel->has_value()) return AwaitBroker();
        channel_.assign((*channel)->Release());
        has_channel_ = true;
        WatchChannel();
      });
}

bool Worker::Impl::IsDeserted() const {
  return std::ranges::all_of(sessions_, [](const auto& each) { return each.second->has_ended(); });
}

void Worker::Impl::WatchAlone(bool was_deserted) {
  alone_timer_.expires_after(options_.alone_max);
  alone_timer_.async_wait([this, was_deserted](const boost::system::error_code& error) {
    if (error || has_broker_) return;
    const bool is_deserted = IsDeserted();
    if (!is_deserted || !was_deserted) return WatchAlone(is_deserted);
    spdlog::info("no broker and no clients remain");
    BeginDrain();
  });
}

void Worker::Impl::Handle(const ipc::TakeOver& take, ipc::Frame& frame) {
  if (take.version != ipc::kChannelVersion) {
    const std::string why = fmt::format(
        "take-over rejected: the broker speaks version {} of the channel, this worker version {}; "
        "this worker ends with its last session",
        take.version, ipc::kChannelVersion);
    spdlog::error("{}", why);
    has_broker_ = true;
    SendToBroker(frame.request,
                 ipc::ChannelReply{.code = StatusCode::kVersionMismatch, .text = why});
    // The worker does not wait for another broker.
    boost::system::error_code ignored;
    registry_descriptor_.close(ignored);
    registry_socket_.reset();
    return LoseBroker(why);
  }
  // The new broker does not know of the moves: a session that this worker reports stays here, and
  // one that arrives later is reported then. Abandoned before has_broker_ is set, because the
  // requests of the moves belong to the earlier broker.
  for (const auto& [id, session] : sessions_) {
    session->AbandonMove({StatusCode::kUnavailable, "client was not moved: the broker has died"});
  }
  has_broker_ = true;
  alone_timer_.cancel();
  drain_timer_.cancel();
  is_draining_ = ends_at_once();
  spdlog::info("a broker has taken over, with {} sessions", sessions_.size());
  ReportRegistry();
}

void Worker::Impl::ReportRegistry() {
  const auto present =
      std::ranges::count_if(sessions_, [](const auto& each) { return !each.second->has_moved(); });
  SendToBroker(0, ipc::Registry{.generation = options_.generation,
                                .made_by = options_.made_by,
                                .last_session = last_session_,
                                .sessions = static_cast<std::uint32_t>(present) +
                                            static_cast<std::uint32_t>(leaving_.size()),
                                .ends = static_cast<std::uint32_t>(ends_.size()),
                                .keeps = static_cast<std::uint32_t>(kept_.size())});
  for (const auto& [id, session] : sessions_) {
    if (!session->has_moved()) SendToBroker(0, session->Row());
  }
  for (const auto& [id, row] : leaving_) SendToBroker(0, row);
  for (const ipc::RegistryEnd& end : ends_) SendToBroker(0, end);
  for (const auto& [endpoint, kept] : kept_) {
    Result<ipc::UniqueFd> copy = ipc::DuplicateFd(kept.connection.get());
    if (!copy.ok()) return LoseBroker(copy.status().message());
    std::vector<ipc::UniqueFd> fds;
    fds.push_back(*std::move(copy));
    SendToBroker(0, ipc::Kept{kept.lease}, std::move(fds));
  }
  SendToBroker(
      0, ipc::Ready{.generation = options_.generation, .device = DescribeDevice(device_->info())});
}

void Worker::Impl::HandleFrame(ipc::Frame frame) {
  const auto type = static_cast<ipc::ChannelType>(frame.type);
  // A broker that finds this worker sends TakeOver as its first message, and only once.
  if (has_broker_ == (type == ipc::ChannelType::kTakeOver)) {
    return LoseBroker(fmt::format("it sent a {} message", ipc::ChannelTypeName(frame.type)));
  }
  const bool is_known = ipc::DecodeAs(ipc::ToWorkerMessages(), frame, [this, &frame](auto message) {
    if (!message.ok()) return LoseBroker(message.status().message());
    Handle(*std::move(message), frame);
  });
  Check(is_known, "the frame rules let nothing else through");
}

void Worker::Impl::FlushChannel() {
  if (!has_broker_ || is_channel_flushing_) return;
  const Result<bool> done = channel_outbox_.Flush(channel_.native_handle());
  if (!done.ok()) return LoseBroker(done.status().message());
  if (*done) return;
  is_channel_flushing_ = true;
  channel_.async_wait(Descriptor::wait_write,
                      [this, number = channel_number_](const boost::system::error_code& error) {
                        if (error || number != channel_number_) return;
                        is_channel_flushing_ = false;
                        FlushChannel();
                        CheckDone();
                      });
}

void Worker::Impl::Handle(ipc::Attach attach, ipc::Frame& frame) {
  const std::uint64_t id = attach.session;
  last_session_ = std::max(last_session_, id);
  client_log_.Know(id, {.uid = attach.peer.uid, .pid = attach.peer.pid});
  auto session = std::make_shared<Session>(*environment_, std::move(attach),
                                           std::move(frame.fds[0]), std::move(frame.fds[1]));
  // A duplicate number is a bug of the broker. Aborting is better than confusing two clients.
  Check(sessions_.emplace(id, session).second, "the broker numbers sessions once");
  if (is_lost()) {
    return session->End(
        {StatusCode::kUnavailable,
         fmt::format("connection rejected: device {} was lost just now, try again [{}]",
                     device_->info().id, session->who())});
  }
  if (is_draining_) {
    return session->End(
        {StatusCode::kUnavailable, fmt::format("connection rejected: device {} is draining [{}]",
                                               device_->info().id, session->who())});
  }
  if (const Status place = CheckPlace(*session); !place.ok()) return session->End(place);
  session->Start();
}

Status Worker::Impl::CheckPlace(const Session& new_client) const {
  const SessionLimits& limits = options_.limits;
  const auto all =
      std::ranges::count_if(sessions_, [](const auto& each) { return each.second->has_place(); });
  const auto ordinary = std::ranges::count_if(sessions_, [](const auto& each) {
    return each.second->has_place() && !each.second->MayUseReserve();
  });
  const std::uint32_t kept = std::min(limits.sessions_kept, limits.sessions_max / 2);
  if (static_cast<std::size_t>(all) + arriving_.size() < limits.sessions_max &&
      (new_client.MayUseReserve() || ordinary < limits.sessions_max - kept)) {
    return Status::Ok();
  }
  return {StatusCode::kLimitExceeded,
          fmt::format("connection rejected: device {} has {} clients, allowed: {}, {} of these "
                      "for clients that may be of class high [{}]",
                      device_->info().id, all, limits.sessions_max, kept, new_client.who())};
}

void Worker::Impl::Handle(const ipc::TerminateSession& session, ipc::Frame& frame) {
  Session* const found = Find(session.session);
  if (found == nullptr) {
    return SendToBroker(
        frame.request,
        ipc::ChannelReply{
            .code = StatusCode::kNotFound,
            .text = fmt::format("client {} has no session on this device", session.session)});
  }
  found->End({StatusCode::kDisconnected,
              fmt::format("session ended: {} [{}]", session.why, found->who())});
  SendToBroker(frame.request, ipc::ChannelReply{.code = StatusCode::kOk, .text = "{}"});
}

void Worker::Impl::Handle(const ipc::SetSession& change, ipc::Frame& frame) {
  Session* const found = Find(change.session);
  if (found == nullptr) {
    return SendToBroker(
        frame.request,
        ipc::ChannelReply{
            .code = StatusCode::kNotFound,
            .text = fmt::format("client {} has no session on this device", change.session)});
  }
  scheduler::ClientSpec spec = found->spec();
  if (change.client_class) spec.scheduling_class = *change.client_class;
  if (change.weight) spec.weight = *change.weight;
  ClientCaps caps = found->caps();
  if (change.max_share && *change.max_share > caps.rule) {
    return SendToBroker(
        frame.request,
        ipc::ChannelReply{
            .code = StatusCode::kLimitExceeded,
            .text = fmt::format(
                "max_share rejected: asked for {}, all clients under the rule of client {} have {} "
                "together at most; nothing is changed, its effective max_share is {}. Raise "
                "max_share of its access rule or endpoint for clients that connect later",
                ipc::ShareText(*change.max_share), change.session, ipc::ShareText(caps.rule),
                ipc::ShareText(caps.Least()))});
  }
  caps.own = change.max_share.value_or(caps.own);
  found->Change(spec, caps);
  SendToBroker(frame.request, ipc::ChannelReply{.code = StatusCode::kOk, .text = "{}"});
}

void Worker::Impl::Handle(const ipc::Drain&, ipc::Frame&) { BeginDrain(); }

void Worker::Impl::Handle(const ipc::Resume&, ipc::Frame&) {
  if (ends_at_once() || !std::exchange(is_draining_, false)) return;
  spdlog::info("the drain is taken back, with {} clients", sessions_.size());
  drain_timer_.cancel();
}

void Worker::Impl::Handle(const ipc::Keep& keep, ipc::Frame& frame) {
  if (kept_.size() >= ipc::kKeepsMax && !kept_.contains(keep.endpoint)) {
    return LoseBroker(fmt::format("it keeps more than {} leases here", ipc::kKeepsMax));
  }
  kept_.insert_or_assign(keep.endpoint, KeptLease{keep, std::move(frame.fds[0])});
}

void Worker::Impl::Handle(const ipc::Forget& forget, ipc::Frame&) { kept_.erase(forget.endpoint); }

// ---- moves

void Worker::Impl::Handle(const ipc::MoveOut& move, ipc::Frame& frame) {
  const auto reject = [this, request = frame.request](const Status& why) {
    SendToBroker(request,
                 ipc::ChannelReply{.code = why.code(), .text = std::string(why.message())});
  };
  Session* const session = Find(move.session);
  if (session == nullptr) {
    return reject({StatusCode::kNotFound,
                   fmt::format("client {} has no session on this device", move.session)});
  }
  session->MoveOut(std::move(frame.fds[0]), reject, [this, id = move.session] {
    SendToBroker(0, ipc::MoveEnded{.session = id, .end = ipc::MoveEnd::kLeft});
  });
}

void Worker::Impl::Handle(const ipc::MoveIn& move, ipc::Frame& frame) {
  const std::uint64_t id = move.row.session;
  const auto drop = [this, id] {
    SendToBroker(0, ipc::MoveEnded{.session = id, .end = ipc::MoveEnd::kDropped});
  };
  // A session that comes back may not have left completely.
  if (is_lost() || is_draining_ || sessions_.contains(id) || departing_.contains(id) ||
      !arriving_.insert(id).second) {
    ipc::Outbox outbox(ipc::Outbox::Kind::kSeqpacket);
    const std::string why =
        fmt::format("client cannot be moved: device {} is {}, try again", device_->info().id,
                    is_lost() || is_draining_ ? "ending" : "not ready");
    if (outbox.Add(0, ipc::ChannelReply{.code = StatusCode::kNotReady, .text = why}).ok()) {
      (void)outbox.Flush(frame.fds[0].get());
    }
    return drop();
  }
  last_session_ = std::max(last_session_, id);
  client_log_.Know(id, {.uid = move.row.peer.uid, .pid = move.row.peer.pid});
  const auto incoming = std::make_shared<IncomingMove>(
      *environment_, move, std::move(frame.fds[0]),
      IncomingMove::Events{
          .check = [this](const Session& session) { return CheckPlace(session); },
          .arrived = [this](const std::shared_ptr<Session>& session) { OnArrived(session); },
          .dropped =
              [this, id, drop](const Status& why) {
                arriving_.erase(id);
                client_log_.Forget(id);
                spdlog::info("client {} did not arrive: {}", id, why.message());
                drop();
                CheckDone();
              }});
  incoming->Start();
}

void Worker::Impl::OnArrived(const std::shared_ptr<Session>& session) {
  const std::uint64_t id = session->id();
  arriving_.erase(id);
  Check(sessions_.emplace(id, session).second, "a session arrives once");
  session->TakeOver();
  SendToBroker(0, session->Row());
  SendToBroker(0, ipc::MoveEnded{.session = id,
                                 .end = ipc::MoveEnd::kArrived,
                                 .stopped_ns = session->stopped_ns(),
                                 .bytes = session->mapped_bytes()});
  client_log_.GetWrite(spdlog::level::info, id,
                       fmt::format("session arrived from another device after {} us [{}]",
                                   session->stopped_ns() / 1000, session->who()));
}

void Worker::Impl::Handle(const ipc::Watch& watch, ipc::Frame& frame) {
  trace_request_handler_->Add(watch, std::move(frame.fds[0]));
}

}  // namespace gpushared::server
