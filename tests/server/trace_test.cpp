// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/shared_segment.h"
#include "ipc/wire/bytes.h"
#include "server/telemetry/trace/reader.h"
#include "server/telemetry/trace/writer.h"

namespace gpushared::trace {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

scheduler::TimePoint At(std::chrono::nanoseconds time) { return scheduler::TimePoint(time); }

// A writer, and a reader that opened the trace before anything was written.
struct Pair {
  Pair() : writer(*Writer::Create()), reader(*Reader::Open(*writer->ShareMemory())) {}

  std::vector<Event> Poll() {
    std::vector<Event> events;
    progress = reader.Poll([&](const Event& event) { events.push_back(event); });
    EXPECT_EQ(progress.events, events.size());
    return events;
  }

  std::unique_ptr<Writer> writer;
  Reader reader;
  Reader::Progress progress;
};

using Left = std::pair<ExecutionRecord, Departure>;

// Writes these executions to a trace and returns the slices that its reader reports.
std::vector<Slice> GetSlices(const std::vector<Left>& departures) {
  Pair trace;
  for (const auto& [record, departure] : departures) trace.writer->Write(record, departure);
  std::vector<Slice> slices;
  for (const Event& event : trace.Poll()) slices.push_back(std::get<Slice>(event));
  EXPECT_EQ(slices.size(), departures.size());
  return slices;
}

TEST(Trace, EventsComeBackAsTheyWereWritten) {
  Pair trace;
  trace.writer->Write({.session = 0x7'0000'0007,
                       .submitted = At(10s),
                       .started = At(10s + 2ns),
                       .ended = At(10s + 20ns),
                       .charged = 14ns,
                       .stop_asked = At(10s + 13ns),
                       .work = Work::kCopyToHost,
                       .cut = Cut::kStopped,
                       .was_stopped = true},
                      {.kernel = KernelKey(1 << 20, 4),
                       .request = 0x5'0000'0812,
                       .shape = 0xabc,
                       .of_class = scheduler::SchedulingClass::kLow,
                       .stream = 255,
                       .queued = At(9s + 1ns),
                       .ended = At(10s + 14ns),
                       .uncharged = 3ns,
                       .left = {.queued = 5, .on_device = 2}});
  trace.writer->Write(Request{.session = 0x7'0000'0007,
                              .number = 0x5'0000'0812,
                              .of_class = scheduler::SchedulingClass::kHigh,
                              .row = 15,
                              .stream = 3,
                              .has_failed = true,
                              .arrived = At(11s),
                              .begun = At(12s),
                              .ended = At(25s),
                              .target = 14ms});
  trace.writer->Write(Depth{.session = 9, .at = At(16s), .depths = {.queued = 1000}});
  const std::vector<Event> events = trace.Poll();
  ASSERT_EQ(events.size(), 3U);
  const auto& slice = std::get<Slice>(events[0]);
  EXPECT_EQ(slice.session, 0x7'0000'0007U);
  EXPECT_EQ(slice.kernel, KernelKey(1 << 20, 4));
  EXPECT_EQ(slice.request, 0x812U) << "as the number of the request ends";
  EXPECT_EQ(slice.shape, 0xabc);
  EXPECT_EQ(slice.work, Work::kCopyToHost);
  EXPECT_EQ(slice.cut, Cut::kStopped);
  EXPECT_EQ(slice.of_class, scheduler::SchedulingClass::kLow);
  EXPECT_EQ(slice.stream, 255);
  EXPECT_TRUE(slice.is_part);
  EXPECT_FALSE(slice.has_failed);
  EXPECT_EQ(slice.waited, 999'999'999ns);
  EXPECT_EQ(slice.submitted, At(10s));
  EXPECT_EQ(slice.started, At(10s + 2ns));
  EXPECT_EQ(slice.ended, At(10s + 14ns));
  EXPECT_EQ(slice.stop_asked, At(10s + 13ns));
  EXPECT_EQ(slice.charged_from, At(10s + 3ns)) << "behind it is what is still there";
  EXPECT_EQ(slice.charged, 14ns);
  EXPECT_EQ(slice.left.queued, 5U);
  EXPECT_EQ(slice.left.on_device, 2U);
  const auto& request = std::get<Request>(events[1]);
  EXPECT_EQ(request.session, 0x7'0000'0007U);
  EXPECT_EQ(request.number, 0x5'0000'0812U);
  EXPECT_EQ(request.row, 15);
  EXPECT_EQ(request.stream, std::uint8_t{3});
  EXPECT_TRUE(request.has_failed);
  EXPECT_EQ(request.arrived, At(11s));
  EXPECT_EQ(request.begun, At(12s));
  EXPECT_EQ(request.ended, At(25s));
  EXPECT_EQ(request.target, 14ms);
  EXPECT_FALSE(request.is_target_met());
  EXPECT_EQ(std::get<Depth>(events[2]).depths.queued, 1000U);
  EXPECT_EQ(std::get<Depth>(events[2]).at, At(16s));
  EXPECT_TRUE(trace.Poll().empty()) << "each event once";
}

// A worker writes each measured time in 32 bits.
TEST(Trace, TimesAreExactWithin2SecondsAndCloseBeyond) {
  const auto back = [](const ExecutionRecord& record, const Departure& departure) {
    return GetSlices({{record, departure}})[0];
  };
  for (const auto left_at : {At(4'294'967'296ns), At(4'294'967'297ns), At(23h + 7ns)}) {
    const Slice exact = back({.submitted = left_at - 2s,
                              .started = left_at - 1s,
                              .ended = left_at,
                              .charged = 1'999'999'999ns},
                             {.queued = left_at - 2'147'483'647ns, .ended = left_at - 1ns});
    EXPECT_EQ(exact.waited, 147'483'647ns);
    EXPECT_EQ(exact.submitted, left_at - 2s);
    EXPECT_EQ(exact.started, left_at - 1s);
    EXPECT_EQ(exact.ended, left_at - 1ns);
    EXPECT_EQ(exact.charged_from, left_at - 1'999'999'999ns);
    EXPECT_EQ(exact.charged, 1'999'999'999ns);
    EXPECT_EQ(exact.stop_asked, scheduler::TimePoint{});
  }
  const Slice close = back({.submitted = At(24h),
                            .started = At(24h + 1s),
                            .ended = At(25h + 3ns),
                            .charged = 1h + 6ns,
                            .stop_asked = At(24h + 5s),
                            .cut = Cut::kStopped},
                           {.queued = At(21h), .ended = At(25h), .uncharged = 1ns});
  constexpr std::chrono::nanoseconds kCoarse = 8us;  // 4 h / 2^31, rounded up to a power of two.
  EXPECT_LE(std::chrono::abs(close.waited - 3h), kCoarse);
  EXPECT_LE(std::chrono::abs(close.submitted - At(24h)), kCoarse);
  EXPECT_LE(std::chrono::abs(close.started - At(24h + 1s)), kCoarse);
  EXPECT_LE(std::chrono::abs(close.ended - At(25h)), kCoarse);
  EXPECT_LE(std::chrono::abs(close.stop_asked - At(24h + 5s)), kCoarse);
  EXPECT_LE(std::chrono::abs(close.charged - (1h + 6ns)), kCoarse);
}

// Times come from the device's own clock and may be out of order, and the charge depends on what
// else was running.
TEST(Trace, ReaderOrdersTimesAndSerialisesCharges) {
  const std::vector<Slice> slices = GetSlices({
      {{.submitted = At(2s), .started = At(1s), .ended = At(3s), .charged = 500ms},
       {.queued = At(3s), .ended = At(4s)}},
      {{.submitted = At(2s), .started = At(4s), .ended = At(3s), .charged = 800ms},
       {.queued = At(1s), .ended = At(1s)}},
      {{.submitted = At(2s), .ended = At(3s + 300ms), .charged = 1s}, {.queued = At(1s)}},
      {{.ended = At(3h), .charged = 2h}, {}},
      {{.ended = At(3h), .charged = 2h}, {.uncharged = 1h}},
  });
  EXPECT_EQ(slices[0].waited, 0ns);
  EXPECT_EQ(slices[0].started, At(2s)) << "not before it was submitted";
  EXPECT_EQ(slices[0].ended, At(3s)) << "not after it left";
  EXPECT_EQ(slices[1].started, At(3s));
  EXPECT_EQ(slices[1].ended, At(3s));
  EXPECT_EQ(slices[0].charged_from, At(2s + 500ms));
  for (std::size_t i = 1; i < slices.size(); ++i) {
    EXPECT_GE(slices[i].charged_from, slices[i - 1].charged_from + slices[i - 1].charged) << i;
  }
  EXPECT_EQ(slices[1].charged_from, At(3s));
  EXPECT_EQ(slices[2].charged, 1s) << "all of it, wherever it lies";
}

TEST(Trace, SaturatesTimesOfOverlappingCharges) {
  constexpr auto kLong = 500'000h;  // Nearly 2^61 ns.
  const std::vector<Slice> slices =
      GetSlices(std::vector<Left>(9, {{.ended = At(kLong), .charged = kLong}, {}}));
  EXPECT_TRUE(std::ranges::is_sorted(slices, {}, &Slice::charged_from));
  EXPECT_GT(slices.back().charged_from, At(kLong));
}

TEST(Trace, LateReaderLosesOldestEventsAndCountsThem) {
  Pair trace;
  const std::uint64_t written = 3 * kEventsMax + 100;
  for (std::uint64_t i = 0; i < written; ++i) trace.writer->Write(Depth{.session = i});
  const std::vector<Event> events = trace.Poll();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.size() + trace.progress.lost, written);
  EXPECT_EQ(events.size(), kEventsMax - 1) << "the slot that is written next is no more than that";
  EXPECT_EQ(std::get<Depth>(events.front()).session, trace.progress.lost);
  EXPECT_EQ(std::get<Depth>(events.back()).session, written - 1);
  trace.writer->Write(Depth{.session = written});
  EXPECT_EQ(trace.Poll().size(), 1U);
  EXPECT_EQ(trace.progress.lost, 0U) << "it has caught up";
}

TEST(Trace, LateReaderGetsNamesButNoPastEvents) {
  Pair trace;
  trace.writer->NameClient(7, 4121, "serve");
  trace.writer->NameKernel(KernelKey(1, 2), "gemm");
  trace.writer->Write({.session = 7}, {.kernel = KernelKey(1, 2)});
  Reader late = *Reader::Open(*trace.writer->ShareMemory());
  EXPECT_EQ(late.Poll([](const Event&) { ADD_FAILURE(); }).events, 0U);
  trace.writer->Write({.session = 7}, {.kernel = KernelKey(1, 2)});
  Slice seen;
  EXPECT_EQ(late.Poll([&](const Event& event) { seen = std::get<Slice>(event); }).events, 1U);
  ASSERT_NE(late.GetClient(seen.session), nullptr);
  EXPECT_EQ(late.GetClient(seen.session)->text, "serve");
  EXPECT_EQ(late.GetClient(seen.session)->pid, 4121);
  EXPECT_EQ(late.GetWhat(seen), "gemm");
  EXPECT_EQ(late.GetWhat(Slice{.kernel = KernelKey(1, 3)}), "kernel") << "nobody has named it";
  EXPECT_EQ(late.GetWhat(Slice{.work = Work::kFill}), "fill");
  EXPECT_EQ(late.GetClient(KernelKey(1, 2)), nullptr) << "a kernel is no client";
}

TEST(Trace, KernelNameIsWrittenAgainAfterManyOthers) {
  Pair trace;
  EXPECT_FALSE(trace.writer->KnowsKernel(KernelKey(1, 0)));
  trace.writer->NameKernel(KernelKey(1, 0), "first");
  EXPECT_TRUE(trace.writer->KnowsKernel(KernelKey(1, 0)));
  for (std::uint32_t kernel = 0; kernel < 1000; ++kernel) {
    trace.writer->NameKernel(KernelKey(2, kernel), "other");
  }
  std::size_t known = 0;
  for (std::uint32_t kernel = 0; kernel < 1000; ++kernel) {
    known += trace.writer->KnowsKernel(KernelKey(2, kernel)) ? 1 : 0;
  }
  EXPECT_GT(known, 980U) << "keys are spread";
  EXPECT_TRUE(trace.writer->KnowsKernel(KernelKey(1, 0)));
  for (std::uint32_t kernel = 0; kernel < 20'000; ++kernel) {
    // None of these names may take the slot of the first one, which was requested recently.
    trace.writer->NameKernel(KernelKey(3 + kernel / 4096, kernel % 4096 * 256), "flood");
  }
  EXPECT_FALSE(trace.writer->KnowsKernel(KernelKey(1, 0)))
      << "forgotten no later than the ring of names has overwritten it";
}

TEST(Trace, LimitsAndSanitisesNames) {
  Pair trace;
  trace.writer->NameKernel(1, std::string(95, 'k') + "äöü");
  trace.writer->NameKernel(2, "two\nlines \xff\x1b[31m");
  trace.writer->NameClient(3, 1, "");
  trace.Poll();
  EXPECT_EQ(trace.reader.KernelFor(1)->text, std::string(95, 'k')) << "cut at a character";
  EXPECT_EQ(trace.reader.KernelFor(2)->text, "two?lines ??[31m");
  EXPECT_TRUE(ipc::IsPrintableText(trace.reader.KernelFor(2)->text));
  EXPECT_EQ(trace.reader.GetClient(3)->text, "");
}

TEST(Trace, IgnoresInvalidWords) {
  EXPECT_FALSE(FromWords(EventWords{}));
  const auto with = [](EventWords words, std::size_t word, Word value) {
    words[word] = value;
    return FromWords(words).has_value();
  };
  const EventWords departure = ToWords({.session = 1, .ended = At(1s)}, {});
  EXPECT_TRUE(with(departure, 1, 2));
  EXPECT_TRUE(with(departure, 0, 1));
  EXPECT_FALSE(with(departure, 0, 0)) << "a kind that there is not";
  EXPECT_FALSE(with(departure, 0, 1 | 3 << HeadBits::kClass)) << "a class";
  EXPECT_FALSE(with(departure, 0, 1 | 7 << HeadBits::kWork)) << "a work";
  EXPECT_FALSE(with(departure, 0, 1 | 7 << HeadBits::kCut)) << "a cut";
  EXPECT_FALSE(with(departure, 0, 1 | Word{HeadBits::kShiftMax + 1} << HeadBits::kShift));
  EXPECT_FALSE(with(departure, 6, Word{1} << 29)) << "left at 2^61 ns";
  EXPECT_FALSE(with(departure, 9, static_cast<Word>(-1))) << "queued before the clock began";
  EXPECT_FALSE(with(departure, 13, 1'000'000'001)) << "charged from before that";
  for (const std::size_t time : {6, 8, 10, 12}) {
    EXPECT_FALSE(with(ToWords(Request{}), time, Word{1} << 29)) << time;
  }
  EXPECT_FALSE(with(ToWords(Depth{}), 4, ~Word{0}));
  NameWords name = ToWords(Name::Of::kKernel, 1, 0, "name");
  EXPECT_TRUE(FromWords(name));
  name[0] = 97 << 8;
  EXPECT_FALSE(FromWords(name)) << "longer than any name";
  name[0] = 2;
  EXPECT_FALSE(FromWords(name)) << "of neither";
}

TEST(Trace, ReadersCannotWriteAndRejectOtherFiles) {
  const std::unique_ptr<Writer> writer = *Writer::Create();
  const ipc::UniqueFd memory = *writer->ShareMemory();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0), MAP_FAILED);
  EXPECT_LT(::pwrite(memory.get(), "x", 1, 0), 0);
  EXPECT_LT(::ftruncate(memory.get(), 0), 0);
  EXPECT_EQ(Reader::Open(*ipc::MakeFixedMemory("other", 4096)).status().code(),
            StatusCode::kProtocolViolation);
  EXPECT_THAT(
      std::string(Reader::Open(*ipc::MakeFixedMemory("old", kMemoryBytes)).status().message()),
      HasSubstr("a layout that this program cannot read"));
}

// A record is either reported whole or counted as lost, even if the writer overtakes the reader all
// the time.
TEST(Trace, OvertakenReaderSeesWholeRecordsInOrder) {
  using Small = Ring<kEventWords, 64>;
  constexpr std::uint64_t kRecords = 300'000;
  const auto ring = std::make_unique<Small>();
  std::atomic<bool> is_over{false};
  std::thread writing([&] {
    RingWriter<Small> writer(*ring);
    for (std::uint64_t number = 0; number < kRecords; ++number) {
      EventWords words;
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<Word>(number * 31 + i);
      writer.Write(words);
      // Lets the reader make progress between two laps.
      if (number % 40 == 0) std::this_thread::yield();
    }
    is_over.store(true, std::memory_order_release);
  });
  RingReader<Small> reader(*ring, 0);
  std::array<EventWords, 24> copies;
  std::uint64_t seen = 0, expected = 0;
  while (true) {
    const bool was_over = is_over.load(std::memory_order_acquire);
    const std::uint64_t lost_before = reader.lost();
    const std::size_t count = reader.Read(RingReader<Small>::Written(*ring), copies);
    expected += reader.lost() - lost_before;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t word = 0; word < kEventWords; ++word) {
        ASSERT_EQ(copies[i][word], static_cast<Word>((expected + i) * 31 + word))
            << "record " << expected + i;
      }
    }
    expected += count;
    seen += count;
    if (count == 0 && was_over) break;
  }
  writing.join();
  EXPECT_EQ(seen + reader.lost(), kRecords);
  EXPECT_GT(seen, 0U);
}

}  // namespace
}  // namespace gpushared::trace
