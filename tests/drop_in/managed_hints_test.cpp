// SPDX-License-Identifier: Apache-2.0
// Hints about managed memory, on a server that executes nothing.
#include <array>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/drop_in/drop_in_case.h"

namespace gpushared::drop_in {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t kManagedBytes = 8192;
constexpr int kHostOrdinal = -1, kNoOrdinal = -2;  // CU_DEVICE_CPU, CU_DEVICE_INVALID.
enum Advice { kReadMostly = 1, kUnsetReadMostly, kPrefer, kUnsetPrefer, kAccess, kUnsetAccess };
enum RangeAttribute { kIsReadMostly = 1, kPreferred, kAccessedBy, kPrefetched, kPreferredType };

class ManagedHintsTest : public DropInCase {
 protected:
  ManagedHintsTest() { EXPECT_EQ(MemAllocManaged(&memory_, kManagedBytes, 1), Code::kSuccess); }

  int Value(int attribute) {
    int value = 99;
    EXPECT_EQ(MemRangeGetAttribute(&value, sizeof value, attribute, memory_, kManagedBytes),
              Code::kSuccess);
    return value;
  }
  std::vector<int> AccessedBy() {
    std::vector<int> list(3, 99);
    EXPECT_EQ(
        MemRangeGetAttribute(list.data(), 3 * sizeof(int), kAccessedBy, memory_, kManagedBytes),
        Code::kSuccess);
    return list;
  }
  Code Advise(int advice, int device) {
    return MemAdviseV1(memory_, kManagedBytes, advice, device);
  }

