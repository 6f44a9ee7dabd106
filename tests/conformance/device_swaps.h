// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_CONFORMANCE_DEVICE_SWAPS_H_
#define GPUSHARED_TESTS_CONFORMANCE_DEVICE_SWAPS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "server/device/memory_budget.h"
#include "server/device/reach.h"
#include "server/device/swap_store.h"
#include "tests/conformance/device_suite.h"

namespace gpushared::testing {

// Clients that together may hold twice the device, and a model of what is where.
class DeviceSwaps : public DeviceConformance {
 protected:
  static constexpr std::size_t kClients = 3;
  static constexpr std::uint64_t kQuotaSteps = 21;
  static constexpr std::uint64_t kDeviceSteps = kDeviceBytes / kMapPageBytes;

  struct Client {
    TestClient real;
    std::vector<std::uint32_t> words;  // By step: its first and its last word.
    std::vector<bool> is_out;          // By step.
    std::uint64_t out_steps() const {
      return static_cast<std::uint64_t>(std::ranges::count(is_out, true));
    }
    std::uint64_t resident() const { return words.size() - out_steps(); }
  };

  void Begin();
  void End();
  // One random thing that happens to one of them.
  void Act();
  void Come(Client& client);
  void Grow(Client& client, std::uint64_t steps);
  void Shrink(Client& client, std::uint64_t steps);
  void SwapOut(Client& client, std::uint64_t steps);
  void SwapIn(Client& client, std::uint64_t steps);
  // One that is there goes, or the other way round.
  void MoveStep(Client& client, std::uint64_t step);
  // Whether a work may touch the step now.
  static bool MayTouch(const Client& client, std::uint64_t step) { return !client.is_out[step]; }
  // A new value for a step, or a look at it.
  void Work(Client& client);
  void ExpectRight(Client& client, std::uint64_t step);
  void CheckAccounts();

  static constexpr std::uint64_t kFewSteps = 4;
  // A client with kernels. Each of its few steps begins with its number; steps 1 and 3 are away.
  TestClient ComeWithSomeAway();
  static device::Reach GetSteps(const TestClient& client,
                                std::initializer_list<std::uint64_t> steps);
  // Of a launch that writes to the third word of a step. It may touch the reach; null: everything.
  device::Completion WriteTo(const TestClient& client, std::uint64_t step, std::uint32_t value,
                             const device::Reach* reach);

  std::array<Client, kClients>& clients() { return clients_; }

 private:
  static constexpr std::uint64_t kStoreBytes = kClients * kQuotaSteps * kMapPageBytes;

  std::uint64_t Draw(std::uint64_t below) { return random_() % below; }
  std::uint64_t FreeSteps() const;

  std::mt19937_64 random_{1};
  std::shared_ptr<device::SwapStore> store_;
  std::array<Client, kClients> clients_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CONFORMANCE_DEVICE_SWAPS_H_
