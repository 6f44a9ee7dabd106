// SPDX-License-Identifier: Apache-2.0
// Who suffers in a storm: a client with a steady load, and those who come anew all the time.

#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_CLIENTS_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_CLIENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpushared/client.h"

#include "tests/hostile/storms/board.h"

namespace gpushared::storms {

// Nanoseconds between two requests of the honest client, and for how long its requests are to
// hold the device: a load of 0.3.
inline constexpr std::int64_t kRequestPeriodNs = 10'000'000;
inline constexpr std::int64_t kServiceNs = 3'000'000;
// Nanoseconds between two new clients.
inline constexpr std::int64_t kNewClientPeriodNs = 100'000'000;
// New clients that are under way at one time; further ones are left out and counted.
inline constexpr int kNewClientsAtOnce = 24;

struct ClientPlan {
  std::string socket;
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
};

// When the `index`-th request arrives: in steady periods, each a bit off, always the same.
std::int64_t ArrivalNs(std::int64_t first_arrival_ns, std::size_t index);

// Answers request after request, whatever became of those before; connects anew where its
// session ends. Does not return.
[[noreturn]] void BeHonest(const ClientPlan& plan, Board& board);

// Every kNewClientPeriodNs somebody connects, loads a small module, runs it and reads the result.
// Does not return.
[[noreturn]] void SendNewClients(const ClientPlan& plan, Board& board);

// Leaves a sentence, if it is the first.
void AddSentence(FirstWords& words, const std::string& sentence);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_CLIENTS_H_
