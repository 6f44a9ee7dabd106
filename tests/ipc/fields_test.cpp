// SPDX-License-Identifier: Apache-2.0
// The visitor of messages: the fields that a message describes are exactly those that are written,
// read and listed.
#include "ipc/wire/fields.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::ipc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

struct Shelf {
  std::string label;
  std::uint32_t books = 0;

  void Visit(Fields& f) {
    f.String("label_bytes", label, 8);
    f.Number("books", books, 1, 9);
  }
};
enum class Kind : std::uint8_t { kPublic = 1, kPrivate = 2 };
struct Address {
  std::uint16_t number = 1;

  void Visit(Fields& f) { f.Number("number", number, 1, 300); }
};
struct Library {
  static constexpr char kName[] = "Library";
  Kind kind = Kind::kPublic;
  bool is_open = false;
  std::optional<std::uint16_t> rooms;
  std::string name;
  Address address;
  std::array<std::uint16_t, 2> floors = {1, 1};
  std::string motto;
  std::vector<Shelf> shelves;

  void Visit(Fields& f) {
    f.Descriptors(3);
    f.Number("kind", kind, 1, 2);
    f.Flag("is_open", is_open);
    f.Optional("rooms", rooms, std::uint16_t{0xffff}, 100);
    f.Text("name", name, 8);
    f.Struct("address", address);
    f.Each("floors", floors, 1, {5, 7});
    const std::uint32_t motto_bytes = f.Length("motto_bytes", motto, 20);
    const std::uint32_t count = f.Count("shelves", shelves.size(), 3);
    f.Reserved<std::uint16_t, 2>();
    f.TailAtMost(50);
    f.Tail(motto, motto_bytes);
    f.Elements("shelves", shelves, count);
  }
};

Library Good() {
  return {.kind = Kind::kPrivate,
          .is_open = true,
          .rooms = 12,
          .name = "main",
          .address = {7},
          .floors = {5, 7},
          .motto = "read",
          .shelves = {{"art", 1}, {"", 9}}};
}

Result<Bytes> EncodeOrFail(Library library) {
  Fields fields(Library::kName);
  library.Visit(fields);
  if (!fields.ok()) return fields.status();
  return std::move(fields).TakePayload();
}

std::string Rejection(const Library& library) {
  return Decode<Library>(Encode(library)).status().message();
}

TEST(Fields, WrittenValuesRoundTrip) {
  const Bytes bytes = Encode(Good());
  EXPECT_EQ(bytes.size(), GetLayout<Library>().bytes + 4 + (4 + 3 + 4) + (4 + 4));
  const Result<Library> library = Decode<Library>(bytes);
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_EQ(library->kind, Kind::kPrivate);
  EXPECT_TRUE(library->is_open);
  EXPECT_EQ(library->rooms, 12);
  EXPECT_EQ(library->name, "main");
  EXPECT_EQ(library->address.number, 7);
  EXPECT_EQ(library->motto, "read");
  ASSERT_EQ(library->shelves.size(), 2u);
  EXPECT_EQ(library->shelves[0].label, "art");
  EXPECT_EQ(library->shelves[1].books, 9u);
  EXPECT_EQ(Encode(*library), bytes);
  EXPECT_FALSE(Decode<Library>(Encode(Library{}))->rooms);
}

TEST(Fields, AreListedWithOffsetsAndLimits) {
  const MessageLayout& layout = GetLayout<Library>();
  std::vector<std::string> limits;
  for (const Field& field : layout.fields) limits.push_back(field.limits);
  EXPECT_THAT(limits, ElementsAre("1 to 2", "0 to 1", "0 to 100 or 65535", "text", "",
                                  "1 to 5, then 1 to 7", "0 to 20", "0 to 3", "0"));
  EXPECT_EQ(layout.fields[3].name, "name");
  EXPECT_EQ(layout.fields[3].offset, 4u);
  EXPECT_EQ(layout.fields[3].bytes, 8u);
  EXPECT_EQ(layout.fields[5].element_bytes, 2u);
  EXPECT_EQ(layout.bytes, 30u);
  EXPECT_EQ(layout.tail_bytes_max, 50u);
  EXPECT_EQ(layout.fds, 3u);
}

