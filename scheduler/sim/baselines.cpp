// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/baselines.h"

#include <algorithm>
#include <utility>

namespace gpushared::simulation {

using scheduler::SchedulingClass;

namespace {

// Orion's DUR_THRESHOLD, which its authors choose per workload.
constexpr scheduler::Duration kOrionLowTimeMax = std::chrono::microseconds(250);

}  // namespace

void NativeFront::AddClient(const scheduler::ClientSpec& spec, TimePoint) {
  const bool is_first = high_first_ && spec.scheduling_class == SchedulingClass::kHigh;
  clients_.push_back({.priority = static_cast<std::uint8_t>(is_first ? 1 : 0)});
}

void NativeFront::Enqueue(const Launch& launch, TimePoint now) {
  Client& client = clients_[launch.client];
  client.thread_free = std::max(client.thread_free, now) + CallFor(launch.kernel, options_.costs);
  device_.Submit({.id = launch.id,
                  .stream = launch.client,
                  .kernel = launch.kernel,
                  .priority = client.priority},
                 client.thread_free);
}

void GapFront::AddClient(const scheduler::ClientSpec& spec, TimePoint) {
  Client client;
  client.is_high = spec.scheduling_class == SchedulingClass::kHigh;
  clients_.push_back(std::move(client));
}

void GapFront::Enqueue(const Launch& launch, TimePoint) {
  client_of_[launch.id] = launch.client;
  clients_[launch.client].waiting.push_back({.launch = launch});
}

bool GapFront::OnFinished(const Finished& finished, TimePoint) {
  const auto found = client_of_.find(finished.id);
  Client& client = clients_[found->second];
  Item item = client.in_flight.front();
  client.in_flight.pop_front();
  if (finished.blocks_done < item.launch.kernel.blocks) {
    item.blocks_done = finished.blocks_done;
    item.stop_asked = false;
    client.waiting.push_front(item);
    return false;
  }
  client_of_.erase(found);
  return true;
}

bool GapFront::IsHighBusy() const {
  return std::any_of(clients_.begin(), clients_.end(), [](const Client& client) {
    return client.is_high && !(client.waiting.empty() && client.in_flight.empty());
  });
}

void GapFront::Act(TimePoint now) {
  for (std::size_t number = 0; number < clients_.size(); ++number) {
    while (clients_[number].is_high && !clients_[number].waiting.empty()) Submit(number, now);
  }
  const bool is_high_busy = IsHighBusy();
  if (is_high_busy) {
    idle_since_.reset();
  } else if (!idle_since_) {
    idle_since_ = now;
  }
  wake_at_.reset();
  if (idle_since_ && now < *idle_since_ + rules_.idle_least)
    wake_at_ = *idle_since_ + rules_.idle_least;
  for (std::size_t number = 0; number < clients_.size(); ++number) {
    Client& client = clients_[number];
    if (client.is_high) continue;
    if (!is_high_busy && !wake_at_) {
      while (!client.waiting.empty() && client.in_flight.size() < rules_.low_in_flight_max)
        Submit(number, now);
    } else if (is_high_busy && rules_.stops_blocks) {
      for (Item& item : client.in_flight) {
        if (!std::exchange(item.stop_asked, true)) device_.RequestStop(item.launch.id, now);
      }
    }
  }
}

void GapFront::Submit(std::size_t number, TimePoint now) {
  Client& client = clients_[number];
  const Item& item = client.waiting.front();
  client.thread_free = std::max(client.thread_free, now) + options_.costs.launch_call;
  Work work{.id = item.launch.id,
            .stream = number,
            .kernel = item.launch.kernel,
            .first_block = item.blocks_done,
            .priority = static_cast<std::uint8_t>(client.is_high ? 1 : 0)};
  if (!client.is_high && rules_.stops_blocks && !IsCopy(work.kernel) &&
      !work.kernel.is_nonpreemptible) {
    work.stoppable = true;
    const double block_ns = static_cast<double>(work.kernel.block_time.count()) * rules_.low_cost;
    work.kernel.block_time = Duration(static_cast<Duration::rep>(block_ns));
  }
  device_.Submit(work, client.thread_free);
  client.in_flight.push_back(item);
  client.waiting.pop_front();
}

void OrionFront::AddClient(const scheduler::ClientSpec& spec, TimePoint) {
  Client client;
  client.is_high = spec.scheduling_class == SchedulingClass::kHigh;
  clients_.push_back(std::move(client));
}

void OrionFront::Enqueue(const Launch& launch, TimePoint) {
  client_of_[launch.id] = launch.client;
  clients_[launch.client].waiting.push_back(launch);
}

bool OrionFront::OnFinished(const Finished& finished, TimePoint) {
  const auto found = client_of_.find(finished.id);
  Client& client = clients_[found->second];
  const Launch& ended = client.in_flight.front();
  if (!client.is_high && !IsCopy(ended.kernel)) {
    low_blocks_ -= ended.kernel.blocks;
    low_time_ -= SoloTime(ended.kernel, options_.multiprocessors);
  }
  client.in_flight.pop_front();
  client_of_.erase(found);
  return true;
}

bool OrionFront::Admits(const Launch& low) const {
  if (IsCopy(low.kernel)) return true;
  for (const Client& client : clients_) {
    if (!client.is_high || client.in_flight.empty()) continue;
    const Kernel::Kind high = client.in_flight.front().kernel.kind;
    if (high == low.kernel.kind && high != Kernel::Kind::kUnknown) return false;
    if (low_blocks_ + low.kernel.blocks > options_.multiprocessors) return false;
  }
  return low_time_ <= kOrionLowTimeMax;
}

void OrionFront::Act(TimePoint now) {
  for (Client& client : clients_) {
    while (client.is_high && !client.waiting.empty()) Submit(client, now);
  }
  for (Client& client : clients_) {
    while (!client.is_high && !client.waiting.empty() && Admits(client.waiting.front()))
      Submit(client, now);
  }
}

void OrionFront::Submit(Client& client, TimePoint now) {
  const Launch launch = client.waiting.front();
  client.waiting.pop_front();
  client.in_flight.push_back(launch);
  if (!client.is_high && !IsCopy(launch.kernel)) {
    low_blocks_ += launch.kernel.blocks;
    low_time_ += SoloTime(launch.kernel, options_.multiprocessors);
  }
  client.thread_free = std::max(client.thread_free, now) + options_.costs.launch_call;
  device_.Submit({.id = launch.id,
                  .stream = launch.client,
                  .kernel = launch.kernel,
                  .priority = static_cast<std::uint8_t>(client.is_high ? 1 : 0)},
                 client.thread_free);
}

}  // namespace gpushared::simulation
