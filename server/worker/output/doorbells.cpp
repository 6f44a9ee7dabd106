// SPDX-License-Identifier: Apache-2.0
#include "server/worker/output/doorbells.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <system_error>

namespace gpushared::server {

namespace {

using std::chrono::nanoseconds;

// A client rings once for a command, and again after it has taken the completion, because that may
// have freed space. Hence each command adds two rings to the budget.
constexpr std::uint32_t kRingsPerCommand = 2, kRingsMax = kRingsPerCommand * kCommandsTakenLimit;
// Each ring beyond the budget doubles the pause that follows, unless the last pause ended long ago.
// The client's commands are delayed by at most the rest of a pause.
constexpr nanoseconds kPauseMin = std::chrono::milliseconds(1);
constexpr nanoseconds kPauseMax = std::chrono::milliseconds(64);
constexpr nanoseconds kForgottenAfter = std::chrono::seconds(1);

}  // namespace

Result<Doorbells> Doorbells::Create(int signal) {
  Doorbells doorbells(ipc::UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  if (!doorbells.epoll_.valid()) {
    return Status(StatusCode::kInternal, "no epoll instance for the device thread: " +
                                             std::generic_category().message(errno));
  }
  if (Status status = doorbells.Watch(signal, nullptr); !status.ok()) return status;
  return doorbells;
}

bool Doorbells::Set(int change, int fd, ClientState* client, bool is_heard) {
  epoll_event event{};
  // Edge-triggered, so that the counter need not be read: every write is an edge.
  event.events = (is_heard ? std::uint32_t{EPOLLIN} : 0) | EPOLLET;
  event.data.ptr = client;
  return ::epoll_ctl(epoll_.get(), change, fd, &event) == 0;
}

Status Doorbells::Watch(int fd, ClientState* client) {
  if (Set(EPOLL_CTL_ADD, fd, client, true)) return Status::Ok();
  return Status(StatusCode::kInternal,
                "a doorbell can't be watched: " + std::generic_category().message(errno));
}

Status Doorbells::Add(ClientState& client) {
  states_.Begin(client);
  return Watch(client.setup.doorbell, &client);
}

void Doorbells::Remove(const ClientState& client) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.setup.doorbell, nullptr);
}

std::optional<scheduler::TimePoint> Doorbells::Choose(std::span<ClientState* const> clients,
                                                      scheduler::TimePoint now) {
  std::optional<scheduler::TimePoint> first;
  for (ClientState* const client : clients) {
    if (client->life.is_leaving()) continue;  // Already removed.
    State& state = states_[*client];
    const bool may_take = client->MayTake(), is_heard = may_take && now >= state.heard_from;
    if (may_take && !is_heard) first = scheduler::Earlier(first, state.heard_from);
    if (state.is_heard == is_heard) continue;
    // If the kernel rejects the change, the doorbell keeps its state and the change is tried again.
    if (Set(EPOLL_CTL_MOD, client->setup.doorbell, client, is_heard)) {
      state.is_heard = state.may_report_old_ring = is_heard;
    }
  }
  return first;
}

void Doorbells::Wait(std::optional<nanoseconds> timeout) {
  const auto end = [this](int count) { count_ = static_cast<std::size_t>(std::max(count, 0)); };
  const int most = static_cast<int>(events_.size());
  if (!timeout) return end(::epoll_wait(epoll_.get(), events_.data(), most, -1));
  timespec wait{};
  wait.tv_sec = static_cast<time_t>(timeout->count() / 1'000'000'000);
  wait.tv_nsec = static_cast<long>(timeout->count() % 1'000'000'000);
  const int count = ::epoll_pwait2(epoll_.get(), events_.data(), most, &wait, nullptr);
  if (count >= 0 || errno != ENOSYS) return end(count);
  // Kernels before Linux 5.11 only support whole milliseconds. The timeout is rounded up, because
  // the thread would otherwise spin on short timeouts.
  const auto ms = (timeout->count() + 999'999) / 1'000'000;
  end(::epoll_wait(epoll_.get(), events_.data(), most,
                   static_cast<int>(std::min<std::int64_t>(ms, 1 << 30))));
}

void Doorbells::CountRings(scheduler::TimePoint now) {
  for (const epoll_event& event : std::span(events_).first(std::exchange(count_, 0))) {
    if (event.data.ptr == nullptr) continue;
    State& state = states_[*static_cast<const ClientState*>(event.data.ptr)];
    if (std::exchange(state.may_report_old_ring, false)) continue;
    if (state.rings_left > 0) {
      --state.rings_left;
      continue;
    }
    const bool is_forgotten = now - state.heard_from > kForgottenAfter;
    state.pause = is_forgotten ? kPauseMin : std::min(2 * state.pause, kPauseMax);
    state.heard_from = now + state.pause;
  }
}

void Doorbells::OnTaken(const ClientState& client, std::size_t commands) {
  std::uint32_t& left = states_[client].rings_left;
  left = static_cast<std::uint32_t>(
      std::min<std::size_t>(left + kRingsPerCommand * commands, kRingsMax));
}

}  // namespace gpushared::server
