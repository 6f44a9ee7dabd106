// SPDX-License-Identifier: Apache-2.0
// Storms of commands: rings filled by hand as fast as they are emptied.
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tests/hostile/storms/clients.h"
#include "tests/hostile/storms/storms.h"
#include "tests/support/raw_client.h"

namespace gpushared::storms {
namespace {

using namespace std::chrono_literals;
using gpushared::testing::RawClient;
using gpushared::testing::Sequence;

constexpr std::uint32_t kModule = 0, kKernel = 0;
constexpr std::uint32_t kStagingBufferBytes = 16u << 20;
constexpr std::uint64_t kMemoryBytes = 64u << 20;
constexpr char kHead[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

std::string Nothing() { return std::string(kHead) + ".visible .entry nothing()\n{\nret;\n}\n"; }

// Returns the PTX of a kernel that every device rejects, because it calls an undefined function,
// `calls` times.
std::string Rejected(std::size_t name_bytes, int calls) {
  const std::string name(name_bytes, 'x');
  std::string text =
      std::string(kHead) + ".extern .func " + name + "();\n.visible .entry rejected()\n{\n";
  for (int i = 0; i < calls; ++i) text += "call " + name + ";\n";
  return text + "ret;\n}\n";
}

std::optional<RawClient> Join(const Attacker& attacker, const std::string& module) {
  Result<RawClient> client = RawClient::Connect(attacker.socket);
  if (!attacker.Did(client.status())) return {};
  ipc::Hello hello;
  hello.name = "ring";
  if (!attacker.Did(client->Join(hello))) return {};
  if (!module.empty() && !attacker.Did(client->LoadModule(kModule, module).status())) return {};
  return *std::move(client);
}

bool AddMemory(const Attacker& attacker, RawClient& client, std::uint64_t staging_bytes) {
  return attacker.Did(client.Resize(kMemoryBytes).status()) &&
         attacker.Did(client.AddStagingBuffer(staging_bytes).status());
}

bool IsAlive(RawClient& client) {
  const Result<ipc::Frame> frame = client.NextFrame(0ms);
  // The server sends an unrequested frame only when it ends the session.
  return !frame.ok() && frame.status().code() == StatusCode::kTimedOut;
}

// Publishes the records of `fill` until the session ends. `fill` returns false if the ring was
// full.
template <typename Fill>
void FillRing(const Attacker& attacker, RawClient& client, Fill fill) {
  while (IsAlive(client)) {
    for (int i = 0; i < 4096; ++i) {
      if (fill()) {
        ++attacker.board.deeds;
      } else {
        client.Ring();
        std::this_thread::sleep_for(50us);
      }
      while (client.TakeCompletion()) {
      }
    }
    client.Ring();
  }
}

// ---- staging buffers

constexpr std::uint64_t kLargeStagingClients = 2;

// Returns the largest total size of staging buffers that kLargeStagingClients clients can each
// have.
std::uint64_t LargeStagingBytes(const RawClient& client) {
  const std::uint64_t most = client.welcome().staging_bytes_total_max / kLargeStagingClients;
  return most / ipc::kStagingBytesStep * ipc::kStagingBytesStep;
}

// Copies out of a staging buffer while another thread punches holes into it, until the session
// ends.
void PunchUntilEnd(const Attacker& attacker, RawClient& client, std::uint64_t bytes) {
  constexpr std::uint32_t kCopyBytes = 4u << 20;
  if (!AddMemory(attacker, client, bytes)) return;
  const int staging_buffer = client.staging_fd(0);
  std::jthread puncher([staging_buffer, bytes](const std::stop_token& stop) {
    while (!stop.stop_requested())
      (void)::fallocate(staging_buffer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(bytes));
  });
  const ipc::CopyRecord copy =
      testing::GetCopy(ipc::Op::kCopyToDevice, {.address = client.base(), .bytes = kCopyBytes});
  FillRing(attacker, client, [&] { return client.Publish(copy) != 0; });
}

// ---- many waiters

constexpr int kWaiterThreads = 1000;
constexpr int kWaitsPerThread = 100;  // At most FUTEX_WAITV_MAX, 128.

struct Sleepers {
  const std::atomic<std::uint32_t>* event;
};

// Thread that waits on one word a hundred times at once.
void* WaitOften(void* argument) {
  const Sleepers& crowd = *static_cast<const Sleepers*>(argument);
  for (;;) {
    const std::uint32_t seen = crowd.event->load(std::memory_order_relaxed);
    std::array<futex_waitv, kWaitsPerThread> waits{};
    for (futex_waitv& wait : waits) {
      wait.val = seen;
      wait.uaddr = reinterpret_cast<std::uint64_t>(crowd.event);
      wait.flags = FUTEX_32;
    }
    // A woken thread pauses before it waits again, because the crowd should cost the server
    // wake-ups, not occupy the cores.
    if (::syscall(SYS_futex_waitv, waits.data(), waits.size(), 0, nullptr, 0) >= 0)
      std::this_thread::sleep_for(20ms);
  }
  return nullptr;
}

// Starts up to kWaiterThreads threads, as far as the machine allows. `crowd` must outlive the
// process's threads.
int StartCrowd(Sleepers* crowd) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, 64 << 10);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  int started = 0;
  for (pthread_t thread; started < kWaiterThreads; ++started) {
    if (::pthread_create(&thread, &attributes, WaitOften, crowd) != 0) break;
  }
  ::pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace

void CopyStrided(const Attacker& attacker) {
  constexpr std::uint32_t kRows = 1u << 16;
  for (;;) {
    std::optional<RawClient> client = Join(attacker, "");
    if (!client || !AddMemory(attacker, *client, kStagingBufferBytes)) continue;
    ipc::CopyRecord copy =
        testing::GetCopy(ipc::Op::kCopyToDevice, {.address = client->base(), .bytes = 4});
    copy.height = kRows;
    copy.staging_pitch_bytes = kStagingBufferBytes / kRows;
    copy.device_pitch_bytes = kMemoryBytes / kRows;
    FillRing(attacker, *client, [&] { return client->Publish(copy) != 0; });
  }
}

void FloodLaunches(const Attacker& attacker) {
  for (;;) {
    std::optional<RawClient> client = Join(attacker, Nothing());
    if (!client) continue;
    const ipc::LaunchRecord launch = testing::GetLaunch(0, kModule, kKernel, {}, 0);
    FillRing(attacker, *client, [&] { return client->Publish(launch) != 0; });
  }
}

void FloodRejectedLaunches(const Attacker& attacker) {
  constexpr std::uint32_t kStreams = 250;
  for (;;) {
    std::optional<RawClient> client = Join(attacker, Rejected(10, 1));
    if (!client) continue;
    std::uint32_t stream = 0;
    FillRing(attacker, *client, [&] {
      stream = stream % kStreams + 1;
      return client->Publish(testing::GetPlain(ipc::Op::kCreateStream, stream)) != 0 &&
             client->Publish(testing::GetLaunch(stream, kModule, kKernel, {}, 0)) != 0 &&
             client->Publish(testing::GetPlain(ipc::Op::kDestroyStream, stream)) != 0;
    });
  }
}

void FloodStreams(const Attacker& attacker) {
  constexpr std::uint32_t kStreams = 250;
  for (;;) {
    std::optional<RawClient> client = Join(attacker, "");
    if (!client) continue;
    std::uint32_t stream = 0;
    FillRing(attacker, *client, [&] {
      stream = stream % kStreams + 1;
      return client->Publish(testing::GetPlain(ipc::Op::kCreateStream, stream)) != 0 &&
             client->Publish(testing::GetPlain(ipc::Op::kDestroyStream, stream)) != 0;
    });
  }
}

// Half of the attackers make stream after stream fail, and the server keeps the reason for each
// stream. The others queue rejected launches behind a launch of the largest grid, and the server
// may keep a reason for each launch.
void LaunchMegabyteNames(const Attacker& attacker) {
  constexpr std::uint32_t kStreams = 250, kNothing = 1;
  const std::string module =
      Rejected(std::size_t{1} << 20, 40) + ".visible .entry nothing()\n{\nret;\n}\n";
  for (;;) {
    std::optional<RawClient> client = Join(attacker, module);
    if (!client) continue;
    const bool queues = attacker.number % 2 == 1;
    if (queues) client->Launch(0, kModule, kNothing, {ipc::kGridXMax});
    std::uint32_t stream = 0;
    bool is_new = false;
    FillRing(attacker, *client, [&] {
      if (queues) return client->Publish(testing::GetLaunch(0, kModule, kKernel, {}, 0)) != 0;
      stream = stream % kStreams + 1;
      if (stream == 1) is_new = !is_new;
      if (!is_new) return client->Publish(testing::GetPlain(ipc::Op::kDestroyStream, stream)) != 0;
      return client->Publish(testing::GetPlain(ipc::Op::kCreateStream, stream)) != 0 &&
             client->Publish(testing::GetLaunch(stream, kModule, kKernel, {}, 0)) != 0;
    });
  }
}

void WaitInCrowds(const Attacker& attacker) {
  for (;;) {
    std::optional<RawClient> client = Join(attacker, Nothing());
    if (!client) continue;
    // Claims that a thread waits, because the server wakes waiters only if the client has set
    // `waiting`.
    client->commands().waiting = 1;
    static Sleepers crowd;
    if (crowd.event == nullptr) {
      crowd.event = &client->completions().event;
      const int threads = StartCrowd(&crowd);
      if (threads < kWaiterThreads)
        AddMessage(attacker.board.attacker_words,
                   std::to_string(threads) + " threads wait, no more");
    }
    while (IsAlive(*client)) {
      attacker.Did(client->Mark(0) != 0 ? Status()
                                        : Status(StatusCode::kLimitExceeded, "ring full"));
      while (client->TakeCompletion()) {
      }
      std::this_thread::sleep_for(10ms);
    }
    return;  // The crowd waits in memory of this session.
  }
}

void RingDoorbell(const Attacker& attacker) {
  constexpr std::uint64_t kOne = 1;
  for (;;) {
    std::optional<RawClient> client = Join(attacker, "");
    if (!client) continue;
    while (IsAlive(*client)) {
      for (int i = 0; i < 4096; ++i) {
        if (::write(client->doorbell(), &kOne, sizeof kOne) == sizeof kOne) ++attacker.board.deeds;
      }
    }
  }
}

void PunchStagingBuffer(const Attacker& attacker) {
  for (;;) {
    std::optional<RawClient> client = Join(attacker, "");
    if (client) PunchUntilEnd(attacker, *client, kStagingBufferBytes);
  }
}

// Each session ends soon and the client reconnects at once, so the server mainly allocates and
// frees large staging buffers.
void PunchLargeStagingBuffers(const Attacker& attacker) {
  for (;;) {
    std::optional<RawClient> client = Join(attacker, "");
    if (client) PunchUntilEnd(attacker, *client, LargeStagingBytes(*client));
  }
}

// The server notices that the client has left only after it has allocated the staging buffer, so
// the work is wasted.
void AskForStagingBuffersAndLeave(const Attacker& attacker) {
  for (;;) {
    std::optional<RawClient> client = Join(attacker, "");
    if (client) (void)attacker.Did(client->Send(ipc::AddStagingBuffer{LargeStagingBytes(*client)}));
  }
}

}  // namespace gpushared::storms
