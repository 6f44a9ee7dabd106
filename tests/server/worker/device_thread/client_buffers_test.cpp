// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/client_buffers.h"

#include <cstdint>
#include <cstring>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/layout.h"
#include "server/device/memory_budget.h"
#include "tests/support/null_device.h"

namespace gpushared::server {
namespace {

// Returns whether the buffer was rejected for this reason.
template <typename Reason>
bool IsRejected(const MaybeRejected& why) {
  return why && std::holds_alternative<Reason>(std::get<Rejection>(why->cause));
}

constexpr std::uint64_t kBufferStep = kMapPageBytes;
constexpr std::uint64_t kBuffersBase = std::uint64_t{1} << 40;
constexpr std::uint64_t kBuffersMapped = 64 * kBufferStep;

class ClientBuffersTest : public ::testing::Test {
 protected:
  ClientBuffersTest() {
    kernel_.why_reach_unknown.clear();
    kernel_.reach_offsets = {0, 8};
  }
  MaybeRejected Add(std::uint64_t offset, std::uint64_t bytes) {
    return buffers_.Add(kBuffersBase + offset, bytes, kBuffersMapped);
  }
  // Returns the access set of a launch with these two words.
  device::Reach GetReach(std::uint64_t first, std::uint64_t second) const {
    std::vector<std::byte> parameters(16);
    std::memcpy(parameters.data(), &first, sizeof first);
    std::memcpy(parameters.data() + 8, &second, sizeof second);
    return buffers_.GetReach(kernel_, parameters);
  }
  // Returns the numbers of the pages where the pieces of the access set begin and end.
  static std::vector<std::uint64_t> GetSteps(const device::Reach& reach) {
    std::vector<std::uint64_t> steps;
    for (const device::MemoryPiece& piece : reach.pieces()) {
      steps.push_back((piece.base - kBuffersBase) / kBufferStep);
      steps.push_back((piece.base + piece.bytes - kBuffersBase) / kBufferStep);
    }
    return steps;
  }

