// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/activity_meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace gpushared::server {

namespace {

using scheduler::SchedulingClass;

constexpr scheduler::Duration kWindow = std::chrono::seconds(1);
constexpr double kClassNsMin = 250e6;

}  // namespace

void ActivityMeter::Begin(ClientActivity& client, const scheduler::ClientSpec& spec,
                          scheduler::TimePoint now) {
  client.of_class = spec.scheduling_class;
  client.weight = spec.weight;
  client.since = client.window_begin = now;
  client.group = GroupFor(spec.group);
  Group& group = groups_[client.group];
  if (group.clients++ == 0) group = {.number = spec.group, .clients = 1};
  *std::ranges::find(clients_, nullptr) = &client;
  Reweigh(client.group);
}

void ActivityMeter::End(ClientActivity& client, scheduler::TimePoint now) {
  Set(client, Phase::kAway, now);
  --groups_[client.group].clients;
  *std::ranges::find(clients_, &client) = nullptr;
  Reweigh(client.group);
}

void ActivityMeter::OnChanged(ClientActivity& client, const scheduler::ClientSpec& spec,
                              scheduler::TimePoint now) {
  const Phase phase = client.phase;
  Set(client, Phase::kAway, now);
  client.of_class = spec.scheduling_class;
  client.weight = spec.weight;
  Reweigh(client.group);
  // A new window begins, because what was due under the old weight does not apply to the new one.
  client.window_begin = now;
  client.received_ns = client.due_ns = client.class_ns = 0;
  Set(client, phase, now);
}

std::size_t ActivityMeter::GroupFor(std::optional<std::uint64_t> number) const {
  const auto same = [&](const Group& group) {
    return number && group.clients > 0 && group.number == number;
  };
  auto found = std::ranges::find_if(groups_, same);
  if (found == groups_.end()) found = std::ranges::find(groups_, std::size_t{0}, &Group::clients);
  return static_cast<std::size_t>(found - groups_.begin());
}

void ActivityMeter::Reweigh(std::size_t group) {
  std::array<std::uint32_t, scheduler::kSchedulingClasses> heaviest{};
  for (const ClientActivity* const client : clients_) {
    if (client == nullptr || client->group != group) continue;
    std::uint32_t& weight = heaviest[GetIndex(*client)];
    weight = std::max(weight, client->weight);
  }
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    Share& share = groups_[group].shares[i];
    if (heaviest[i] == 0 || heaviest[i] == share.weight) continue;
    Settle(share, levels_[i]);
    if (share.active_weight > 0) {
      levels_[i].active_weight -= share.weight;
      levels_[i].active_weight += heaviest[i];
    }
    share.weight = heaviest[i];
  }
}

void ActivityMeter::Settle(Share& share, const Level& level) {
  if (share.active_weight > 0) {
    share.virtual_ns += (level.virtual_ns - share.settled_at) * share.weight /
                        static_cast<double>(share.active_weight);
  }
  share.settled_at = level.virtual_ns;
}

void ActivityMeter::Set(ClientActivity& client, Phase phase, scheduler::TimePoint now) {
  if (client.phase == phase) return;
  CountGap(now);
  const bool is_starved = client.StarvedFor(now) > scheduler::Duration::zero();
  const scheduler::Duration spent = now - client.since;
  if (client.phase == Phase::kWaiting) client.waited += spent;
  if (client.phase == Phase::kOnDevice) client.on_device += spent;
  const Phase before = std::exchange(client.phase, phase);
  client.since = now;
  if (!is_starved) {
    client.waited_before = client.waited;
    client.on_device_before = client.on_device;
  }
  if (client.of_class != SchedulingClass::kHigh) {
    if (before == Phase::kOnDevice) --others_on_device_;
    if (phase == Phase::kOnDevice) ++others_on_device_;
  }
  // Most changes are between the phases of an active client and do not affect its share.
  if (IsActive(before) == IsActive(phase)) return;
  if (IsActive(before)) {
    Earn(client);
    Count(client, -1);
  } else {
    Count(client, 1);
    client.virtual_since = ShareFor(client).virtual_ns;
    client.charged_since = GetLevel(client).charged_ns;
  }
}

void ActivityMeter::Count(const ClientActivity& client, int sign) {
  Level& level = GetLevel(client);
  Share& share = ShareFor(client);
  Settle(share, level);
  if (share.active_weight > 0) level.active_weight -= share.weight;
  share.active_weight += static_cast<std::uint64_t>(std::int64_t{sign} * client.weight);
  if (share.active_weight > 0) level.active_weight += share.weight;
  const bool is_high = client.of_class == SchedulingClass::kHigh;
  (is_high ? high_active_ : others_active_) += static_cast<std::uint32_t>(sign);
}

void ActivityMeter::CountGap(scheduler::TimePoint now) {
  if (high_active_ == 0 && others_active_ > 0) {
    gaps_.wanted += now - counted_until_;
    if (others_on_device_ > 0) gaps_.used += now - counted_until_;
  }
  counted_until_ = now;
}

void ActivityMeter::OnCharged(ClientActivity& client, scheduler::Duration charged,
                              scheduler::TimePoint now) {
  Level& level = GetLevel(client);
  const auto ns = static_cast<double>(charged.count());
  level.charged_ns += ns;
  if (level.active_weight > 0) level.virtual_ns += ns / static_cast<double>(level.active_weight);
  client.received_ns += ns;
  Refresh(client, now);
}

void ActivityMeter::Earn(ClientActivity& client) {
  const Level& level = GetLevel(client);
  Share& share = ShareFor(client);
  Settle(share, level);
  client.due_ns += (share.virtual_ns - client.virtual_since) * client.weight;
  client.class_ns += level.charged_ns - client.charged_since;
  client.virtual_since = share.virtual_ns;
  client.charged_since = level.charged_ns;
}

void ActivityMeter::Refresh(ClientActivity& client, scheduler::TimePoint now) {
  if (now - client.window_begin < kWindow) return;
  if (IsActive(client.phase)) Earn(client);
  if (client.class_ns < kClassNsMin) return;
  client.share_error = 100.0 * (client.received_ns - client.due_ns) / client.class_ns;
  if (std::abs(client.share_error) > std::abs(client.share_error_worst)) {
    client.share_error_worst = client.share_error;
  }
  ++client.windows;
  client.window_begin = now;
  client.received_ns = client.due_ns = client.class_ns = 0;
}

}  // namespace gpushared::server
