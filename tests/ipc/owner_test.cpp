// SPDX-License-Identifier: Apache-2.0
#include "ipc/owner.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/wire/bytes.h"

namespace gpushared::ipc {
namespace {

using ::testing::HasSubstr;

TEST(Owner, ParsesOwnerInRuleOfEndpoint) {
  const Result<Owner> owner = Owner::Parse("hpc_job:7,hpc_step:batch");
  ASSERT_TRUE(owner.ok()) << owner.status().ToString();
  EXPECT_EQ(owner->Get("hpc_job"), "7");
  EXPECT_EQ(owner->Get("hpc_step"), "batch");
  EXPECT_EQ(owner->Get("pod"), "");
  EXPECT_TRUE(Owner::Parse("").ok());
  EXPECT_TRUE(Owner::Parse("pod:" + std::string(253, 'p')).ok());
}

TEST(Owner, RejectsOtherNamesAndValuesOfARule) {
  const std::string invalid[] = {"job:7",
                                 "hpc_job",
                                 "hpc_job:",
                                 "hpc_job:7,hpc_job:8",
                                 "uid:0",          // Known from the kernel only.
                                 "program:serve",  // Known from the kernel only.
                                 "pod:" + std::string(254, 'p'),
                                 "pod:a\nb",
                                 "pod:\xff",
                                 ",hpc_job:7"};
  for (const std::string& text : invalid) {
    const Status why = Owner::Parse(text).status();
    EXPECT_EQ(why.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(why.message()), HasSubstr("hpc_job (32 bytes)"));
    EXPECT_TRUE(IsPrintableText(why.message())) << why.message();
  }
}

TEST(Owner, RowsOfDifferentOwnersDifferAndAreReadBack) {
  Owner one, other;
  one.Set("namespace", "a");
  other.Set("pod", "a");
  EXPECT_NE(one.ToRow(), other.ToRow());
  EXPECT_EQ(Owner::FromRow(one.ToRow()).Get("namespace"), "a");
  EXPECT_EQ(Owner::FromRow(one.ToRow()).ToRow(), one.ToRow());
}

// Peers choose the names of programs, and a row is read from memory that another process writes.
TEST(Owner, ValuesOfAnyOriginArePrintableAndBounded) {
  Owner owner;
  owner.Set("program", "a\nb\x1b[31m\xff" + std::string(500, 'p'));
  EXPECT_EQ(owner.Get("program"), "a?b?[31m?ppppppp");
  std::string row;
  for (int i = 0; i < 3000; ++i) row += static_cast<char>(i * 7);
  const Owner read = Owner::FromRow(row);
  std::size_t fields = 0;
  read.ForEach([&](std::string_view, const std::string& value) {
    EXPECT_TRUE(IsPrintableText(value));
    ++fields;
  });
  EXPECT_LE(fields, kOwnerFields.size());
  EXPECT_LT(read.ToRow().size(), kOwnerBytes);
  Owner longest;
  for (const OwnerField& field : kOwnerFields) longest.Set(field.name, std::string(4096, 'x'));
  EXPECT_LT(longest.ToRow().size(), kOwnerBytes);
  EXPECT_EQ(std::ranges::count(longest.ToRow(), '\n'), std::ssize(kOwnerFields));
}

}  // namespace
}  // namespace gpushared::ipc
