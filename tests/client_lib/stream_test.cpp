// SPDX-License-Identifier: Apache-2.0
// Commands: how calls are checked, encoded and answered.
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/client_lib/asleep.h"
#include "tests/support/fake_worker.h"

namespace gpushared {
namespace {

using testing::FakeWorker;
using testing::FakeWorkerOptions;
using ::testing::HasSubstr;

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() : StreamTest(FakeWorkerOptions{}) {}
  explicit StreamTest(const FakeWorkerOptions& options) : worker_(options) {
    Result<Client> client = Client::Connect({.socket = worker_.socket_path()});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    client_ = std::move(*client);
    stream_ = client_.default_stream();
  }
  ~StreamTest() override { EXPECT_THAT(worker_.violations(), ::testing::IsEmpty()); }

  Kernel LoadKernel(const char* name) { return *client_.LoadModule("any PTX")->GetKernel(name); }
  // Returns the only launch that the worker has received so far.
  testing::TakenCommand OnlyLaunch() {
    EXPECT_TRUE(stream_.Synchronize().ok());
    testing::TakenCommand found;
    int launches = 0;
    for (const testing::TakenCommand& taken : worker_.taken()) {
      if (!std::holds_alternative<ipc::LaunchCommand>(taken.command.body)) continue;
      found = taken;
      ++launches;
    }
    EXPECT_EQ(launches, 1);
    return found;
  }
  template <typename T>
  static T Parameter(const testing::TakenCommand& taken, std::size_t offset) {
    T value{};
    std::memcpy(&value, taken.parameters.data() + offset, sizeof value);
    return value;
  }
  DeviceBuffer Buffer(std::size_t bytes) { return std::move(*client_.AllocateDevice(bytes)); }

