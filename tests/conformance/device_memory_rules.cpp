// SPDX-License-Identifier: Apache-2.0
// Rules for address ranges and mapped memory.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "server/device/swap_store.h"
#include "tests/conformance/device_suite.h"
#include "tests/support/move_steps.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kStep = 2 * kMebibyte;

// AllZero and Garbage use memcmp and memcpy, because loops over megabytes are slow in unoptimised
// tests.
bool AllZero(const std::vector<std::byte>& bytes) {
  return bytes.empty() || (bytes.front() == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

std::vector<std::byte> Garbage(std::uint64_t bytes) {
  constexpr std::uint64_t kPeriod = 256;
  std::vector<std::byte> garbage(bytes);
  for (std::uint64_t i = 0; i < std::min(bytes, kPeriod); ++i) {
    garbage[i] = static_cast<std::byte>(i * 7 + 1);
  }
  for (std::uint64_t i = kPeriod; i < bytes; i += kPeriod) {
    std::memcpy(&garbage[i], garbage.data(), std::min(kPeriod, bytes - i));
  }
  return garbage;
}

// Fencing masks one address word, which needs a size that is a power of two and an equal alignment.
TEST_P(DeviceConformance, RangeIsAPowerOfTwoOfAtLeast4GiBAlignedToItself) {
  for (const std::uint64_t quota : {std::uint64_t{1}, kMebibyte, kDeviceBytes}) {
    const TestClient client = NewClient(quota, 0);
    EXPECT_TRUE(std::has_single_bit(client.space->range_bytes()));
    EXPECT_GE(client.space->range_bytes(), std::uint64_t{4} << 30);
    EXPECT_EQ(client.space->base() % client.space->range_bytes(), 0U);
  }
}

TEST_P(DeviceConformance, RangesOfTwoClientsDoNotOverlap) {
  const TestClient a = NewClient();
  const TestClient b = NewClient();
  const TestClient& low = a.space->base() < b.space->base() ? a : b;
  const TestClient& high = &low == &a ? b : a;
  EXPECT_LE(low.space->base() + low.space->range_bytes(), high.space->base());
}

TEST_P(DeviceConformance, FreshMemoryReadsAsZero) {
  const TestClient client = NewClient(8 * kMebibyte, 8 * kMebibyte);
  EXPECT_TRUE(AllZero(Read(client, 0, 8 * kMebibyte)));
}

TEST_P(DeviceConformance, MemoryOfADepartedClientReadsAsZeroForTheNext) {
  for (int round = 0; round < 4; ++round) {
    // The whole device, so that the next client gets the same memory.
    const TestClient client = NewClient(kDeviceBytes, kDeviceBytes);
    EXPECT_TRUE(AllZero(Read(client, 0, 4 * kMebibyte)));
    EXPECT_TRUE(AllZero(Read(client, kDeviceBytes - kStep, kStep)));
    Write(client, 0, Garbage(4 * kMebibyte));
    Write(client, kDeviceBytes - kStep, Garbage(kStep));
  }
}

TEST_P(DeviceConformance, ReturnedMemoryMappedAgainReadsAsZero) {
  const TestClient client = NewClient(8 * kMebibyte, 8 * kMebibyte);
  Write(client, 0, Garbage(8 * kMebibyte));
  ASSERT_TRUE(client.space->Resize(kStep).ok());
  ASSERT_TRUE(client.space->Resize(8 * kMebibyte).ok());
  EXPECT_TRUE(AllZero(Read(client, kStep, 6 * kMebibyte)));
}

TEST_P(DeviceConformance, GrowingAndShrinkingKeepWhatStaysMapped) {
  const TestClient client = NewClient(16 * kMebibyte, 4 * kMebibyte);
  Write(client, 0, Garbage(kStep));
  ASSERT_TRUE(client.space->Resize(16 * kMebibyte).ok());
  EXPECT_EQ(Read(client, 0, kStep), Garbage(kStep));
  ASSERT_TRUE(client.space->Resize(kStep).ok());
  EXPECT_EQ(Read(client, 0, kStep), Garbage(kStep));
}

TEST_P(DeviceConformance, MappedSizeIsRoundedUpToSteps) {
  const TestClient client = NewClient(16 * kMebibyte, 0);
  EXPECT_EQ(client.space->Resize(0).value(), 0U);
  EXPECT_EQ(client.space->Resize(1).value(), kStep);
  EXPECT_EQ(client.space->Resize(kStep).value(), kStep);
  EXPECT_EQ(client.space->Resize(kStep + 1).value(), 2 * kStep);
  EXPECT_EQ(client.space->Resize(0).value(), 0U);
}

TEST_P(DeviceConformance, ResizeBeyondTheQuotaIsRejectedAndChangesNothing) {
  const TestClient client = NewClient(4 * kMebibyte, 4 * kMebibyte);
  Write(client, 0, Garbage(4 * kMebibyte));
  for (const std::uint64_t asked : {4 * kMebibyte + 1, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    const auto resized = client.space->Resize(asked);
    ASSERT_FALSE(resized.ok());
    EXPECT_EQ(resized.status().code(), StatusCode::kOutOfMemory);
    EXPECT_NE(resized.status().message().find("quota"), std::string::npos)
        << resized.status().message();
  }
  EXPECT_EQ(Read(client, 0, 4 * kMebibyte), Garbage(4 * kMebibyte));
}

TEST_P(DeviceConformance, ResizeBeyondDeviceMemoryIsRejectedAndChangesNothing) {
  const TestClient first = NewClient(kDeviceBytes, kDeviceBytes - kStep);
  const TestClient second = NewClient(kDeviceBytes, kStep);
  Write(second, 0, Garbage(kStep));
  const auto resized = second.space->Resize(2 * kStep);
  ASSERT_FALSE(resized.ok());
  EXPECT_EQ(resized.status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(Read(second, 0, kStep), Garbage(kStep));
}

TEST_P(DeviceConformance, ShrinkingGivesMemoryToOthers) {
  const TestClient first = NewClient(kDeviceBytes, kDeviceBytes);
  const TestClient second = NewClient(kDeviceBytes, 0);
  EXPECT_FALSE(second.space->Resize(kStep).ok());
  ASSERT_TRUE(first.space->Resize(kDeviceBytes - kStep).ok());
  EXPECT_TRUE(second.space->Resize(kStep).ok());
}

// ---- chunks

TEST_P(DeviceConformance, ChunksKeepTheirContentsWhereverTheyAreMapped) {
  const TestClient client = NewClient(16 * kMebibyte, 0);
  const device::MemoryPiece area = client.space->mapping_area();
  if (Skips(area.bytes != 0, "map chunks")) return;
  const std::uint64_t first = area.base - client.space->base();
  const std::uint64_t second = first + area.bytes - 2 * kStep;
  auto chunk = client.space->MakeChunk(2 * kStep);
  ASSERT_TRUE(chunk.ok()) << chunk.status().ToString();
  ASSERT_TRUE(client.space->MapChunk(**chunk, client.At(first)).ok());
  EXPECT_TRUE(AllZero(Read(client, first, 2 * kStep)));
  Write(client, first, Garbage(2 * kStep));
  ASSERT_TRUE(client.space->MapChunk(**chunk, client.At(second)).ok());
  EXPECT_EQ(Read(client, second, 2 * kStep), Garbage(2 * kStep)) << "the same memory";
  client.space->HideMapping(client.At(first));
  ASSERT_TRUE(client.space->Unmap(client.At(first), 2 * kStep).ok());
  EXPECT_EQ(Read(client, second, 2 * kStep), Garbage(2 * kStep));
  client.space->HideMapping(client.At(second));
  ASSERT_TRUE(client.space->Unmap(client.At(second), 2 * kStep).ok());
  ASSERT_TRUE(client.space->MapChunk(**chunk, client.At(first + kStep)).ok());
  EXPECT_EQ(Read(client, first + kStep, 2 * kStep), Garbage(2 * kStep)) << "after a pause";
}

TEST_P(DeviceConformance, KernelsReachMappedChunksAndCopiesCrossTheirBorders) {
  const TestClient client = NewClientWithKernels();
  const device::MemoryPiece area = client.space->mapping_area();
  if (Skips(area.bytes != 0, "map chunks")) return;
  const std::uint64_t at = area.base - client.space->base();
  auto low = client.space->MakeChunk(kStep);
  auto high = client.space->MakeChunk(kStep);
  ASSERT_TRUE(low.ok() && high.ok());
  ASSERT_TRUE(client.space->MapChunk(**high, client.At(at + kStep)).ok());
  ASSERT_TRUE(client.space->MapChunk(**low, client.At(at)).ok());
  Write(client, at, Garbage(2 * kStep));
  EXPECT_EQ(Read(client, at, 2 * kStep), Garbage(2 * kStep));
  // Half of what the threads of a block write is in each chunk; their counters are in the first.
  const std::uint64_t out = at + kStep - 128;
  WriteWords(client, at, std::vector<std::uint32_t>(4, 0));
  AwaitOk(Launch(client, "mix", {}, Arguments::Pack(client.At(out), client.At(at), 3u)));
  EXPECT_EQ(ReadWords(client, at, 1).front(), 1u);
  const std::vector<std::uint32_t> words = ReadWords(client, out, 64);
  for (std::uint32_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], Mixed(i + 1, 3)) << i;
}

TEST_P(DeviceConformance, NoWorkAccessesHiddenChunk) {
  const TestClient client = NewClient(16 * kMebibyte, kStep);
  const device::MemoryPiece area = client.space->mapping_area();
  if (Skips(area.bytes != 0, "map chunks")) return;
  auto chunk = client.space->MakeChunk(kStep);
  ASSERT_TRUE(chunk.ok());
  device::FillWork fill;
  fill.space = client.space.get();
  fill.destination = area.base;
  fill.width_bytes = 16;
  EXPECT_EQ(Await(Submit(fill)).status.code(), StatusCode::kInvalidArgument) << "not mapped";
  ASSERT_TRUE(client.space->MapChunk(**chunk, area.base).ok());
  AwaitOk(Submit(fill));
  client.space->HideMapping(area.base);
  EXPECT_EQ(Await(Submit(fill)).status.code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(client.space->Unmap(area.base, kStep).ok());
}

TEST_P(DeviceConformance, ChunksCountAgainstQuotaAndDeviceUntilFreed) {
  const TestClient client = NewClient(4 * kStep, kStep);
  const TestClient other = NewClient(kDeviceBytes, 0);
  if (Skips(client.space->mapping_area().bytes != 0, "map chunks")) return;
  auto chunk = client.space->MakeChunk(2 * kStep);
  ASSERT_TRUE(chunk.ok());
  EXPECT_EQ(client.space->MakeChunk(2 * kStep).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(client.space->Resize(3 * kStep).status().code(), StatusCode::kOutOfMemory);
  EXPECT_FALSE(other.space->Resize(kDeviceBytes - 2 * kStep).ok()) << "the device's, too";
  chunk->reset();
  EXPECT_TRUE(client.space->MakeChunk(2 * kStep).ok());
  EXPECT_TRUE(client.space->Resize(3 * kStep).ok()) << "that one has gone at once";
}

TEST_P(DeviceConformance, AChunkOfADepartedClientReadsAsZeroForTheNext) {
  for (int round = 0; round < 3; ++round) {
    const TestClient client = NewClient(kDeviceBytes, 0);
    const device::MemoryPiece area = client.space->mapping_area();
    if (Skips(area.bytes != 0, "map chunks")) return;
    auto chunk = client.space->MakeChunk(kDeviceBytes);
    ASSERT_TRUE(chunk.ok()) << chunk.status().ToString();
    ASSERT_TRUE(client.space->MapChunk(**chunk, area.base).ok());
    const std::uint64_t at = area.base - client.space->base();
    EXPECT_TRUE(AllZero(Read(client, at, kStep)));
    Write(client, at, Garbage(kStep));
    chunk->reset();  // A mapped chunk is released with the space.
  }
}

TEST_P(DeviceConformance, DestroyedSpaceReturnsAllItsMemory) {
  // The rest of a client's quota is for its modules.
  constexpr std::uint64_t kEach = 16 * kMebibyte - 2 * kStep;
  for (std::uint64_t taken = 0; taken <= 2 * kDeviceBytes; taken += kEach) {
    const TestClient client = NewClientWithKernels();
    ASSERT_TRUE(client.space->Resize(kEach).ok());
  }
  const TestClient last = NewClient(kDeviceBytes, kDeviceBytes);
  EXPECT_TRUE(AllZero(Read(last, 0, kStep)));
}

TEST_P(DeviceConformance, OthersCanUseSwappedOutMemoryWhichReturnsUnchanged) {
  if (Skips(gpu().info().can_move_memory, "move memory")) return;
  const auto store = device::SwapStore::Create({.bytes = kDeviceBytes, .directory = ""}).value();
  ASSERT_TRUE(store->Reserve(8 * kMebibyte).ok());
  auto space = gpu().CreateSpace({.quota_bytes = kDeviceBytes, .store = store});
  ASSERT_TRUE(space.ok()) << space.status().ToString();
  const TestClient client{.space = *std::move(space), .module = nullptr};
  ASSERT_TRUE(client.space->Resize(8 * kMebibyte).ok());
  Write(client, 0, Garbage(8 * kMebibyte));
  const std::uint64_t free = gpu().free_memory_bytes();
  EXPECT_EQ(client.space->mapping_area().bytes, 0U);
  EXPECT_EQ(client.space->MakeChunk(kStep).status().code(), StatusCode::kUnsupported);
  ASSERT_TRUE(testing::SwapOut(*client.space, 6 * kMebibyte).ok());
  EXPECT_EQ(gpu().free_memory_bytes(), free + 6 * kMebibyte);
  EXPECT_EQ(client.space->use().resident_bytes, 2 * kMebibyte);
  {
    const TestClient other = NewClient(kDeviceBytes, free + 6 * kMebibyte);
    EXPECT_TRUE(AllZero(Read(other, free, 6 * kMebibyte)));
    EXPECT_EQ(testing::SwapIn(*client.space, kStep).code(), StatusCode::kOutOfMemory);
  }
  device::FillWork work;
  work.space = client.space.get();
  work.stream = 1;
  work.destination = client.At(4 * kMebibyte);
  work.width_bytes = 4;
  EXPECT_EQ(Await(Submit(work)).status.code(), StatusCode::kInternal);
  ASSERT_TRUE(testing::SwapIn(*client.space, 6 * kMebibyte).ok());
  EXPECT_EQ(Read(client, 0, 8 * kMebibyte), Garbage(8 * kMebibyte));
}

// Makes writes beyond this size fail for every file, for the lifetime of the object.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = signal(SIGXFSZ, SIG_IGN);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  struct rlimit before_ {};
  void (*handler_)(int) = nullptr;
};

TEST_P(DeviceConformance, FailingStoreLeavesMemoryInPlace) {
  if (Skips(gpu().info().can_move_memory, "move memory")) return;
  const ScratchDirectory directory;
  const auto store =
      device::SwapStore::Create({.bytes = 2 * kStep, .directory = directory.path()}).value();
  ASSERT_TRUE(store->Reserve(2 * kStep).ok());
  auto space = gpu().CreateSpace({.quota_bytes = kDeviceBytes, .store = store});
  ASSERT_TRUE(space.ok()) << space.status().ToString();
  const TestClient client{.space = *std::move(space), .module = nullptr};
  ASSERT_TRUE(client.space->Resize(2 * kStep).ok());
  Write(client, 0, Garbage(2 * kStep));
  const std::uint64_t free = gpu().free_memory_bytes();
  {
    const FileLimit limit(kMebibyte);
    EXPECT_EQ(testing::SwapOut(*client.space, 2 * kStep).code(), StatusCode::kInternal);
  }
  EXPECT_EQ(client.space->use().resident_bytes, 2 * kStep);
  EXPECT_EQ(gpu().free_memory_bytes(), free);
  EXPECT_EQ(store->used_bytes(), 0U);
  EXPECT_EQ(Read(client, 0, 2 * kStep), Garbage(2 * kStep));
  ASSERT_TRUE(testing::SwapOut(*client.space, kStep).ok());
  ASSERT_EQ(ftruncate(store->medium().fd(), 0), 0);
  EXPECT_EQ(testing::SwapIn(*client.space, kStep).code(), StatusCode::kInternal);
  EXPECT_EQ(client.space->use().resident_bytes, kStep);
  EXPECT_EQ(gpu().free_memory_bytes(), free + kStep);
}

}  // namespace
}  // namespace gpushared::testing
