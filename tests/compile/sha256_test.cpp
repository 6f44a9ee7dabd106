// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/sha256.h"

#include <span>
#include <string>

#include <gtest/gtest.h>

namespace gpushared::compile {
namespace {

std::string GetHash(std::string_view text, std::size_t step) {
  Sha256 hash;
  for (std::size_t at = 0; at < text.size(); at += step) {
    hash.Add(std::as_bytes(std::span(text.substr(at, step))));
  }
  return Hexadecimal(hash.Finish());
}

// The examples of FIPS 180-4 and RFC 6234.
TEST(Sha256, GivesThePublishedDigestsForAnyChunks) {
  for (const std::size_t step :
       {std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{4096}}) {
    EXPECT_EQ(GetHash("", step),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(GetHash("abc", step),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(GetHash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", step),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(GetHash(std::string(1000000, 'a'), 1000 * step),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Sha256, FieldsAreSeparated) {
  const auto of = [](std::string_view a, std::string_view b) {
    Sha256 hash;
    hash.AddField(a);
    hash.AddField(b);
    return hash.Finish();
  };
  EXPECT_NE(of("sm_9", "0x"), of("sm_90", "x"));
  EXPECT_EQ(of("a", "b"), of("a", "b"));
}

}  // namespace
}  // namespace gpushared::compile