  FakeWorker worker_;
  Client client_;
  Stream stream_;
};

std::vector<std::uint8_t> Pattern(std::size_t bytes) {
  std::vector<std::uint8_t> pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
  return pattern;
}

CopyShape Rows(std::size_t width, std::size_t height, std::size_t to_pitch,
               std::size_t from_pitch) {
  return {.width_bytes = width,
          .height = height,
          .destination_pitch_bytes = to_pitch,
          .source_pitch_bytes = from_pitch};
}

// ---- launches

TEST_F(StreamTest, LaunchArrivesWithShapeAndArguments) {
  const Kernel add = LoadKernel("add");
  const DeviceBuffer a = Buffer(256), b = Buffer(256);
  const Status status =
      stream_.Launch(add, {.grid = {3, 2, 1}, .block = {32, 4, 2}, .dynamic_shared_bytes = 512}, a,
                     b, a.address() + 8, 77);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const auto taken = OnlyLaunch();
  const auto& launch = std::get<ipc::LaunchCommand>(taken.command.body);
  EXPECT_EQ(launch.kernel, 0u);
  EXPECT_EQ(launch.grid, (std::array<std::uint32_t, 3>{3, 2, 1}));
  EXPECT_EQ(launch.block, (std::array<std::uint32_t, 3>{32, 4, 2}));
  EXPECT_EQ(launch.dynamic_shared_bytes, 512u);
  EXPECT_EQ(Parameter<DeviceAddress>(taken, 0), a.address());
  EXPECT_EQ(Parameter<DeviceAddress>(taken, 8), b.address());
  EXPECT_EQ(Parameter<DeviceAddress>(taken, 16), a.address() + 8);
  EXPECT_EQ(Parameter<int>(taken, 24), 77);
}

TEST_F(StreamTest, PaddingBetweenArgumentsIsZero) {
  ASSERT_TRUE(stream_.Launch(LoadKernel("padded"), {}, std::uint8_t{255}, ~std::uint64_t{0}).ok());
  const auto taken = OnlyLaunch();
  for (std::size_t i = 1; i < 8; ++i) EXPECT_EQ(taken.parameters[i], std::byte{0}) << i;
}

TEST_F(StreamTest, LargeParametersTravelInStagingMemory) {
  std::vector<std::byte> parameters(6000, std::byte{0x5a});
  ASSERT_TRUE(stream_.LaunchPacked(LoadKernel("large"), {}, parameters).ok());
  const auto taken = OnlyLaunch();
  EXPECT_TRUE(std::get<ipc::LaunchCommand>(taken.command.body).parameters_in_staging_buffer);
  EXPECT_EQ(taken.parameters, parameters);
}

TEST_F(StreamTest, WrongArgumentsAreRejectedAndNothingIsSent) {
  const Kernel add = LoadKernel("add");
  const std::uint64_t address = 0;
  const Status few = stream_.Launch(add, {}, address);
  EXPECT_EQ(few.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(few.message(), HasSubstr("kernel 'add' takes 4 arguments, 1 were given"));
  const Status size = stream_.Launch(add, {}, address, address, address, address);
  EXPECT_EQ(size.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(size.message(), HasSubstr("takes 4 bytes as argument 3 (counted from 0), 8"));
  const std::vector<std::byte> short_buffer(27);
  EXPECT_EQ(stream_.LaunchPacked(add, {}, short_buffer).code(), StatusCode::kInvalidArgument);
  const LaunchArgument null_argument[] = {{nullptr, 8}, {nullptr, 8}, {nullptr, 8}, {nullptr, 4}};
  EXPECT_EQ(stream_.LaunchWith(add, {}, null_argument).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_.Launch(Kernel(), {}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(stream_.Synchronize().ok()) << "a rejected call must not poison the stream";
  EXPECT_EQ(worker_.taken_count(), 0u);
}

TEST_F(StreamTest, ShapesBeyondTheLimitsAreRejectedByName) {
  const Kernel nothing = LoadKernel("nothing");
  const auto rejection = [&](const LaunchShape& shape) {
    const Status status = stream_.Launch(nothing, shape);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(rejection({.grid = {0, 1, 1}}), HasSubstr("0 blocks along x"));
  EXPECT_THAT(rejection({.grid = {(1 << 20) + 1, 1, 1}}), HasSubstr("allows 1 to 1048576"));
  EXPECT_THAT(rejection({.grid = {1, 65536, 1}}), HasSubstr("blocks along y"));
  EXPECT_THAT(rejection({.grid = {1, 1, 65536}}), HasSubstr("blocks along z"));
  EXPECT_THAT(rejection({.block = {513, 1, 1}}), HasSubstr("513 threads per block along x"));
  EXPECT_THAT(rejection({.block = {1, 0, 1}}), HasSubstr("0 threads per block along y"));
  EXPECT_THAT(rejection({.block = {1, 1, 65}}), HasSubstr("65 threads per block along z"));
  EXPECT_THAT(rejection({.block = {32, 32, 1}}),
              HasSubstr("1024 threads per block, it allows 512"));
  EXPECT_THAT(rejection({.dynamic_shared_bytes = 48 * 1024 + 1}),
              HasSubstr("49153 bytes of static and dynamic shared memory"));
  EXPECT_THAT(rejection({.dynamic_shared_bytes = ~0u}), HasSubstr("shared memory"));
}

TEST_F(StreamTest, LimitsOfTheKernelCountToo) {
  const Kernel add = LoadKernel("add");  // 256 threads, 1 KiB static.
  const std::vector<std::byte> parameters(28);
  EXPECT_TRUE(stream_.LaunchPacked(add, {.block = {256, 1, 1}}, parameters).ok());
  EXPECT_FALSE(stream_.LaunchPacked(add, {.block = {257, 1, 1}}, parameters).ok());
  EXPECT_TRUE(stream_.LaunchPacked(add, {.dynamic_shared_bytes = 47 * 1024}, parameters).ok());
  EXPECT_FALSE(stream_.LaunchPacked(add, {.dynamic_shared_bytes = 47 * 1024 + 1}, parameters).ok());
}

TEST_F(StreamTest, RejectsUnsupportedKernelWithReason) {
  const Kernel missing = LoadKernel("missing");
  EXPECT_EQ(missing.unsupported(), "line 12: wgmma.mma_async");
  const Status status = stream_.Launch(missing, {});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("line 12: wgmma.mma_async"));
}

TEST_F(StreamTest, KernelOfAnotherClientIsRejected) {
  const auto other = Client::Connect({.socket = worker_.socket_path()});
  const Kernel theirs = *other->LoadModule("any PTX")->GetKernel("nothing");
  EXPECT_EQ(stream_.Launch(theirs, {}).code(), StatusCode::kInvalidArgument);
}

// ---- copies and fills

class CopySizes : public StreamTest, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(CopySizes, PageableMemoryReturnsUnchanged) {
  const std::vector<std::uint8_t> sent = Pattern(GetParam());
  const DeviceBuffer buffer = Buffer(sent.size());
  std::vector<std::uint8_t> scratch = sent;
  ASSERT_TRUE(stream_.CopyToDevice(buffer, scratch.data(), scratch.size()).ok());
  // The source may be reused at once.
  std::fill(scratch.begin(), scratch.end(), std::uint8_t{0});
  std::vector<std::uint8_t> received(sent.size());
  ASSERT_TRUE(stream_.CopyToHost(received.data(), buffer, received.size()).ok());
  EXPECT_EQ(received, sent);
}

INSTANTIATE_TEST_SUITE_P(AroundThePieces, CopySizes,
                         ::testing::Values(1, 4095, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1,
                                           5 * 1024 * 1024 + 17, (16u << 20) + 17, 40u << 20));

TEST_F(StreamTest, LargeCopiesStayInsideOneStagingBuffer) {
  const DeviceBuffer buffer = Buffer(48u << 20);
  std::vector<std::uint8_t> memory(48u << 20);
  ASSERT_TRUE(stream_.CopyToDevice(buffer, memory.data(), memory.size()).ok());
  ASSERT_TRUE(stream_.CopyToHost(memory.data(), buffer, memory.size()).ok());
  EXPECT_EQ(worker_.staging_buffers_added(), 1u);
}

struct ShortOfStaging : StreamTest {
  ShortOfStaging() : StreamTest({.staging_bytes_total_max = 1'000'000}) {}
};
TEST_F(ShortOfStaging, CopiesUseAvailableStagingBytes) {
  const DeviceBuffer buffer = Buffer(8u << 20);
  const std::vector<std::uint8_t> sent = Pattern(buffer.size());
  std::vector<std::uint8_t> received(sent.size());
  ASSERT_TRUE(stream_.CopyToDevice(buffer.address(), sent.data(), sent.size()).ok());
  const Status status = stream_.CopyToHost(received.data(), buffer.address(), received.size());
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(received, sent);
}

TEST_F(StreamTest, HostBuffersAreCopiedInPlaceByOneCommand) {
  const std::size_t bytes = 3u << 20;
  HostBuffer in = std::move(*client_.AllocateHost(bytes));
  HostBuffer out = std::move(*client_.AllocateHost(bytes));
  const DeviceBuffer buffer = Buffer(bytes);
  const std::vector<std::uint8_t> sent = Pattern(bytes);
  std::memcpy(in.data(), sent.data(), bytes);
  ASSERT_TRUE(stream_.CopyToDevice(buffer, in.data(), bytes).ok());
  ASSERT_TRUE(stream_.CopyToHost(out.data(), buffer, bytes).ok());
  ASSERT_TRUE(stream_.Synchronize().ok());
  EXPECT_EQ(std::memcmp(out.data(), sent.data(), bytes), 0);
  EXPECT_EQ(worker_.taken_count(), 2u);
}

TEST_F(StreamTest, CopyIntoAHostBufferDoesNotWait) {
  HostBuffer out = std::move(*client_.AllocateHost(100));
  const DeviceBuffer buffer = Buffer(100);
  worker_.set_finishing(false);
  EXPECT_TRUE(stream_.CopyToHost(out.data(), buffer, 100).ok());
  EXPECT_EQ(stream_.Query().code(), StatusCode::kNotReady);
  worker_.set_finishing(true);
  EXPECT_TRUE(stream_.Synchronize().ok());
}

TEST_F(StreamTest, RowsKeepTheirPitches) {
  constexpr std::size_t kWidth = 100, kHeight = 7, kHostPitch = 130, kDevicePitch = 256;
  const std::vector<std::uint8_t> sent = Pattern(kHostPitch * kHeight);
  const DeviceBuffer buffer = Buffer(kDevicePitch * kHeight);
  ASSERT_TRUE(stream_.Fill(buffer, FillElement::U8(0xee), kDevicePitch * kHeight).ok());
  ASSERT_TRUE(
      stream_.CopyToDevice2d(buffer, sent.data(), Rows(kWidth, kHeight, kDevicePitch, kHostPitch))
          .ok());
  std::vector<std::uint8_t> raw(kDevicePitch * kHeight);
  ASSERT_TRUE(stream_.CopyToHost(raw.data(), buffer, raw.size()).ok());
  for (std::size_t row = 0; row < kHeight; ++row) {
    ASSERT_EQ(std::memcmp(&raw[row * kDevicePitch], &sent[row * kHostPitch], kWidth), 0);
    ASSERT_EQ(raw[row * kDevicePitch + kWidth], 0xee) << "bytes between rows must stay";
  }
  std::vector<std::uint8_t> back(kHostPitch * kHeight, 0xdd);
  ASSERT_TRUE(
      stream_.CopyToHost2d(back.data(), buffer, Rows(kWidth, kHeight, kHostPitch, kDevicePitch))
          .ok());
  for (std::size_t row = 0; row < kHeight; ++row) {
    ASSERT_EQ(std::memcmp(&back[row * kHostPitch], &sent[row * kHostPitch], kWidth), 0);
    ASSERT_EQ(back[row * kHostPitch + kWidth], 0xdd);
  }
}

TEST_F(StreamTest, SplitsRowsLargerThanPiece) {
  constexpr std::size_t kWidth = 700'000, kHeight = 3, kPitch = 800'000;
  const std::vector<std::uint8_t> sent = Pattern(kPitch * kHeight);
  const DeviceBuffer buffer = Buffer(kWidth * kHeight);
  ASSERT_TRUE(
      stream_.CopyToDevice2d(buffer, sent.data(), Rows(kWidth, kHeight, kWidth, kPitch)).ok());
  std::vector<std::uint8_t> back(kWidth * kHeight);
  ASSERT_TRUE(stream_.CopyToHost(back.data(), buffer, back.size()).ok());
  for (std::size_t row = 0; row < kHeight; ++row) {
    ASSERT_EQ(std::memcmp(&back[row * kWidth], &sent[row * kPitch], kWidth), 0);
  }
}

TEST_F(StreamTest, RowsOfAHostBufferAreOneCommand) {
  HostBuffer in = std::move(*client_.AllocateHost(4096));
  const DeviceBuffer buffer = Buffer(4096);
  ASSERT_TRUE(stream_.CopyToDevice2d(buffer, in.data(), Rows(10, 8, 16, 512)).ok());
  ASSERT_TRUE(stream_.Synchronize().ok());
  ASSERT_EQ(worker_.taken_count(), 1u);
  const auto taken = worker_.taken();
  const auto& copy = std::get<ipc::CopyToDeviceCommand>(taken[0].command.body);
  EXPECT_EQ(copy.staging_pitch_bytes, 512u);
  EXPECT_EQ(copy.device_pitch_bytes, 16u);
  EXPECT_EQ(copy.height, 8u);
}

TEST_F(StreamTest, CopyOnDeviceAndFillsOfEveryElementSize) {
  const DeviceBuffer from = Buffer(1024), to = Buffer(1024);
  ASSERT_TRUE(stream_.Fill(from, FillElement::U8(0x11), 16).ok());
  ASSERT_TRUE(stream_.Fill(from + 16, FillElement::U16(0x2233), 8).ok());
  ASSERT_TRUE(stream_.Fill(from + 32, FillElement::U32(0x44556677), 4).ok());
  ASSERT_TRUE(stream_.CopyOnDevice(to, from, 48).ok());
  std::vector<std::uint8_t> bytes(48);
  ASSERT_TRUE(stream_.CopyToHost(bytes.data(), to, 48).ok());
  EXPECT_EQ(bytes[15], 0x11);
  EXPECT_EQ(bytes[16], 0x33);
  EXPECT_EQ(bytes[17], 0x22);
  EXPECT_EQ(bytes[47], 0x44);
}

TEST_F(StreamTest, FillOfRowsLeavesTheBytesBetween) {
  const DeviceBuffer buffer = Buffer(64);
  ASSERT_TRUE(stream_.Fill(buffer, FillElement::U8(1), 64).ok());
  ASSERT_TRUE(stream_
                  .Fill2d(buffer, FillElement::U16(0x0202),
                          {.width_elements = 2, .height = 4, .pitch_bytes = 16})
                  .ok());
  std::vector<std::uint8_t> bytes(64);
  ASSERT_TRUE(stream_.CopyToHost(bytes.data(), buffer, 64).ok());
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(bytes[i], i % 16 < 4 ? 2 : 1) << i;
}

TEST_F(StreamTest, EmptyCopiesAndFillsSendNothing) {
  const DeviceBuffer buffer = Buffer(64);
  EXPECT_TRUE(stream_.CopyToDevice(buffer, nullptr, 0).ok());
  EXPECT_TRUE(stream_.CopyToHost(nullptr, buffer, 0).ok());
  EXPECT_TRUE(stream_.CopyOnDevice(buffer, buffer, 0).ok());
  EXPECT_TRUE(stream_.Fill(buffer, FillElement::U8(1), 0).ok());
  EXPECT_TRUE(stream_.Synchronize().ok());
  EXPECT_EQ(worker_.taken_count(), 0u);
}

// Each of these would end the session if it reached the ring.
TEST_F(StreamTest, RejectsShapesThatNoRecordCanExpress) {
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  const DeviceBuffer buffer = Buffer(64);
  const HostBuffer host = std::move(*client_.AllocateHost(64));
  char byte = 0;
  const auto rejected = [](const Status& status) {
    return status.code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(rejected(stream_.CopyToDevice(buffer, nullptr, 1)));
  EXPECT_TRUE(rejected(stream_.CopyToHost(nullptr, buffer, 1)));
  EXPECT_TRUE(rejected(stream_.CopyToDevice(buffer, &byte, kHuge)));
  EXPECT_TRUE(rejected(stream_.CopyToDevice(kHuge, host.data(), 64)));
  EXPECT_TRUE(rejected(stream_.CopyOnDevice(kHuge - 1, buffer, 16)));
  EXPECT_TRUE(rejected(stream_.CopyOnDevice2d(
      buffer, buffer, {.width_bytes = 2, .height = 2, .destination_pitch_bytes = 1})));
  EXPECT_TRUE(rejected(stream_.CopyOnDevice2d(buffer, buffer, Rows(1, kHuge, 1, 1))));
  EXPECT_TRUE(rejected(stream_.CopyToDevice2d(buffer, host.data(), Rows(1, 4, kHuge, 1))));
  EXPECT_TRUE(rejected(stream_.Fill(buffer, {.value = 0, .element_bytes = 3}, 1)));
  EXPECT_TRUE(rejected(stream_.Fill(buffer, {.value = 0, .element_bytes = 0}, 1)));
  EXPECT_TRUE(rejected(stream_.Fill(buffer + 1, FillElement::U16(0), 1)));
  EXPECT_TRUE(rejected(stream_.Fill(buffer, FillElement::U32(0), kHuge)));
  EXPECT_TRUE(rejected(stream_.Fill2d(buffer, FillElement::U32(0),
                                      {.width_elements = 1, .height = 2, .pitch_bytes = 6})));
  // The pitch of a single row is meaningless.
  EXPECT_TRUE(stream_.CopyToDevice2d(buffer, host.data(), Rows(1, 1, kHuge, kHuge)).ok());
  EXPECT_TRUE(stream_.Synchronize().ok());
  EXPECT_TRUE(client_.status().ok());
}

// ---- errors

TEST_F(StreamTest, FirstErrorOfAStreamIsStickyAndComesWithItsText) {
  worker_.FailAt(0, 2, Status(StatusCode::kKernelFault, "kernel 'x' left its memory"));
  for (int i = 0; i < 3; ++i) {
    // The third call may already report the failure.
    static_cast<void>(stream_.Fill(Buffer(64), FillElement::U8(1), 1));
  }
  for (const Status& status :
       {stream_.Synchronize(), stream_.Query(), stream_.Fill(FakeWorker::kBase, {}, 1),
        client_.Synchronize(), stream_.Fill(FakeWorker::kBase, {}, 0)}) {
    EXPECT_EQ(status.code(), StatusCode::kKernelFault);
    EXPECT_EQ(status.message(), "kernel 'x' left its memory");
  }
  EXPECT_TRUE(client_.status().ok()) << "an error of a stream does not end the session";
}

TEST_F(StreamTest, AddressOutsideOfOurMemoryIsAnErrorOfTheStream) {
  ASSERT_TRUE(stream_.Fill(12345, FillElement::U8(1), 1).ok());
  EXPECT_EQ(stream_.Synchronize().code(), StatusCode::kInvalidArgument);
}

TEST_F(StreamTest, ErrorDoesNotAffectOtherStreams) {
  const Stream other = std::move(*client_.CreateStream());
  ASSERT_TRUE(stream_.Fill(12345, FillElement::U8(1), 1).ok());
  EXPECT_FALSE(stream_.Synchronize().ok());
  EXPECT_TRUE(other.Fill(Buffer(64), FillElement::U8(1), 1).ok());
  EXPECT_TRUE(other.Synchronize().ok());
  EXPECT_FALSE(client_.Synchronize().ok());
}

TEST_F(StreamTest, FailedStreamFailsThoseThatWaitForIt) {
  const Stream other = std::move(*client_.CreateStream());
  const Event event = *client_.CreateEvent();
  worker_.set_finishing(false);
  ASSERT_TRUE(stream_.Fill(12345, FillElement::U8(1), 1).ok());
  ASSERT_TRUE(stream_.Record(event).ok());
  ASSERT_TRUE(other.Wait(event).ok());
  worker_.set_finishing(true);
  EXPECT_EQ(other.Synchronize().code(), StatusCode::kCancelled);
  EXPECT_EQ(event.Synchronize().code(), StatusCode::kInvalidArgument);
}

TEST_F(StreamTest, PageableCopyToHostReturnsTheErrorOfTheStream) {
  std::vector<std::uint8_t> memory(3u << 20, 0x77);
  const Status status = stream_.CopyToHost(memory.data(), 12345, memory.size());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(memory[0], 0x77) << "what never arrived must not be written";
}

// ---- streams and events

TEST_F(StreamTest, StreamsHaveTheirOwnNumbersAndSequences) {
  const Stream one = std::move(*client_.CreateStream());
  const Stream two = std::move(*client_.CreateStream());
  ASSERT_TRUE(one.Fill(Buffer(64), {}, 1).ok());
  ASSERT_TRUE(two.Fill(Buffer(64), {}, 1).ok());
  ASSERT_TRUE(client_.Synchronize().ok());
  const auto taken = worker_.taken();
  ASSERT_EQ(taken.size(), 4u);
  EXPECT_EQ(taken[2].command.id, (ipc::CommandId{1, 2}));
  EXPECT_EQ(taken[3].command.id, (ipc::CommandId{2, 2}));
}

TEST_F(StreamTest, ReusesNumbersOfDestroyedStreamsWithoutTheirErrors) {
  for (int i = 0; i < 600; ++i) {
    const auto stream = client_.CreateStream();
    ASSERT_TRUE(stream.ok()) << i << " " << stream.status().ToString();
    ASSERT_TRUE(stream->Fill(12345, {}, 1).ok()) << i;
    ASSERT_EQ(stream->Synchronize().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(StreamTest, TooManyStreamsAreRejected) {
  std::vector<Stream> streams;
  for (int i = 0; i < 255; ++i) streams.push_back(std::move(*client_.CreateStream()));
  EXPECT_EQ(client_.CreateStream().status().code(), StatusCode::kLimitExceeded);
  streams.pop_back();
  EXPECT_TRUE(client_.CreateStream().ok());
}

TEST_F(StreamTest, FreshStreamIsNeverBusy) {
  const DeviceBuffer buffer = Buffer(64);
  for (int i = 0; i < 300; ++i) {  // Enough for numbers to be reused.
    worker_.set_finishing(false);
    const Stream stream = std::move(*client_.CreateStream());
    EXPECT_TRUE(stream.Query().ok()) << i;
    ASSERT_TRUE(stream.Fill(buffer, {}, 1).ok());
    EXPECT_EQ(stream.Query().code(), StatusCode::kNotReady) << i;
    worker_.set_finishing(true);
    ASSERT_TRUE(stream.Synchronize().ok());
    EXPECT_TRUE(stream.Query().ok()) << i;
  }
}

TEST_F(StreamTest, EventCompletesWithTheCommandsBeforeIt) {
  const Event event = *client_.CreateEvent();
  EXPECT_TRUE(event.Query().ok()) << "never recorded";
  worker_.set_finishing(false);
  ASSERT_TRUE(stream_.Fill(Buffer(64), {}, 1).ok());
  ASSERT_TRUE(stream_.Record(event).ok());
  EXPECT_EQ(event.Query().code(), StatusCode::kNotReady);
  worker_.set_finishing(true);
  EXPECT_TRUE(event.Synchronize().ok());
  EXPECT_TRUE(event.Query().ok());
}

TEST_F(StreamTest, EventWithoutTimingSendsNothing) {
  ASSERT_TRUE(stream_.Record(*client_.CreateEvent()).ok());
  ASSERT_TRUE(stream_.Synchronize().ok());
  EXPECT_EQ(worker_.taken_count(), 0u);
}

TEST_F(StreamTest, WaitNamesTheRecordedPoint) {
  const Stream other = std::move(*client_.CreateStream());
  const Event event = *client_.CreateEvent();
  const DeviceBuffer buffer = Buffer(64);
  ASSERT_TRUE(stream_.Fill(buffer, {}, 1).ok());
  ASSERT_TRUE(stream_.Record(event).ok());
  ASSERT_TRUE(stream_.Fill(buffer, {}, 1).ok());
  ASSERT_TRUE(other.Wait(event).ok());
  ASSERT_TRUE(other.Synchronize().ok());
  const auto taken = worker_.taken();
  const auto& wait = std::get<ipc::WaitForCommand>(taken.back().command.body);
  EXPECT_EQ(wait.target, (ipc::CommandId{0, 1}));
}

TEST_F(StreamTest, ElapsedTimeIsTheDevicesTime) {
  const Event start = *client_.CreateEvent(EventTiming::kOn);
  const Event end = *client_.CreateEvent(EventTiming::kOn);
  ASSERT_TRUE(stream_.Record(start).ok());
  ASSERT_TRUE(stream_.Fill(Buffer(64), {}, 1).ok());
  ASSERT_TRUE(stream_.Record(end).ok());
  ASSERT_TRUE(end.Synchronize().ok());
  const auto elapsed = Event::ElapsedTime(start, end);
  ASSERT_TRUE(elapsed.ok()) << elapsed.status().ToString();
  EXPECT_EQ(elapsed->count(), 2000) << "the fake device takes 1,000 ns per command";
  EXPECT_EQ(Event::ElapsedTime(end, start)->count(), -2000);
}

TEST_F(StreamTest, ElapsedTimeNeedsFinishedEventsWithTiming) {
  const Event plain = *client_.CreateEvent();
  const Event timed = *client_.CreateEvent(EventTiming::kOn);
  EXPECT_EQ(Event::ElapsedTime(timed, timed).status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(stream_.Record(plain).ok());
  worker_.set_finishing(false);
  ASSERT_TRUE(stream_.Record(timed).ok());
  EXPECT_EQ(Event::ElapsedTime(timed, timed).status().code(), StatusCode::kNotReady);
  EXPECT_EQ(Event::ElapsedTime(plain, timed).status().code(), StatusCode::kInvalidArgument);
  worker_.set_finishing(true);
}

// More marks than the completion ring can hold.
TEST_F(StreamTest, ManyOpenMarksDoNotStopTheWorker) {
  const Event event = *client_.CreateEvent(EventTiming::kOn);
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(stream_.Record(event).ok());
  EXPECT_TRUE(event.Synchronize().ok());
  EXPECT_TRUE(Event::ElapsedTime(event, event).ok());
}

TEST_F(StreamTest, EventsOfAnotherClientAreRejected) {
  const auto other = Client::Connect({.socket = worker_.socket_path()});
  const Event theirs = *other->CreateEvent();
  EXPECT_EQ(stream_.Record(theirs).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_.Wait(theirs).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream_.Wait(Event()).code(), StatusCode::kInvalidArgument);
}

// ---- the ring

TEST_F(StreamTest, FullRingBlocksUntilSpaceAndLosesNothing) {
  const DeviceBuffer buffer = Buffer(64);
  worker_.set_taking(false);
  std::thread opener = testing::OnceAsleep([&] { worker_.set_taking(true); });
  constexpr std::size_t kCommands = 20'000;  // Five times the ring's capacity.
  for (std::size_t i = 0; i < kCommands; ++i) ASSERT_TRUE(stream_.Fill(buffer, {}, 1).ok());
  opener.join();
  EXPECT_TRUE(stream_.Synchronize().ok());
  EXPECT_EQ(worker_.taken_count(), kCommands);
}

TEST_F(StreamTest, SeveralThreadsMayUseEverythingAtOnce) {
  constexpr int kThreads = 4, kRounds = 50;
  const Kernel add = LoadKernel("add");
  const Event shared_event = *client_.CreateEvent();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Stream own = std::move(*client_.CreateStream());
      const std::vector<std::uint8_t> sent = Pattern(5000 + static_cast<std::size_t>(t));
      std::vector<std::uint8_t> received(sent.size());
      for (int round = 0; round < kRounds; ++round) {
        const DeviceBuffer buffer = std::move(*client_.AllocateDevice(sent.size()));
        EXPECT_TRUE(own.CopyToDevice(buffer, sent.data(), sent.size()).ok());
        EXPECT_TRUE(stream_.Launch(add, {}, buffer, buffer, buffer, round).ok());
        EXPECT_TRUE(own.Record(shared_event).ok());
        EXPECT_TRUE(stream_.Wait(shared_event).ok());
        EXPECT_TRUE(own.CopyToHost(received.data(), buffer, sent.size()).ok());
        EXPECT_EQ(received, sent);
        if (round % 10 == 0) {
          EXPECT_TRUE(client_.LoadModule("any PTX").ok());
        }
        EXPECT_TRUE(stream_.Synchronize().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(client_.Synchronize().ok());
  EXPECT_EQ(client_.memory_info().used_bytes, 0u);
}

}  // namespace
}  // namespace gpushared
