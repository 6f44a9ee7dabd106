// SPDX-License-Identifier: Apache-2.0
// Variables that another process attributes to a module. Invalid ones are rejected, because the
// client's copies can access every accepted one.
#include "server/device/flat_module.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/prepare.h"

namespace gpushared::device {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint64_t kAreaBytes = 4096;

struct Told {
  std::string name = "counter";
  std::uint64_t address = 0, bytes = 4;
  std::uint32_t space = 0;
};

StatusCode TakenAs(const Told& told) {
  Bytes flat;
  FlatWriter to([&](auto piece) { flat.insert(flat.end(), piece.begin(), piece.end()); });
  to.PutCount(1);
  to.PutText(told.name);
  to.Put(told.address);
  to.Put(told.bytes);
  to.Put(told.space);
  to.Flush();
  FlatReader from(flat);
  const auto taken = TakeVariables(from, kAreaBytes);
  return from.ok() ? taken.status().code() : StatusCode::kInvalidArgument;
}

TEST(FlatVariables, MustLieInTheirModule) {
  EXPECT_EQ(TakenAs({}), StatusCode::kOk);
  EXPECT_EQ(TakenAs({.address = kAreaBytes - 4}), StatusCode::kOk);
  EXPECT_EQ(TakenAs({.address = kAreaBytes, .bytes = 0}), StatusCode::kOk);
  EXPECT_EQ(TakenAs({.bytes = kAreaBytes}), StatusCode::kOk);
  EXPECT_EQ(TakenAs({.address = kElsewhere}), StatusCode::kOk) << "a driver may place it";
  EXPECT_EQ(TakenAs({.address = kAreaBytes - 3}), StatusCode::kInvalidArgument);
  EXPECT_EQ(TakenAs({.address = 1, .bytes = kAreaBytes}), StatusCode::kInvalidArgument);
  EXPECT_EQ(TakenAs({.address = kElsewhere - 1, .bytes = 4}), StatusCode::kInvalidArgument);
  EXPECT_EQ(TakenAs({.address = 8, .bytes = ~std::uint64_t{7}}), StatusCode::kInvalidArgument);
}

TEST(FlatVariables, RequirePlainNamesAndKnownSpace) {
  EXPECT_EQ(TakenAs({.name = std::string("a\0b", 3)}), StatusCode::kInvalidArgument);
  EXPECT_EQ(TakenAs({.name = "a\nb"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(TakenAs({.space = 1}), StatusCode::kOk);
  EXPECT_EQ(TakenAs({.space = 2}), StatusCode::kInvalidArgument);
}

// On the cpu device, variables must be in the module's own memory.
TEST(FlatVariables, MustLieInModuleMemoryOnCpuDevice) {
  const ModuleRecipe recipe{
      .form = ModuleRecipe::Form::kDecoded, .passes = {}, .range_bytes = std::uint64_t{4} << 30};
  constexpr std::string_view kText =
      ".version 7.0\n.target sm_75\n.address_size 64\n"
      ".visible .global .u32 counter[3];\n.visible .entry nothing() { ret; }\n";
  Bytes flat;
  FlatWriter to([&](auto piece) { flat.insert(flat.end(), piece.begin(), piece.end()); });
  ASSERT_TRUE(PrepareModule(recipe, std::as_bytes(std::span(kText)), to).ok());
  to.Flush();
  const auto good = TakePrepared(recipe, flat);
  ASSERT_TRUE(good.ok()) << good.status().message();
  ASSERT_EQ((*good)->variable_infos().size(), 1u);
  EXPECT_EQ((*good)->variable_infos()[0].bytes, 12u);
  const std::string_view name = "counter";
  const auto told = std::ranges::find_end(flat, std::as_bytes(std::span(name)));
  ASSERT_FALSE(told.empty());
  std::ranges::fill_n(told.end(), sizeof(std::uint64_t), std::byte{0xff});
  EXPECT_EQ(TakePrepared(recipe, flat).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpushared::device
