// SPDX-License-Identifier: Apache-2.0
// The victims of a storm: a client with a steady load, and a sequence of new clients.

#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_CLIENTS_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_CLIENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpushared/client.h"

#include "tests/hostile/storms/board.h"

namespace gpushared::storms {

// Nanoseconds between two requests of the honest client, and the device time of each request: a
// load of 0.3.
inline constexpr std::int64_t kRequestPeriodNs = 10'000'000;
inline constexpr std::int64_t kServiceNs = 3'000'000;
// Nanoseconds between two new clients.
inline constexpr std::int64_t kNewClientPeriodNs = 100'000'000;
// Maximum number of new clients in progress; further ones are skipped and counted.
inline constexpr int kNewClientsAtOnce = 24;

struct ClientPlan {
  std::string socket;
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
};

// Returns when the `index`-th request arrives: in steady periods with a small deterministic jitter.
std::int64_t ArrivalNs(std::int64_t first_arrival_ns, std::size_t index);

// Answers the requests that arrive at the times of ArrivalNs, one after another. After a failure,
// reconnects and repeats the request. Does not return.
[[noreturn]] void BeHonest(const ClientPlan& plan, Board& board);

// Every kNewClientPeriodNs starts a client that connects, loads a small module, runs it and reads
// the result. Does not return.
[[noreturn]] void SendNewClients(const ClientPlan& plan, Board& board);

// Stores the message if it is the first one.
void AddMessage(FirstWords& words, const std::string& message);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_CLIENTS_H_
