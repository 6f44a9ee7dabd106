// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/prepared_cache.h"

#include <gtest/gtest.h>

namespace gpushared::testing {
namespace {

using device::Isolation;
using loader::PreparedCache;

class FakePrepared : public device::PreparedModule {
 public:
  explicit FakePrepared(std::uint64_t bytes) : bytes_(bytes) {}
  std::span<const device::KernelInfo> kernel_infos() const override { return {}; }
  std::uint64_t bytes() const override { return bytes_; }

 private:
  const std::uint64_t bytes_;
};

PreparedCache::Key GetKey(unsigned char content, std::uint32_t uid = 1,
                          Isolation isolation = Isolation::kOff) {
  PreparedCache::Key key{.content = {}, .uid = uid, .isolation = isolation};
  key.content[0] = std::byte{content};
  return key;
}

TEST(PreparedCacheTest, ModulesServeOnlyTheirUser) {
  PreparedCache cache(1000);
  EXPECT_TRUE(cache.Keep(GetKey(1), std::make_shared<FakePrepared>(10)).empty());
  EXPECT_NE(cache.Find(GetKey(1)), nullptr);
  EXPECT_EQ(cache.Find(GetKey(2)), nullptr);
  EXPECT_EQ(cache.Find(GetKey(1, 2)), nullptr);
  EXPECT_EQ(cache.Find(GetKey(1, 1, Isolation::kFence)), nullptr);
  EXPECT_EQ(cache.hits(), 1u);
}

TEST(PreparedCacheTest, EvictsLeastRecentlyUsed) {
  PreparedCache cache(100);
  for (unsigned char i = 0; i < 4; ++i) {
    EXPECT_TRUE(cache.Keep(GetKey(i), std::make_shared<FakePrepared>(25)).empty());
  }
  const auto oldest = cache.Find(GetKey(1));
  EXPECT_NE(oldest, nullptr);
  for (unsigned char i = 2; i < 4; ++i) EXPECT_NE(cache.Find(GetKey(i)), nullptr);
  EXPECT_NE(cache.Find(GetKey(0)), nullptr);
  const auto gone = cache.Keep(GetKey(9), std::make_shared<FakePrepared>(20));
  ASSERT_EQ(gone.size(), 1u) << "the caller frees the evicted module";
  EXPECT_EQ(gone.front(), oldest);
  EXPECT_EQ(cache.Find(GetKey(1)), nullptr);
  EXPECT_NE(cache.Find(GetKey(0)), nullptr);
  EXPECT_EQ(cache.bytes(), 95u);
}

TEST(PreparedCacheTest, NoModuleTakesMoreThanAQuarter) {
  PreparedCache cache(100);
  EXPECT_TRUE(cache.Keep(GetKey(1), std::make_shared<FakePrepared>(26)).empty());
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(cache.Find(GetKey(1)), nullptr);
}

}  // namespace
}  // namespace gpushared::testing
