// SPDX-License-Identifier: Apache-2.0
// The data plane alone: round trips and one-way rate of our ring between two processes, compared
// with other carriers of 64-byte messages in the same run. The carriers alternate, because a
// machine's speed drifts. The client's cost of submission and the worker's cost of validation are
// measured as well.
//
//   ring_bench [--json FILE]
//
// Both processes spin on the rings and are pinned to different cores if there are two. The figures
// of the rings therefore apply to two ends that are awake, whereas a reader of the message queue or
// of the socket sleeps until it is woken.
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/interprocess/ipc/message_queue.hpp>

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

// An end of a two-way connection between two processes.
class End {
 public:
  virtual ~End() = default;
  virtual void Send(const Message& message) = 0;
  virtual void Receive(Message& message) = 0;
};

// Creates both ends; the child calls `theirs` after the fork.
struct Transport {
  std::string name;
  std::function<std::unique_ptr<End>()> ours, theirs;
};

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

// ---- our ring

struct TagRingMemory {
  alignas(ipc::kWriterSeparationBytes) std::atomic<std::uint64_t> taken;
  alignas(ipc::kWriterSeparationBytes) std::array<ipc::Granule, ipc::kCommandGranules> granules;
};

class TagRingEnd : public End {
 public:
  TagRingEnd(SharedSegment out, SharedSegment in)
      : out_(std::move(out)),
        in_(std::move(in)),
        writer_(out_.As<TagRingMemory>().granules, out_.As<TagRingMemory>().taken),
        reader_(in_.As<TagRingMemory>().granules, in_.As<TagRingMemory>().taken),
        doorbell_(awake_, -1) {}