  const gpushared::testing::NullSpace space_{kBuffersBase};
  ClientBuffers buffers_{&space_};
  device::KernelInfo kernel_;
};

TEST_F(ClientBuffersTest, LaunchAccessesPagesOfBuffersItPointsInto) {
  ASSERT_EQ(Add(4 * kBufferStep + 512, 3 * kBufferStep), nullptr);
  ASSERT_EQ(Add(20 * kBufferStep, 256), nullptr);
  const std::uint64_t inside = kBuffersBase + 6 * kBufferStep;
  EXPECT_THAT(GetSteps(GetReach(inside, kBuffersBase + 20 * kBufferStep)),
              ::testing::ElementsAre(4, 8, 20, 21));
  EXPECT_THAT(GetSteps(GetReach(inside, 12345)), ::testing::ElementsAre(4, 8)) << "a number";
  EXPECT_THAT(GetSteps(GetReach(0, inside)), ::testing::ElementsAre(4, 8)) << "a null pointer";
}

TEST_F(ClientBuffersTest, PointerAfterLastElementBelongsToBuffer) {
  ASSERT_EQ(Add(2 * kBufferStep, 2 * kBufferStep), nullptr);
  ASSERT_EQ(Add(4 * kBufferStep, 2 * kBufferStep), nullptr);
  ASSERT_EQ(Add(10 * kBufferStep, 2 * kBufferStep), nullptr);
  EXPECT_THAT(GetSteps(GetReach(kBuffersBase + 4 * kBufferStep, 0)), ::testing::ElementsAre(2, 6));
  EXPECT_THAT(GetSteps(GetReach(kBuffersBase + 12 * kBufferStep, 0)),
              ::testing::ElementsAre(10, 12));
  EXPECT_THAT(GetSteps(GetReach(kBuffersBase + 4 * kBufferStep + 1, 0)),
              ::testing::ElementsAre(4, 6));
}

TEST_F(ClientBuffersTest, UnknownAccessSetIsEverything) {
  ASSERT_EQ(Add(2 * kBufferStep, 2 * kBufferStep), nullptr);
  const std::uint64_t inside = kBuffersBase + 3 * kBufferStep;
  EXPECT_FALSE(GetReach(inside, 0).is_everything());
  EXPECT_TRUE(GetReach(inside, kBuffersBase + 30 * kBufferStep).is_everything()) << "no buffer";
  EXPECT_TRUE(GetReach(inside, kBuffersBase).is_everything()) << "in front of one";
  EXPECT_TRUE(GetReach(0, 7).is_everything()) << "it touches memory, and none that is known";
  const std::uint64_t variables = kBuffersBase + space_.range_bytes() - device::kModuleAreaBytes;
  EXPECT_THAT(GetSteps(GetReach(inside, variables)), ::testing::ElementsAre(2, 4));
  EXPECT_TRUE(buffers_.GetReach(kernel_, std::vector<std::byte>(15)).is_everything());
  kernel_.why_reach_unknown = "line 3: an address comes from memory";
  EXPECT_TRUE(GetReach(inside, 0).is_everything());
}

TEST_F(ClientBuffersTest, FreedBufferIsForgotten) {
  ASSERT_EQ(Add(2 * kBufferStep, 8 * kBufferStep), nullptr);
  ASSERT_EQ(buffers_.Remove(kBuffersBase + 2 * kBufferStep), nullptr);
  EXPECT_TRUE(buffers_.empty());
  // Replaces the buffer by a smaller one at the same address.
  ASSERT_EQ(Add(2 * kBufferStep, kBufferStep), nullptr);
  EXPECT_THAT(GetSteps(GetReach(kBuffersBase + 2 * kBufferStep, 0)), ::testing::ElementsAre(2, 3));
  EXPECT_TRUE(GetReach(kBuffersBase + 5 * kBufferStep, 0).is_everything());
}

TEST_F(ClientBuffersTest, ChangeCountInvalidatesCachedAccessSets) {
  const std::uint64_t before = buffers_.changes();
  ASSERT_EQ(Add(2 * kBufferStep, 256), nullptr);
  const std::uint64_t with_one = buffers_.changes();
  EXPECT_NE(with_one, before);
  EXPECT_NE(Add(2 * kBufferStep, 256), nullptr);
  EXPECT_NE(buffers_.Remove(kBuffersBase), nullptr);
  EXPECT_EQ(buffers_.changes(), with_one) << "what is rejected changes nothing";
  ASSERT_EQ(buffers_.Remove(kBuffersBase + 2 * kBufferStep), nullptr);
  EXPECT_NE(buffers_.changes(), before);
  EXPECT_NE(buffers_.changes(), with_one);
}

TEST_F(ClientBuffersTest, RejectsInvalidBuffers) {
  ASSERT_EQ(Add(4 * kBufferStep, 4096), nullptr);
  EXPECT_TRUE(IsRejected<BufferOverlaps>(Add(4 * kBufferStep, 4096)));
  EXPECT_TRUE(IsRejected<BufferOverlaps>(Add(4 * kBufferStep + 4095, 1)));
  EXPECT_TRUE(IsRejected<BufferOverlaps>(Add(3 * kBufferStep, 2 * kBufferStep)));
  EXPECT_EQ(Add(4 * kBufferStep + 4096, 1), nullptr);
  EXPECT_TRUE(IsRejected<NotMapped>(Add(kBuffersMapped - 1, 2)));
  EXPECT_TRUE(IsRejected<NotMapped>(Add(std::uint64_t{0} - 4096, 4096)));
  EXPECT_TRUE(IsRejected<NotMapped>(buffers_.Add(4096, 4096, kBuffersMapped)));
  EXPECT_TRUE(IsRejected<NoBuffer>(buffers_.Remove(kBuffersBase + 4 * kBufferStep + 1)));
}

TEST_F(ClientBuffersTest, LimitsNumberOfBuffers) {
  for (std::uint64_t i = 0; i < ipc::kBuffersMax; ++i) ASSERT_EQ(Add(i * 256, 256), nullptr);
  EXPECT_TRUE(IsRejected<TooManyBuffers>(Add(ipc::kBuffersMax * 256, 256)));
  ASSERT_EQ(buffers_.Remove(kBuffersBase), nullptr);
  EXPECT_EQ(Add(ipc::kBuffersMax * 256, 256), nullptr);
}

}  // namespace
}  // namespace gpushared::server
