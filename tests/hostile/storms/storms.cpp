// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/storms.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "tests/hostile/storms/clients.h"

namespace gpushared::storms {
namespace {

constexpr auto kStorms = std::to_array<Storm>({
    {.name = "calm", .what = "nobody attacks", .processes = 0},
    {.name = "busy",
     .what = "4 processes that take cores and ask nothing of the server",
     .processes = 4,
     .attack = TakeCores},
    {.name = "busy_60", .what = "60 such processes", .processes = 60, .attack = TakeCores},
    {.name = "loads_1",
     .what = "costly modules, 1 client",
     .attack = LoadCostlyModules,
     .prepare = MakeCostlyModules},
    {.name = "loads_8",
     .what = "costly modules, 8 clients",
     .processes = 8,
     .attack = LoadCostlyModules,
     .prepare = MakeCostlyModules},
    {.name = "loads_60",
     .what = "costly modules, 60 clients",
     .processes = 60,
     .attack = LoadCostlyModules,
     .prepare = MakeCostlyModules},
    {.name = "bombs",
     .what = "small modules that decode to 60 MiB",
     .processes = 4,
     .attack = LoadBombs},
    {.name = "unloads",
     .what = "modules loaded, and unloaded without a wait",
     .processes = 4,
     .attack = UnloadWithoutWaiting},
    {.name = "strided", .what = "copies of 4 bytes per row", .processes = 8, .attack = CopyStrided},
    {.name = "launches",
     .what = "rings full of launches of nothing",
     .processes = 4,
     .attack = FloodLaunches},
    {.name = "rejected",
     .what = "rings full of rejected launches, streams made anew",
     .processes = 4,
     .attack = FloodRejectedLaunches},
    {.name = "streams",
     .what = "rings full of streams made and destroyed",
     .processes = 4,
     .attack = FloodStreams},
    {.name = "names",
     .what = "rejected launches whose reason names a megabyte, 40 times",
     .processes = 2,
     .attack = LaunchMegabyteNames},
    {.name = "waiters",
     .what = "100,000 waiters on a completion word",
     .processes = 1,
     .attack = WaitInCrowds},
    {.name = "bells",
     .what = "doorbells rung without a command",
     .processes = 4,
     .attack = RingDoorbell},
    {.name = "punching",
     .what = "copies out of a staging buffer that is being punched",
     .processes = 2,
     .attack = PunchStagingBuffer},
    {.name = "large_staging_buffers",
     .what = "staging buffers as large as they can be, punched, their clients come back at once",
     .processes = 2,
     .attack = PunchLargeStagingBuffers,
     .staging_memory = "1GiB"},
    {.name = "left_staging_buffers",
     .what = "such staging buffers asked for by clients that leave at once",
     .processes = 2,
     .attack = AskForStagingBuffersAndLeave,
     .staging_memory = "1GiB"},
    {.name = "silent",
     .what = "4 users hold as many silent connections as they get",
     .processes = 4,
     .processes_per_user = 1,
     .attack = ConnectSilently},
    {.name = "hellos",
     .what = "hellos that are rejected",
     .processes = 2,
     .attack = ReportRejectedHellos},
    {.name = "descriptors",
     .what = "hellos with 256 MiB in a descriptor",
     .processes = 2,
     .attack = SendDescriptors},
    {.name = "churn",
     .what = "sessions that come and go",
     .processes = 4,
     .attack = ConnectAndLeave},
    {.name = "places",
     .what = "2 users hold as many sessions as they get",
     .processes = 2,
     .processes_per_user = 1,
     .attack = HoldSessions,
     .new_clients_are_privileged = true},
    {.name = "memory",
     .what = "a low client holds as much memory as it gets",
     .attack = HoldMemory,
     .new_clients_are_privileged = true},
    {.name = "weights",
     .what = "8 clients of one user, weight 1000 where allowed, under fair",
     .processes = 8,
     .processes_per_user = 8,
     .attack = ClaimWeight,
     .neighbour = KeepDeviceBusy,
     .policy = "fair",
     .honest_class = SchedulingClass::kNormal},
    {.name = "endless", .what = "a low kernel without end", .attack = RunEndless},
    {.name = "taught",
     .what = "blocks of 20 us, then of 9 ms",
     .processes = 2,
     .attack = TeachShortThenLong},
    {.name = "matrices",
     .what = "loops of matrix products whose client leaves",
     .processes = 2,
     .attack = MultiplyAndLeave},
    {.name = "strings",
     .what = "printf of 1,000 strings of 1 MiB each",
     .attack = PrintLongStrings},
    {.name = "prints", .what = "kernels that print lines", .processes = 2, .attack = PrintLines},
});

}  // namespace

bool Attacker::Did(const Status& status) const {
  if (status.ok()) {
    ++board.deeds;
    return true;
  }
  ++board.rejected_deeds;
  AddMessage(board.attacker_words, status.ToString());
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return false;
}

std::span<const Storm> Storms() { return kStorms; }

const Storm* FindStorm(const std::string& name) {
  const auto found = std::ranges::find_if(kStorms, [&](const Storm& s) { return s.name == name; });
  return found == kStorms.end() ? nullptr : &*found;
}

}  // namespace gpushared::storms
