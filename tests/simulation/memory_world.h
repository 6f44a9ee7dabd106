// SPDX-License-Identifier: Apache-2.0
// A device with oversubscribed memory, and an account of every byte.

#ifndef GPUSHARED_TESTS_SIMULATION_MEMORY_WORLD_H_
#define GPUSHARED_TESTS_SIMULATION_MEMORY_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "scheduler/residency.h"

namespace gpushared::testing {

// Drives scheduler::Residency as a worker would, with random events between a decision and its
// effect. Each page has unique contents, which a launch checks and changes. For some clients
// the access set of their next launch is known.
//
// Thread-compatible.
class MemoryWorld {
 public:
  struct Outcome {
    std::string broken;  // The violated rule; empty if all held.
    std::uint64_t launches = 0, moves = 0, deaths = 0, rejected = 0, rooms = 0, failures = 0;
    // Launches with a part of the client's memory in the swap store.
    std::uint64_t launches_by_page = 0;
    std::uint64_t beyond = 0;     // Launches of a client that held more than the device has.
    std::uint64_t own_swaps = 0;  // Swap-outs of a client for itself.
    std::uint64_t cuts = 0;
    std::uint64_t parked_out = 0;  // Swap-outs of parked clients.
    std::uint64_t wakes = 0;
    std::uint64_t quiet_swaps_in = 0;  // Swap-ins while the client is suspended.
  };

  explicit MemoryWorld(std::uint64_t seed);
  Outcome Run(std::uint64_t steps);

 private:
  static constexpr std::uint64_t kStepBytes = kMapPageBytes;
  static constexpr std::size_t kFrames = 64;  // Pages of the device.
  static constexpr std::uint64_t kZero = 0;

  struct Page {
    std::optional<std::size_t> frame;  // Page of the device; empty if in the swap store.
    std::optional<std::size_t> slot;
    std::uint64_t contents = kZero;  // Word written by the client.
  };
  struct Client {
    scheduler::MemoryGrant grant;
    std::vector<Page> pages;
    std::size_t resident = 0;  // Pages on the device.
    bool is_known = false;     // Whether the access sets of its launches are known.
    std::vector<bool> needed;  // If they are known: whether its next launch touches each page.
    std::size_t pinned = 0;
    std::size_t asked = 0;  // Pages of a pending memory request.
    bool is_busy = false;
    bool is_suspended = false;
    std::uint32_t on_device = 0;  // Commands on the device.
  };

  using ClientId = scheduler::ClientId;

  void Act();
  void Come();
  void Leave(scheduler::ClientId id);
  void Grow(scheduler::ClientId id, Client& client, std::size_t pages);
  void Shrink(scheduler::ClientId id, Client& client);
  void Pin(scheduler::ClientId id, Client& client);
  void Launch(scheduler::ClientId id, Client& client);
  void EndLaunch(scheduler::ClientId id, Client& client);
  void ParkOrWake(scheduler::ClientId id, const Client& client);
  void EndSwap();
  void Decide();
  void CarryOut(const scheduler::MemoryAction& action);
  void CheckAll();
  void ServeEverybody();
  void Break(const std::string& what);

  // Chooses the client's next launch.
  void Choose(ClientId id, Client& client);
  // Pages that the client may hold.
  std::size_t PagesMax(const Client& client) const {
    return client.is_known ? 3 * kFrames : kFrames;
  }
  // Advances time and carries out actions until `is_over` returns true, or fails after 60 s.
  void Await(const std::string& broken_otherwise, const std::function<bool()>& is_over);
  // Whether the next launch touches the page.
  static bool Needs(const Client& client, std::size_t page) {
    return !client.is_known || client.needed[page];
  }
  static std::size_t CountMissing(const Client& client);
  bool AddPages(Client& client, std::size_t pages);
  void DropPage(Client& client);
  bool SwapOutPage(Client& client);
  bool SwapInPage(Client& client);
  std::size_t FreeFrames() const { return free_frames_.size() - pinned_; }
  scheduler::MemoryUsage UsageFor(const Client& client) const;
  std::size_t Draw(std::size_t below) { return static_cast<std::size_t>(random_() % below); }

  std::mt19937_64 random_;
  const bool holds_for_in_;  // ResidencyOptions::suspends_for_swap_in.
  scheduler::Residency residency_;
  scheduler::TimePoint now_{std::chrono::seconds(1)};
  std::map<scheduler::ClientId, Client> clients_;
  std::vector<std::uint64_t> frames_ = std::vector<std::uint64_t>(kFrames, kZero);
  std::vector<std::size_t> free_frames_;
  std::vector<std::uint64_t> slots_;
  std::vector<std::size_t> free_slots_;
  std::size_t pinned_ = 0;
  std::optional<scheduler::MemoryAction> move_;  // The swap in progress.
  bool is_cut_ = false;                          // Whether the swap must end early.
  std::uint64_t next_id_ = 1, next_contents_ = 1;
  Outcome outcome_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SIMULATION_MEMORY_WORLD_H_
