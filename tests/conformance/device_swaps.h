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

// Clients that together may hold twice the device's memory, and a model of where each page is.
class DeviceSwaps : public DeviceConformance {
 protected:
  static constexpr std::size_t kClients = 3;
  static constexpr std::uint64_t kQuotaSteps = 21;
  static constexpr std::uint64_t kDeviceSteps = kDeviceBytes / kMapPageBytes;

  struct Client {
    TestClient real;
    std::vector<std::uint32_t> words;  // By page: the value of its first and of its last word.
    std::vector<bool> is_out;          // By page.
    std::uint64_t out_steps() const {
      return static_cast<std::uint64_t>(std::ranges::count(is_out, true));
    }
    std::uint64_t resident() const { return words.size() - out_steps(); }
  };

  void Begin();
  void End();
  // Performs a random event of a random client.
  void Act();
  void Come(Client& client);
  void Grow(Client& client, std::uint64_t steps);
  void Shrink(Client& client, std::uint64_t steps);
  void SwapOut(Client& client, std::uint64_t steps);
  void SwapIn(Client& client, std::uint64_t steps);
  // Swaps the page out if it is resident, and in otherwise.
  void MoveStep(Client& client, std::uint64_t step);
  // Returns whether work may access the page now.
  static bool MayTouch(const Client& client, std::uint64_t step) { return !client.is_out[step]; }
  // Writes a new value to a page, or checks its value.
  void Work(Client& client);
  void ExpectRight(Client& client, std::uint64_t step);
  void CheckAccounts();

  static constexpr std::uint64_t kFewSteps = 4;
  // Returns a client with kernels. Each of its few pages begins with its index; pages 1 and 3 are
  // swapped out.
  TestClient ComeWithSomeAway();
  static device::Reach GetSteps(const TestClient& client,
                                std::initializer_list<std::uint64_t> steps);
  // Launches a write to the third word of a page, and returns the completion. `reach` is the access
  // set of the launch; null: all memory.
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
