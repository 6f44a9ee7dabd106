// SPDX-License-Identifier: Apache-2.0
// The data plane alone: round trips and one-way rate of the ring between two processes, the
// client's cost of submission and the worker's cost of validation.
//
//   ring_bench [--json FILE]
//
// Both processes spin on the rings and are pinned to different cores if there are two, so the
// figures apply to two ends that are awake.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpushared/check.h"

#include "ipc/doorbell.h"
#include "ipc/shared_segment.h"
#include "ipc/tag_ring.h"
#include "ipc/wire/validate.h"
#include "tests/bench/report.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;
using ipc::SharedSegment;

constexpr int kRounds = 8;
constexpr auto kBurst = std::chrono::milliseconds(60);

enum class Kind : std::uint64_t { kEcho = 1, kOneWay = 2, kStop = 3 };

struct Message {
  ipc::RecordHeader header;
  Kind kind = Kind::kEcho;
  std::array<std::uint64_t, 5> filler{};
};
static_assert(sizeof(Message) == ipc::kGranuleBytes);

// Spins; without a second core, lets the other process run now and then.
template <typename Ready>
void SpinUntil(Ready ready) {
  for (unsigned turns = 0; !ready();) {
    if (++turns % 20'000 == 0) ::sched_yield();
  }
}

SharedSegment MakeMemory(std::size_t bytes) {
  Result<SharedSegment> made =
      SharedSegment::Create({.name = "bench", .bytes = ipc::WholePages(bytes)});
  Check(made.ok(), "memory for the benchmark");
  return std::move(*made);
}

SharedSegment MapAgain(const SharedSegment& memory) {
  Result<SharedSegment> mapped =
      SharedSegment::Map(ipc::UniqueFd(::dup(memory.fd())),
                         {.bytes = memory.size(), .access = SharedSegment::Access::kReadWrite});
  Check(mapped.ok(), "memory of the benchmark, in the child");
  return std::move(*mapped);
}

struct TagRingMemory {
  alignas(ipc::kWriterSeparationBytes) std::atomic<std::uint64_t> taken;
  alignas(ipc::kWriterSeparationBytes) std::array<ipc::Granule, ipc::kCommandGranules> granules;
};

// An end of a two-way connection between two processes.
class End {
 public:
  End(SharedSegment out, SharedSegment in)
      : out_(std::move(out)),
        in_(std::move(in)),
        writer_(out_.As<TagRingMemory>().granules, out_.As<TagRingMemory>().taken),
        reader_(in_.As<TagRingMemory>().granules, in_.As<TagRingMemory>().taken),
        doorbell_(awake_, -1) {}

  void Send(const Message& message) {
    SpinUntil([&] { return writer_.TryWrite(message) == ipc::WriteResult::kWritten; });
    doorbell_.Ring();  // The full memory barrier and the check of the sleeping word are part of the
                       // cost.
  }
  void Receive(Message& message) {
    SpinUntil([&] { return reader_.TryRead(copy_) == ipc::ReadResult::kRecord; });
    message = copy_.As<Message>();
  }

 private:
  SharedSegment out_, in_;
  ipc::WorkerPage awake_{};
  ipc::TagRingWriter writer_;
  ipc::TagRingReader reader_;
  ipc::ClientDoorbell doorbell_;
  ipc::RecordCopy copy_;
};

// ---- measuring

// Returns the cores that the process could use at the start. Queried once, before any thread is
// pinned, because a child inherits the single core to which its parent is pinned.
const cpu_set_t& UsableCores() {
  static const cpu_set_t usable = [] {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    Check(::sched_getaffinity(0, sizeof cores, &cores) == 0, "asking for the usable cores");
    return cores;
  }();
  return usable;
}

// Pins this thread to the usable core with the index `which`, counted from 0. Does nothing if fewer
// than two cores are usable.
void PinTo(unsigned which) {
  if (CPU_COUNT(&UsableCores()) < 2) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &UsableCores()) || which-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    Check(::sched_setaffinity(0, sizeof one, &one) == 0, "pinning to one core");
    return;
  }
}