  void Send(const Message& message) override {
    SpinUntil([&] { return writer_.TryWrite(message) == ipc::WriteResult::kWritten; });
    doorbell_.Ring();  // The full memory barrier and the check of the sleeping word are part of the
                       // cost.
  }
  void Receive(Message& message) override {
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

Transport TagRing() {
  auto forth = std::make_shared<SharedSegment>(MakeMemory(sizeof(TagRingMemory)));
  auto back = std::make_shared<SharedSegment>(MakeMemory(sizeof(TagRingMemory)));
  return {"tag ring (ours)",
          [=] { return std::make_unique<TagRingEnd>(MapAgain(*forth), MapAgain(*back)); },
          [=] { return std::make_unique<TagRingEnd>(MapAgain(*back), MapAgain(*forth)); }};
}

// ---- the usual ring: shared head and tail in separate cache lines, each end caching the other's

struct IndexRingMemory {
  static constexpr std::uint64_t kSlots = ipc::kCommandGranules;
  alignas(ipc::kWriterSeparationBytes) std::atomic<std::uint64_t> head;
  alignas(ipc::kWriterSeparationBytes) std::atomic<std::uint64_t> tail;
  alignas(ipc::kWriterSeparationBytes) std::array<Message, kSlots> slots;
};

class IndexRingEnd : public End {
 public:
  IndexRingEnd(SharedSegment out, SharedSegment in) : out_(std::move(out)), in_(std::move(in)) {}

  void Send(const Message& message) override {
    auto& ring = out_.As<IndexRingMemory>();
    // Relaxed, because only this end writes `head`.
    const std::uint64_t head = ring.head.load(std::memory_order_relaxed);
    SpinUntil([&] {
      if (head - known_tail_ < IndexRingMemory::kSlots) return true;
      known_tail_ = ring.tail.load(std::memory_order_acquire);
      return head - known_tail_ < IndexRingMemory::kSlots;
    });
    ring.slots[head % IndexRingMemory::kSlots] = message;
    ring.head.store(head + 1, std::memory_order_release);
    // This barrier is part of a real ring's check for a sleeping reader, so that both rings do
    // equal work.
    ipc::FullMemoryBarrier();
  }
  void Receive(Message& message) override {
    auto& ring = in_.As<IndexRingMemory>();
    const std::uint64_t tail = ring.tail.load(std::memory_order_relaxed);
    SpinUntil([&] {
      if (known_head_ != tail) return true;
      known_head_ = ring.head.load(std::memory_order_acquire);
      return known_head_ != tail;
    });
    message = ring.slots[tail % IndexRingMemory::kSlots];
    ring.tail.store(tail + 1, std::memory_order_release);
  }

 private:
  SharedSegment out_, in_;
  std::uint64_t known_head_ = 0, known_tail_ = 0;
};

Transport IndexRing() {
  auto forth = std::make_shared<SharedSegment>(MakeMemory(sizeof(IndexRingMemory)));
  auto back = std::make_shared<SharedSegment>(MakeMemory(sizeof(IndexRingMemory)));
  return {"head and tail ring",
          [=] { return std::make_unique<IndexRingEnd>(MapAgain(*forth), MapAgain(*back)); },
          [=] { return std::make_unique<IndexRingEnd>(MapAgain(*back), MapAgain(*forth)); }};
}

// ---- boost::interprocess::message_queue

using BoostQueue = boost::interprocess::message_queue;

class BoostQueueEnd : public End {
 public:
  BoostQueueEnd(const std::string& out, const std::string& in)
      : out_(boost::interprocess::open_only, out.c_str()),
        in_(boost::interprocess::open_only, in.c_str()) {}
  void Send(const Message& message) override { out_.send(&message, sizeof message, 0); }
  void Receive(Message& message) override {
    BoostQueue::size_type bytes = 0;
    unsigned priority = 0;
    in_.receive(&message, sizeof message, bytes, priority);
  }

 private:
  BoostQueue out_, in_;
};

// The names of the two queues. They outlive the processes unless they are removed explicitly, one
// of the reasons why boost's queue is only a baseline.
struct BoostNames {
  std::string forth, back;
  BoostNames() {
    const std::string base = "gpushared_bench_" + std::to_string(::getpid());
    forth = base + "_f";
    back = base + "_b";
    const auto make = [](const std::string& name) {
      BoostQueue(boost::interprocess::create_only, name.c_str(), 1024, sizeof(Message));
    };
    make(forth);
    make(back);
  }
  ~BoostNames() {
    BoostQueue::remove(forth.c_str());
    BoostQueue::remove(back.c_str());
  }
  BoostNames(const BoostNames&) = delete;
  BoostNames& operator=(const BoostNames&) = delete;
};

Transport BoostMessageQueue() {
  auto names = std::make_shared<BoostNames>();
  return {"boost message_queue",
          [=] { return std::make_unique<BoostQueueEnd>(names->forth, names->back); },
          [=] { return std::make_unique<BoostQueueEnd>(names->back, names->forth); }};
}

// ---- AF_UNIX SOCK_SEQPACKET

class SocketEnd : public End {
 public:
  explicit SocketEnd(int fd) : fd_(fd) {}
  void Send(const Message& message) override {
    Check(::send(fd_, &message, sizeof message, MSG_NOSIGNAL) == sizeof message, "send");
  }
  void Receive(Message& message) override {
    Check(::recv(fd_, &message, sizeof message, 0) == sizeof message, "receive");
  }

 private:
  int fd_;
};

Transport SeqpacketSocket() {
  int ends[2];
  Check(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socket pair");
  auto ours = std::make_shared<ipc::UniqueFd>(ends[0]);
  auto theirs = std::make_shared<ipc::UniqueFd>(ends[1]);
  return {"AF_UNIX SOCK_SEQPACKET", [=] { return std::make_unique<SocketEnd>(ours->get()); },
          [=] { return std::make_unique<SocketEnd>(theirs->get()); }};
}

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

[[noreturn]] void Echo(const Transport& transport) {
  PinTo(1);
  const std::unique_ptr<End> end = transport.theirs();
  for (Message message;;) {
    end->Receive(message);
    if (message.kind == Kind::kEcho) end->Send(message);
    if (message.kind == Kind::kStop) ::_exit(0);
  }
}

struct Contestant {
  std::string name;
  std::unique_ptr<End> end;  // Null except during a burst.
  Samples round_trips;
  std::vector<double> millions_per_second;  // One-way, per burst.
};

void RoundTripBurst(Contestant& contestant) {
  Message message;
  for (const auto end = Clock::now() + kBurst;;) {
    const auto start = Clock::now();
    contestant.end->Send(message);
    contestant.end->Receive(message);
    const auto now = Clock::now();
    contestant.round_trips.Add(std::chrono::nanoseconds(now - start));
    if (now > end) return;
  }
}

void OneWayBurst(Contestant& contestant) {
  Message message;
  message.kind = Kind::kOneWay;
  std::uint64_t sent = 0;
  const auto start = Clock::now();
  while (Clock::now() < start + kBurst) {
    for (int i = 0; i < 64; ++i) contestant.end->Send(message);
    sent += 64;
  }
  // The echo arrives only when the other side has read the whole burst.
  message.kind = Kind::kEcho;
  contestant.end->Send(message);
  contestant.end->Receive(message);
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  contestant.millions_per_second.push_back(static_cast<double>(sent) / took.count());
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

void MeasureInTurns(std::vector<Contestant>& contestants) {
  constexpr std::array kMakers = {TagRing, IndexRing, BoostMessageQueue, SeqpacketSocket};
  contestants.resize(kMakers.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kMakers.size(); ++i) {
      // Created for each round, because both ends of a ring begin at position zero. Only the
      // current partner exists, because others would spin at the same time.
      Contestant& contestant = contestants[i];
      const Transport transport = kMakers[i]();
      contestant.name = transport.name;
      const pid_t echo = ::fork();
      Check(echo >= 0, "fork");
      if (echo == 0) Echo(transport);
      contestant.end = transport.ours();
      RoundTripBurst(contestant);
      OneWayBurst(contestant);
      Message stop;
      stop.kind = Kind::kStop;
      contestant.end->Send(stop);
      ::waitpid(echo, nullptr, 0);
      contestant.end.reset();
    }
  }
}

void MeasureRings(Report& report) {
  PinTo(0);
  std::vector<Contestant> contestants;
  MeasureInTurns(contestants);
  for (const Contestant& contestant : contestants) {
    report.Add(contestant.name + ": round trip of 64 bytes", contestant.round_trips);
    report.AddValue(contestant.name + ": one way, 64 bytes", Median(contestant.millions_per_second),
                    "M/s");
  }
  const double ours = contestants[0].round_trips.Percentile(0.5);
  for (std::size_t i = 1; i < contestants.size() && ours > 0; ++i) {
    report.AddValue(contestants[i].name + ": round trip, times ours",
                    contestants[i].round_trips.Percentile(0.5) / ours, "x");
  }
  report.Add("submit a launch with 40 bytes of parameters, per call", SubmitCost());
  report.Add("validate that launch", ValidateCost());
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  return RunReport(argc, argv, "ring_bench: the ring compared with others", MeasureRings);
}