  DevicePointer memory_ = 0;
};

TEST_F(ManagedHintsTest, AreStoredAndRemoved) {
  EXPECT_EQ(Value(kIsReadMostly), 0);
  EXPECT_EQ(Value(kPreferred), kNoOrdinal);
  EXPECT_EQ(Value(kPreferredType), 0);
  EXPECT_THAT(AccessedBy(), ElementsAre(kNoOrdinal, kNoOrdinal, kNoOrdinal));
  for (const int advice : {kReadMostly, kPrefer, kAccess, kAccess}) {
    EXPECT_EQ(Advise(advice, 0), Code::kSuccess);
  }
  EXPECT_EQ(Advise(kAccess, kHostOrdinal), Code::kSuccess);
  EXPECT_EQ(Value(kIsReadMostly), 1);
  EXPECT_EQ(Value(kPreferred), 0);
  EXPECT_EQ(Value(kPreferredType), 1);
  EXPECT_THAT(AccessedBy(), ElementsAre(0, kHostOrdinal, kNoOrdinal));
  for (const int advice : {kUnsetReadMostly, kUnsetPrefer, kUnsetAccess}) {
    EXPECT_EQ(Advise(advice, 0), Code::kSuccess);
  }
  EXPECT_EQ(Value(kIsReadMostly), 0);
  EXPECT_EQ(Value(kPreferred), kNoOrdinal);
  EXPECT_THAT(AccessedBy(), ElementsAre(kHostOrdinal, kNoOrdinal, kNoOrdinal));
}

TEST_F(ManagedHintsTest, PrefetchesAreStoredAsLastLocation) {
  EXPECT_EQ(Value(kPrefetched), kNoOrdinal);
  EXPECT_EQ(MemPrefetchAsyncV1(memory_, kManagedBytes, 0, nullptr), Code::kSuccess);
  EXPECT_EQ(Value(kPrefetched), 0);
  EXPECT_EQ(MemPrefetchAsync(memory_, 1, {LocationType::kHost, 0}, 0, nullptr), Code::kSuccess);
  EXPECT_EQ(Value(kPrefetched), kHostOrdinal);
  EXPECT_EQ(MemPrefetchAsync(memory_, 1, {LocationType::kHost, 0}, 1, nullptr),
            Code::kInvalidValue);
}

TEST_F(ManagedHintsTest, BatchPrefetchesEachRangeToItsLocation) {
  DevicePointer other = 0;
  ASSERT_EQ(MemAllocManaged(&other, kManagedBytes, 1), Code::kSuccess);
  std::array<DevicePointer, 2> addresses = {other, memory_};
  std::array<std::size_t, 2> bytes = {kManagedBytes, kManagedBytes}, starts = {0, 1};
  std::array<MemoryLocation, 2> places = {{{LocationType::kDevice, 0}, {LocationType::kHost, 0}}};
  const auto prefetch = [&](unsigned long long flags) {
    return MemPrefetchBatchAsync(addresses.data(), bytes.data(), 2, places.data(), starts.data(), 2,
                                 flags, nullptr);
  };
  EXPECT_EQ(prefetch(0), Code::kSuccess);
  EXPECT_EQ(Value(kPrefetched), kHostOrdinal);
  EXPECT_EQ(prefetch(1), Code::kInvalidValue);
  starts = {1, 0};
  EXPECT_EQ(prefetch(0), Code::kInvalidValue);
  starts = {0, 2};
  EXPECT_EQ(prefetch(0), Code::kInvalidValue);
  EXPECT_EQ(MemDiscardBatchAsync(addresses.data(), bytes.data(), 2, 0, nullptr), Code::kSuccess);
  bytes[1] = kManagedBytes + 1;
  EXPECT_EQ(MemDiscardBatchAsync(addresses.data(), bytes.data(), 2, 0, nullptr),
            Code::kInvalidValue);
}

TEST_F(ManagedHintsTest, AboutOtherMemoryAreRejected) {
  DevicePointer device = 0;
  ASSERT_EQ(MemAlloc(&device, kManagedBytes), Code::kSuccess);
  EXPECT_EQ(MemAdviseV1(device, kManagedBytes, kReadMostly, 0), Code::kInvalidValue);
  EXPECT_EQ(MemPrefetchAsyncV1(device, kManagedBytes, 0, nullptr), Code::kInvalidValue);
  EXPECT_EQ(MemAdviseV1(memory_, 0, kReadMostly, 0), Code::kInvalidValue);
  EXPECT_EQ(MemAdviseV1(memory_ + 1, kManagedBytes, kReadMostly, 0), Code::kInvalidValue);
  EXPECT_EQ(MemAdviseV1(memory_, ~std::size_t{0}, kReadMostly, 0), Code::kInvalidValue);
  EXPECT_EQ(Advise(0, 0), Code::kInvalidValue);
  EXPECT_EQ(Advise(7, 0), Code::kInvalidValue);
  EXPECT_EQ(Advise(kPrefer, 9), Code::kInvalidDevice);
  EXPECT_EQ(Advise(kReadMostly, 9), Code::kSuccess) << "this advice has no location";
}

TEST_F(ManagedHintsTest, AttributesNeedTheirExactSize) {
  std::array<int, 2> value{};
  EXPECT_EQ(MemRangeGetAttribute(value.data(), 8, kPreferred, memory_, kManagedBytes),
            Code::kInvalidValue);
  EXPECT_EQ(MemRangeGetAttribute(value.data(), 6, kAccessedBy, memory_, kManagedBytes),
            Code::kInvalidValue);
  EXPECT_EQ(MemRangeGetAttribute(value.data(), 4, 9, memory_, kManagedBytes), Code::kInvalidValue);
  std::array<void*, 2> data = {&value[0], &value[1]};
  std::array<std::size_t, 2> bytes = {4, 4};
  std::array<int, 2> attributes = {kIsReadMostly, kPreferred};
  EXPECT_EQ(MemRangeGetAttributes(data.data(), bytes.data(), attributes.data(), 2, memory_,
                                  kManagedBytes),
            Code::kSuccess);
  EXPECT_EQ(value, (std::array<int, 2>{0, kNoOrdinal}));
}

}  // namespace
}  // namespace gpushared::drop_in
