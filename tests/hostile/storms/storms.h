// SPDX-License-Identifier: Apache-2.0
// The storms: acts of unprivileged clients that may harm others.

#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_STORMS_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_STORMS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "gpushared/client.h"

#include "tests/hostile/storms/board.h"

namespace gpushared::storms {

// An attacking process.
struct Attacker {
  std::string socket;
  std::uint32_t number = 0;  // Index among the attacking processes of the storm.
  Board& board;

  // Counts an attempt as completed or as rejected by the server. Pauses a moment after a rejection,
  // so that a storm does not turn into one of rejected requests, which is a separate storm.
  bool Did(const Status& status) const;
};

struct Storm {
  const char* name;
  const char* what;
  std::uint32_t processes = 1;
  std::uint32_t processes_per_user = 4;
  // Runs until the process is killed, or returns when it has finished.
  void (*attack)(const Attacker& attacker) = nullptr;
  // An additional client, of another user, that runs during the baseline and the control, but not
  // during the storm. For policies that guarantee the honest client only a part of the device: with
  // this neighbour the baseline has no more than that part either.
  void (*neighbour)(const Attacker& attacker) = nullptr;
  // Prepares the attackers' data once, before the server is measured, because the attackers' own
  // computation occupies cores, which no server can prevent.
  void (*prepare)() = nullptr;
  const char* policy = "priority";
  const char* staging_memory = "256MiB";  // For all clients together.
  SchedulingClass honest_class = SchedulingClass::kHigh;
  // Runs new clients under the server's own uid and in class high: for storms that take everything
  // that other users may have, so that new clients of other users are rightly rejected.
  bool new_clients_are_privileged = false;
};

// Returns all storms in the order in which they run.
std::span<const Storm> Storms();
// Returns null if the name is unknown.
const Storm* FindStorm(const std::string& name);

// ---- attacks_machine.cpp
void TakeCores(const Attacker& attacker);
// Uses only this part of one core, from 0 to 1.
void TakePartOfCore(const Attacker& attacker, double part);
// ---- attacks_loading.cpp
void MakeCostlyModules();
void LoadCostlyModules(const Attacker& attacker);
void LoadBombs(const Attacker& attacker);
void UnloadWithoutWaiting(const Attacker& attacker);
// ---- attacks_commands.cpp
void CopyStrided(const Attacker& attacker);
void FloodLaunches(const Attacker& attacker);
void FloodRejectedLaunches(const Attacker& attacker);
void FloodStreams(const Attacker& attacker);
void LaunchMegabyteNames(const Attacker& attacker);
void WaitInCrowds(const Attacker& attacker);
void RingDoorbell(const Attacker& attacker);
void PunchStagingBuffer(const Attacker& attacker);
void PunchLargeStagingBuffers(const Attacker& attacker);
void AskForStagingBuffersAndLeave(const Attacker& attacker);
// ---- attacks_connections.cpp
void ConnectSilently(const Attacker& attacker);
void ReportRejectedHellos(const Attacker& attacker);
void SendDescriptors(const Attacker& attacker);
void ConnectAndLeave(const Attacker& attacker);
void HoldSessions(const Attacker& attacker);
void HoldMemory(const Attacker& attacker);
// ---- attacks_kernels.cpp
void KeepDeviceBusy(const Attacker& attacker);
void ClaimWeight(const Attacker& attacker);
void RunEndless(const Attacker& attacker);
void TeachShortThenLong(const Attacker& attacker);
void MultiplyAndLeave(const Attacker& attacker);
void PrintLongStrings(const Attacker& attacker);
void PrintLines(const Attacker& attacker);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_STORMS_H_