TEST(Fields, NamesFirstInvalidFieldWithItsPlace) {
  Library library = Good();
  library.shelves[1].books = 10;
  EXPECT_EQ(Rejection(library), "Library rejected: shelves[1].books is 10, allowed: 1 to 9");
  library.address.number = 301;
  EXPECT_EQ(Rejection(library), "Library rejected: address.number is 301, allowed: 1 to 300");
  library.kind = static_cast<Kind>(3);
  EXPECT_EQ(Rejection(library), "Library rejected: kind is 3, allowed: 1 to 2");
}

TEST(Fields, RejectsPrefixesAndLongerPayloads) {
  Bytes bytes = Encode(Good());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(Decode<Library>(std::span(bytes).first(i)).ok()) << i;
  }
  bytes.resize(bytes.size() + 2);
  EXPECT_THAT(Decode<Library>(bytes).status().message(), HasSubstr("it has 2 bytes too many"));
}

TEST(Fields, NothingIsReadAfterAShortRead) {
  const Bytes three(3);
  Fields fields("Pair", three);
  std::uint32_t number = 7;
  std::uint8_t small = 7;
  fields.Number("number", number);
  fields.Number("small", small);
  EXPECT_EQ(number, 7u);
  EXPECT_EQ(small, 7u);
  EXPECT_EQ(fields.End().message(), "Pair rejected: it is too short");
}

// A length claimed by a peer allocates no memory before its bytes have arrived.
TEST(Fields, MemoryFollowsBytes) {
  const Bytes bytes(4, std::byte{0xff});
  std::string text;
  Fields tail("Tail", bytes);
  tail.Tail(text, tail.Length("text_bytes", text, 0xffffffff));
  EXPECT_THAT(tail.status().message(), HasSubstr("too short"));
  EXPECT_EQ(text.capacity(), std::string().capacity());
  Fields string("String", bytes);
  string.String("text_bytes", text, 0xffffffff);
  EXPECT_THAT(string.status().message(), HasSubstr("too short"));
  EXPECT_EQ(text.capacity(), std::string().capacity());
  std::vector<Shelf> shelves;
  Fields list("List", bytes);
  list.Elements("shelves", shelves, list.Count("shelves", 0, 0xffffffff));
  EXPECT_THAT(list.status().message(), HasSubstr("too short"));
  EXPECT_LE(shelves.size(), 1u);
}

TEST(Fields, TruncatesOrRejectsTextsAsMessageSpecifies) {
  Library library = Good();
  library.name = "a long name";
  library.motto.assign(30, 'm');
  const Result<Library> cut = Decode<Library>(Encode(library));
  ASSERT_TRUE(cut.ok()) << cut.status().ToString();
  EXPECT_EQ(cut->name, "a long ");
  EXPECT_EQ(cut->motto.size(), 20u);
  library.shelves[0].label = "123456789";
  EXPECT_EQ(EncodeOrFail(library).status().message(),
            "Library rejected: shelves[0].label_bytes is 9, allowed: 0 to 8");
  EXPECT_EQ(EncodeOrFail(library).status().code(), StatusCode::kLimitExceeded);
}

TEST(Fields, ListsBeyondTheirLimitsAreRejectedByTheWriter) {
  Library library = Good();
  library.shelves.resize(4);
  EXPECT_EQ(EncodeOrFail(library).status().message(),
            "Library rejected: shelves is 4, allowed: 0 to 3");
  library = Good();
  library.motto.assign(20, 'm');
  library.shelves.assign(3, {"12345678", 1});
  EXPECT_EQ(EncodeOrFail(library).status().message(),
            "Library rejected: it has at least 82 bytes, allowed: 80");
}

}  // namespace
}  // namespace gpushared::ipc
