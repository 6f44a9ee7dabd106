// SPDX-License-Identifier: Apache-2.0
// Mail of the device thread; costs of kernels, which come with it, are kept on disk.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "server/worker/control/worker_impl.h"

namespace gpushared::server {

KeptCosts Worker::Impl::ReadKeptCosts() const {
  KeptCosts nothing{.costs = {}, .seed = MakeHashSeed()};
  if (options_.cost_file.empty()) return nothing;
  Result<std::optional<KeptCosts>> kept =
      ReadCosts(options_.cost_file, CostConditions(device_->info()));
  if (!kept.ok()) {
    spdlog::warn("{}; beginning with nothing", kept.status().message());
    return nothing;
  }
  if (!kept->has_value()) return nothing;
  spdlog::info("{} costs of kernels are known from '{}'", (*kept)->costs.size(),
               options_.cost_file);
  return **std::move(kept);
}

void Worker::Impl::WatchCosts() {
  if (options_.cost_file.empty()) return;
  cost_timer_.expires_after(options_.keep_costs_every);
  cost_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    device_thread_->mailbox().Post(AskCosts{});
    WatchCosts();
  });
}

void Worker::Impl::WatchLog() {
  report_timer_.expires_after(LogRate::Limits().report_interval);
  report_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    client_log_.Report();
    WatchLog();
  });
}

void Worker::Impl::Handle(CostsTaken message) {
  costs_taken_.insert(costs_taken_.end(), message.costs.begin(), message.costs.end());
  if (!message.is_last) return;
  // No call of the driver: no request meets it.
  slow_calls_->Post({.is_urgent = true}, [this, costs = std::exchange(costs_taken_, {})]() mutable {
    KeepCosts(std::move(costs));
  });
}

void Worker::Impl::KeepCosts(std::vector<scheduler::KnownCost> costs) const {
  if (options_.cost_file.empty() || costs.empty()) return;
  scheduler::Predictor::SortByAge(costs);
  const Status status =
      WriteCosts(options_.cost_file, CostConditions(device_->info()), cost_seed_, costs);
  if (!status.ok()) spdlog::warn("{}", status.message());
}

void Worker::Impl::WakeControl() {
  const std::uint64_t one = 1;
  // A full counter is as good as a write: the eventfd is readable either way.
  [[maybe_unused]] const ssize_t written = ::write(mail_eventfd_.get(), &one, sizeof one);
}

void Worker::Impl::WatchMail() {
  mail_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(mail_.native_handle(), &count, sizeof count);
    TakeMail();
    WatchMail();
  });
}

void Worker::Impl::TakeMail() {
  control_.TakeAll(taken_);
  for (ControlMessage& message : taken_) {
    std::visit([&](auto& each) { Handle(std::move(each)); }, message);
  }
  taken_.clear();
}

void Worker::Impl::Handle(ClientDetached message) {
  if (Session* const session = Find(message.client->setup.session)) {
    session->OnDetached(std::move(message.client));
  }
}

void Worker::Impl::Handle(ClientBroke message) {
  if (Session* const session = Find(message.session)) session->End(std::move(message.status));
}

void Worker::Impl::Handle(const Applied& message) {
  if (Session* const session = Find(message.session)) session->OnApplied();
}

void Worker::Impl::Handle(const LookAtArenas& message) {
  if (Session* const session = Find(message.session)) session->LookAtArenas();
}

void Worker::Impl::Handle(const MoveMemory& message) {
  if (Session* const session = Find(message.session)) session->OnMove(message);
}

void Worker::Impl::Handle(const CutMove& message) {
  if (Session* const session = Find(message.session)) session->CutMove(message.is_urgent);
}

void Worker::Impl::Handle(const RoomAnswer& message) {
  if (Session* const session = Find(message.session)) session->OnRoom(message.is_made);
}

void Worker::Impl::Handle(const ModuleReleased& message) {
  if (Session* const session = Find(message.session)) session->OnModuleReleased(message.number);
}

void Worker::Impl::Handle(const StreamError& message) {
  if (Session* const session = Find(message.session)) session->OnStreamError(message);
}

void Worker::Impl::Handle(TraceOver message) { trace_desk_->Free(std::move(message.writer)); }

void Worker::Impl::Handle(const Overloaded& message) {
  spdlog::warn(
      "{}: overloaded: not all latency promises can be kept; given up so far: {} of class high, "
      "{} of class normal, {} of class low",
      device_->info().id, message.given_up[0], message.given_up[1], message.given_up[2]);
}

void Worker::Impl::Handle(const KernelsEnded& message) {
  const std::string others =
      message.count > 1 ? fmt::format(" (and {} before it)", message.count - 1) : "";
  spdlog::warn("{}: {}{}", device_->info().id, message.latest, others);
}

void Worker::Impl::Handle(const KernelNoted& message) {
  client_log_.WriteOf(spdlog::level::warn, message.session,
                      fmt::format("{}: {}", device_->info().id, message.text));
}

void Worker::Impl::Handle(const DeviceLost& message) {
  // The clients hear it from us, those who ask later from the broker, and what is left goes with
  // this process. The broker first: who comes back at once is to meet our successor.
  spdlog::critical("{}", message.status.message());
  exit_code_ = kWorkerLostDevice;
  Tell(0, ipc::ChannelReply{.code = StatusCode::kDeviceLost, .text = message.status.message()});
  for (const auto& [id, session] : sessions_) {
    const std::string text = message.status.message() + " [" + session->who() + "]";
    session->End({StatusCode::kDeviceLost, text});
    Tell(0, ipc::SessionEnded{.session = id, .status = {StatusCode::kDeviceLost, text}});
  }
  CheckDone();
}

}  // namespace gpushared::server