[[noreturn]] void Echo(End& end) {
  PinTo(1);
  for (Message message;;) {
    end.Receive(message);
    if (message.kind == Kind::kEcho) end.Send(message);
    if (message.kind == Kind::kStop) ::_exit(0);
  }
}

void RoundTripBurst(End& ring, Samples& round_trips) {
  Message message;
  for (const auto end = Clock::now() + kBurst;;) {
    const auto start = Clock::now();
    ring.Send(message);
    ring.Receive(message);
    const auto now = Clock::now();
    round_trips.Add(std::chrono::nanoseconds(now - start));
    if (now > end) return;
  }
}

// Returns millions of messages per second.
double OneWayBurst(End& ring) {
  Message message;
  message.kind = Kind::kOneWay;
  std::uint64_t sent = 0;
  const auto start = Clock::now();
  while (Clock::now() < start + kBurst) {
    for (int i = 0; i < 64; ++i) ring.Send(message);
    sent += 64;
  }
  // The echo arrives only when the other side has read the whole burst.
  message.kind = Kind::kEcho;
  ring.Send(message);
  ring.Receive(message);
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  return static_cast<double>(sent) / took.count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Measures the cost of a launch with 40 bytes of parameters to the submitting thread, while the
// ring has space and is not being read, so that no other core's cache is involved.
Samples SubmitCost() {
  const auto ring = std::make_unique<TagRingMemory>();
  ipc::TagRingWriter writer(ring->granules, ring->taken);
  ipc::TagRingReader reader(ring->granules, ring->taken);
  const ipc::WorkerPage awake{};
  ipc::ClientDoorbell doorbell(awake, -1);
  const auto copy = std::make_unique<ipc::RecordCopy>();
  const std::array<std::byte, 40> parameters{};
  ipc::LaunchRecord record;
  record.parameter_bytes = parameters.size();
  Samples samples;
  constexpr int kBatch = 256;
  for (int round = 0; round < 4'000; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kBatch; ++i) {
      ++record.header.sequence;
      Check(writer.TryWrite(record, parameters) == ipc::WriteResult::kWritten, "space in the ring");
      doorbell.Ring();
    }
    samples.Add(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kBatch);
    while (reader.TryRead(*copy) == ipc::ReadResult::kRecord) {
    }
  }
  return samples;
}

Samples ValidateCost() {
  const auto copy = std::make_unique<ipc::RecordCopy>();
  ipc::LaunchRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kLaunch);
  record.header.continuations = 1;
  record.header.sequence = 1;
  record.parameter_bytes = 40;
  for (int i = 0; i < 3; ++i) {
    record.grid[i] = 1;
    record.block[i] = 1;
  }
  std::memcpy(copy->head.data(), &record, sizeof record);
  ipc::Command command;
  Samples samples;
  constexpr int kBatch = 256;
  for (int round = 0; round < 4'000; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kBatch; ++i) {
      Check(ipc::ValidateCommand(*copy, command).ok(), "the record is good");
      asm volatile("" ::"r"(&command) : "memory");
    }
    samples.Add(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kBatch);
  }
  return samples;
}

void MeasureRing(Report& report) {
  PinTo(0);
  Samples round_trips;
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    // Created for each round, because both ends of a ring begin at position zero.
    const SharedSegment forth = MakeMemory(sizeof(TagRingMemory));
    const SharedSegment back = MakeMemory(sizeof(TagRingMemory));
    const pid_t echo = ::fork();
    Check(echo >= 0, "fork");
    if (echo == 0) {
      End theirs(MapAgain(back), MapAgain(forth));
      Echo(theirs);
    }
    End ours(MapAgain(forth), MapAgain(back));
    RoundTripBurst(ours, round_trips);
    rates.push_back(OneWayBurst(ours));
    Message stop;
    stop.kind = Kind::kStop;
    ours.Send(stop);
    ::waitpid(echo, nullptr, 0);
  }
  report.Add("round trip of 64 bytes", round_trips);
  report.AddValue("one way, 64 bytes", Median(rates), "M/s");
  report.Add("submit a launch with 40 bytes of parameters, per call", SubmitCost());
  report.Add("validate that launch", ValidateCost());
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  return RunReport(argc, argv, "ring_bench: the ring between two processes", MeasureRing);
}
