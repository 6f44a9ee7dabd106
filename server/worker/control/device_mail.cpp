// SPDX-License-Identifier: Apache-2.0
// Messages of the device thread, detection of a device thread that is blocked, and persistence of
// kernel costs, which arrive as messages.
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "server/worker/control/worker_impl.h"
#include "server/worker/state/device_loss.h"

namespace gpushared::server {

namespace {

std::string Seconds(std::chrono::nanoseconds time) {
  return fmt::format("{:.3g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

KeptCosts Worker::Impl::ReadKeptCosts() const {
  KeptCosts nothing{.costs = {}, .seed = MakeHashSeed()};
  if (options_.cost_file.empty()) return nothing;
  Result<std::optional<KeptCosts>> kept =
      ReadCosts(options_.cost_file, CostConditions(device_->info()));
  if (!kept.ok()) {
    spdlog::warn("{}; starting without kernel costs", kept.status().message());
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

void Worker::Impl::WatchGpu() {
  if (options_.read_gpu == nullptr) return;
  // The slow-call thread chooses the moment, because the reading may hold locks of the driver. A
  // separate thread reads, because a driver that has lost its GPU may never return, and sessions
  // need the slow-call thread. For the same reason nothing waits for the reading, not even the end
  // of the worker.
  slow_calls_->Post({}, [this, read = options_.read_gpu, home = home_] {
    std::thread([this, read, home] {
      ::pthread_setname_np(::pthread_self(), "gpushared-nvml");
      home.Post([this, readings = read()] { OnGpuRead(readings); });
    }).detach();
  });
}

void Worker::Impl::OnGpuRead(const device::GpuReadings& readings) {
  const std::optional<std::uint64_t> before = std::exchange(gpu_, readings).energy_mj;
  // If this reading has no energy, the next one that has it also covers this interval.
  if (!gpu_.energy_mj) gpu_.energy_mj = before;
  // The counter restarts when the driver is loaded again.
  const bool has_grown = before && *gpu_.energy_mj > *before;
  device_thread_->mailbox().Post(
      CountGpu{.energy_mj = has_grown ? *gpu_.energy_mj - *before : 0, .xids = readings.xids});
  gpu_timer_.expires_after(options_.read_gpu_every);
  gpu_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) WatchGpu();
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
  // The slow call is urgent, because it makes no driver call and therefore cannot delay a request.
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
  // If the counter is full, the write fails, but the eventfd is readable all the same.
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

void Worker::Impl::Handle(const ClientKept& message) {
  if (Session* const session = Find(message.session)) session->OnKept(message.why);
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

void Worker::Impl::Handle(const CheckStagingBuffers& message) {
  if (Session* const session = Find(message.session)) session->CheckStagingBuffers();
}

void Worker::Impl::Handle(const SwapMemory& message) {
  if (Session* const session = Find(message.session)) session->OnSwap(message);
}

void Worker::Impl::Handle(const PreemptSwap& message) {
  if (Session* const session = Find(message.session)) session->PreemptSwap(message.is_urgent);
}

void Worker::Impl::Handle(const MemoryAnswer& message) {
  if (Session* const session = Find(message.session)) session->OnMemory(message.is_made);
}

void Worker::Impl::Handle(const ModuleReleased& message) {
  if (Session* const session = Find(message.session)) session->OnModuleReleased(message.number);
}

void Worker::Impl::Handle(const StreamError& message) {
  if (Session* const session = Find(message.session)) session->OnStreamError(message);
}

void Worker::Impl::Handle(TraceOver message) {
  trace_request_handler_->Free(std::move(message.writer));
}

void Worker::Impl::Handle(const Overloaded& message) {
  spdlog::warn(
      "{}: overloaded: not all latency targets can be met; abandoned so far: {} of class high, "
      "{} of class normal, {} of class low",
      device_->info().id, message.abandoned[0], message.abandoned[1], message.abandoned[2]);
}

void Worker::Impl::Handle(const KernelsEnded& message) {
  const std::string others =
      message.count > 1 ? fmt::format(" (and {} before it)", message.count - 1) : "";
  spdlog::warn("{}: {}{}", device_->info().id, message.latest, others);
}

void Worker::Impl::Handle(const KernelNoted& message) {
  client_log_.GetWrite(spdlog::level::warn, message.session,
                       fmt::format("{}: {}", device_->info().id, message.text));
}

// ---- blocked device thread

DeviceWatch::Limits Worker::Impl::WatchLimits(const WorkerOptions& options) {
  std::chrono::nanoseconds longest = options.call_max;
  // A device call may have to wait for a kernel that runs up to its limit, so a call may last as
  // long as the longest limit.
  for (const auto& limit : options.settings.kernel_limits)
    longest = std::max(longest, limit.value_or(longest));
  return DeviceWatch::LimitsFor(longest, options.leaves_within);
}

void Worker::Impl::WatchDevice() {
  watch_timer_.expires_after(device_watch_.limits().interval);
  watch_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    switch (device_watch_.Poll(device_thread_->turn_steps())) {
      case DeviceWatch::Verdict::kFine:
        break;
      case DeviceWatch::Verdict::kEndKernels:
        ReportKernelsToEnd();
        break;
      case DeviceWatch::Verdict::kLost:
        LoseBlockedDevice(" and did not return after kernels were asked to end");
        break;
    }
    if (!is_lost()) WatchDevice();
  });
}

// Requests the end of all kernels that can be ended without the driver, because the worker cannot
// determine which one the driver is waiting for. Kernels with a limit have exceeded it, because the
// device thread has been blocked for longer than the longest limit.
void Worker::Impl::ReportKernelsToEnd() {
  if (!device_->ReportKernelsToEnd()) return LoseBlockedDevice("");
  spdlog::error(
      "{}: the device thread has been inside of one call of the driver for {}: kernels that can be "
      "ended without the driver are asked to end",
      device_->info().id, Seconds(device_watch_.blocked_for()));
}

void Worker::Impl::LoseBlockedDevice(const std::string& detail) {
  std::vector<std::string> suspects;
  for (const auto& [id, session] : sessions_) {
    if (std::optional<std::string> running = session->ShownRunning()) {
      suspects.push_back(*std::move(running));
    }
  }
  Handle(DeviceLost{DescribeDeviceLoss(
      device_->info().id,
      fmt::format("the device thread has been inside of one call of the driver for {}{}",
                  Seconds(device_watch_.blocked_for()), detail),
      suspects)});
}

void Worker::Impl::Handle(const DeviceLost& message) {
  if (is_lost()) return;  // A device thread that returned after all may report it, too.
  // This worker notifies connected clients, and the broker notifies later ones. The broker is
  // notified first, so that even a client that reconnects immediately gets the next worker. All
  // remaining resources end with this process.
  spdlog::critical("{}", message.status.message());
  exit_code_ = kWorkerLostDevice;
  SendToBroker(
      0, ipc::ChannelReply{.code = StatusCode::kDeviceLost, .text = message.status.message()});
  for (const auto& [id, session] : sessions_) {
    const std::string text = message.status.message() + " [" + session->who() + "]";
    session->End({StatusCode::kDeviceLost, text});
    SendToBroker(0, ipc::SessionEnded{.session = id, .status = {StatusCode::kDeviceLost, text}});
  }
  CheckDone();
}

}  // namespace gpushared::server
