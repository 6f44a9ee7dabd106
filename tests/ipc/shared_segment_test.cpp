// SPDX-License-Identifier: Apache-2.0
#include "ipc/shared_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/tag_ring.h"
#include "ipc/wire/layout.h"

namespace gpushared::ipc {
namespace {

using ::testing::HasSubstr;
using Access = SharedSegment::Access;

constexpr std::size_t kBytes = 8192;

SharedSegment Make(Access access = Access::kReadWrite, bool peers_read_only = false) {
  Result<SharedSegment> segment = SharedSegment::Create(
      {.name = "test", .bytes = kBytes, .access = access, .peers_read_only = peers_read_only});
  EXPECT_TRUE(segment.ok()) << segment.status().ToString();
  return std::move(*segment);
}

// A peer's memfd with the requested seals.
UniqueFd PeerMemory(std::size_t bytes, int seals, unsigned flags = MFD_ALLOW_SEALING) {
  UniqueFd fd(::memfd_create("peer", flags | MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals),
            seals == 0 && (flags & MFD_ALLOW_SEALING) == 0 ? -1 : 0);
  return fd;
}

Status MapStatus(UniqueFd fd, SharedSegment::MapOptions options = {.bytes = kBytes}) {
  return SharedSegment::Map(std::move(fd), options).status();
}

TEST(SharedSegment, BytesArriveAtTheOtherEnd) {
  const SharedSegment ours = Make();
  Result<SharedSegment> theirs = SharedSegment::Map(UniqueFd(::dup(ours.fd())),
                                                    {.bytes = kBytes, .access = Access::kReadOnly});
  ASSERT_TRUE(theirs.ok()) << theirs.status().ToString();
  ours.bytes()[100] = std::byte{42};
  EXPECT_EQ(theirs->bytes()[100], std::byte{42});
}

TEST(SharedSegment, ReservesMemoryInParts) {
  const Result<SharedSegment> segment =
      SharedSegment::Create({.name = "test", .bytes = kBytes, .reserve = false});
  ASSERT_TRUE(segment.ok()) << segment.status().ToString();
  EXPECT_EQ(segment->MissingBytes(), kBytes);
  EXPECT_TRUE(segment->Reserve(4096, 4096).ok());
  EXPECT_EQ(segment->MissingBytes(), 4096u);
  std::vector<unsigned char> present(2);
  ASSERT_EQ(::mincore(segment->bytes().data(), kBytes, present.data()), 0);
  EXPECT_EQ(present[0] & 1, 0);
  EXPECT_EQ(present[1] & 1, 1);
  EXPECT_TRUE(segment->Reserve(0, 4096).ok());
  EXPECT_EQ(segment->MissingBytes(), 0u);
}

TEST(SharedSegment, SizeCanNeverChange) {
  const SharedSegment segment = Make();
  EXPECT_EQ(::ftruncate(segment.fd(), 4096), -1);
  EXPECT_EQ(::ftruncate(segment.fd(), 2 * kBytes), -1);
  EXPECT_EQ(::ftruncate(segment.fd(), 0), -1);
}

TEST(SharedSegment, NoFurtherSealsCanBeAdded) {
  const SharedSegment segment = Make();
  EXPECT_EQ(::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

// A client gets a descriptor of the worker's own file, so the client must not be able to write to
// the file in any way.
TEST(SharedSegment, PeerCannotWriteWhatIsReadOnlyForPeers) {
  const SharedSegment ours = Make(Access::kReadWrite, true);
  EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ours.fd(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::pwrite(ours.fd(), "x", 1, 0), -1);
  EXPECT_EQ(::fallocate(ours.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  const std::string again = "/proc/self/fd/" + std::to_string(ours.fd());
  UniqueFd reopened(::open(again.c_str(), O_RDWR | O_CLOEXEC));
  if (reopened.valid()) {
    EXPECT_EQ(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, reopened.get(), 0),
              MAP_FAILED);
  }
  void* readable = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, ours.fd(), 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(::mprotect(readable, kBytes, PROT_READ | PROT_WRITE), -1);
  ours.bytes()[0] = std::byte{7};  // This mapping was made before the seal.
  EXPECT_EQ(*static_cast<std::byte*>(readable), std::byte{7});
  ::munmap(readable, kBytes);
  EXPECT_FALSE(SharedSegment::Map(UniqueFd(::dup(ours.fd())),
                                  {.bytes = kBytes, .access = Access::kReadWrite})
                   .ok());
}

TEST(SharedSegment, ReadOnlyMappingFaultsOnWrite) {
  const SharedSegment segment = Make(Access::kReadOnly);
  // The kernel writes to the mapping, so that a write that is not permitted is an error instead of
  // a crash.
  const std::vector<std::byte> source(1);
  const int zero = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(::read(zero, segment.bytes().data(), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  ::close(zero);
}

// Seals do not keep a client from punching holes into memory it may write. The worker must then
// read zeros, which a ring treats as "no new record", and not die of SIGBUS.
TEST(SharedSegment, HolePunchedByThePeerReadsAsZeroAndEmptiesTheRing) {
  Result<SharedSegment> command = SharedSegment::Create(
      {.name = "command", .bytes = kCommandSegmentBytes, .access = Access::kReadOnly});
  ASSERT_TRUE(command.ok());
  Result<SharedSegment> client =
      SharedSegment::Map(UniqueFd(::dup(command->fd())),
                         {.bytes = kCommandSegmentBytes, .access = Access::kReadWrite});
  ASSERT_TRUE(client.ok());
  std::atomic<std::uint64_t> taken{0};
  TagRingWriter writer(client->As<CommandSegment>().granules, taken);
  TagRingReader reader(command->As<const CommandSegment>().granules, taken);
  PlainRecord record;
  record.header.sequence = 1;
  ASSERT_EQ(writer.TryWrite(record), WriteResult::kWritten);
  EXPECT_TRUE(reader.HasRecord());
  ASSERT_EQ(::fallocate(client->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(kCommandSegmentBytes)),
            0);
  RecordCopy copy;
  EXPECT_EQ(reader.TryRead(copy), ReadResult::kEmpty);
  for (const std::byte byte : command->bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST(SharedSegment, CountsOnlyBytesPunchedOutByPeer) {
  const Result<SharedSegment> ours = SharedSegment::Create({.bytes = kBytes});
  ASSERT_TRUE(ours.ok());
  EXPECT_EQ(ours->MissingBytes(), 0U);
  std::memset(ours->bytes().data(), 1, kBytes);
  EXPECT_EQ(ours->MissingBytes(), 0U);
  ASSERT_EQ(::fallocate(ours->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_EQ(ours->MissingBytes(), 4096U);
  ours->bytes()[0] = std::byte{1};
  EXPECT_EQ(ours->MissingBytes(), 0U);
}

TEST(SharedSegment, FreesDiscardedMemoryThoughPeerMapsIt) {
  Result<SharedSegment> ours = SharedSegment::Create({.bytes = kBytes});
  ASSERT_TRUE(ours.ok());
  Result<SharedSegment> theirs = SharedSegment::Map(
      UniqueFd(::dup(ours->fd())), {.bytes = kBytes, .access = Access::kReadWrite});
  ASSERT_TRUE(theirs.ok());
  theirs->bytes()[0] = std::byte{1};
  ours->CloseFd();
  ours->Discard();
  struct stat about {};
  ASSERT_EQ(::fstat(theirs->fd(), &about), 0);
  EXPECT_EQ(about.st_blocks, 0);
  EXPECT_EQ(theirs->bytes()[0], std::byte{0});
  SharedSegment().Discard();
}

TEST(SharedSegment, PeerMemoryWithoutSizeSealsIsRejected) {
  EXPECT_THAT(MapStatus(PeerMemory(kBytes, 0)).message(), HasSubstr("its size is not sealed"));
  EXPECT_THAT(MapStatus(PeerMemory(kBytes, F_SEAL_SHRINK)).message(),
              HasSubstr("its size is not sealed"));
  EXPECT_THAT(MapStatus(PeerMemory(kBytes, F_SEAL_GROW)).message(),
              HasSubstr("its size is not sealed"));
  EXPECT_THAT(MapStatus(PeerMemory(kBytes, 0, 0)).message(), HasSubstr("its size is not sealed"));
  EXPECT_TRUE(MapStatus(PeerMemory(kBytes, F_SEAL_SHRINK | F_SEAL_GROW)).ok());
}

TEST(SharedSegment, PeerMemoryOfAnotherSizeIsRejected) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_EQ(MapStatus(PeerMemory(kBytes - 1, kSeals)).ToString(),
            "ProtocolViolation: segment rejected: it has 8191 bytes, announced were 8192");
  EXPECT_FALSE(MapStatus(PeerMemory(2 * kBytes, kSeals)).ok());
  EXPECT_FALSE(MapStatus(PeerMemory(0, kSeals)).ok());
}

TEST(SharedSegment, ImmutableIsRejectedWithoutTheWriteSeal) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const SharedSegment::MapOptions immutable = {.bytes = kBytes, .must_be_immutable = true};
  EXPECT_THAT(MapStatus(PeerMemory(kBytes, kSeals), immutable).message(),
              HasSubstr("not sealed against writing"));
  EXPECT_TRUE(MapStatus(PeerMemory(kBytes, kSeals | F_SEAL_WRITE), immutable).ok());
}

// Pipes, sockets and files of other file systems cannot be sealed, so they can shrink, and access
// to them can block.
TEST(SharedSegment, DescriptorsThatAreNotMemoryAreRejected) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd other_end(ends[1]);
  EXPECT_THAT(MapStatus(UniqueFd(ends[0])).message(), HasSubstr("not sealable memory"));
  EXPECT_THAT(MapStatus(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))).message(),
              HasSubstr("not sealable memory"));
  EXPECT_THAT(MapStatus(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))).message(),
              HasSubstr("not sealable memory"));
  EXPECT_FALSE(MapStatus(UniqueFd()).ok());
}

TEST(SharedSegment, CopyOfWritableMemoryNeverChanges) {
  const std::vector<std::byte> image((1u << 20) + 100'001, std::byte{9});
  const Result<UniqueFd> writable = MakeFixedMemory("image", image.size());
  ASSERT_TRUE(writable.ok()) << writable.status().ToString();
  ASSERT_TRUE(WriteMemory(writable->get(), image).ok());
  Result<UniqueFd> fd = CopyImmutable("module", writable->get(), image.size());
  ASSERT_TRUE(WriteMemory(writable->get(), std::vector<std::byte>(image.size())).ok());
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  EXPECT_EQ(::pwrite(fd->get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(fd->get(), 1), -1);
  Result<SharedSegment> mapped =
      SharedSegment::Map(std::move(*fd), {.bytes = image.size(), .must_be_immutable = true});
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  EXPECT_EQ(std::memcmp(mapped->bytes().data(), image.data(), image.size()), 0);
}

// A peer that could seal its memory, or change its size, could make operations fail that we rely
// on.
TEST(SharedSegment, FixedMemoryCanBeWrittenButNotResizedOrSealed) {
  const Result<UniqueFd> fd = MakeFixedMemory("image", kBytes);
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  struct stat about {};
  ASSERT_EQ(::fstat(fd->get(), &about), 0);
  EXPECT_EQ(about.st_blocks, 0) << "pages come as somebody writes";
  EXPECT_TRUE(WriteMemory(fd->get(), std::vector<std::byte>(kBytes)).ok());
  EXPECT_FALSE(WriteMemory(fd->get(), std::vector<std::byte>(kBytes + 1)).ok());
  EXPECT_EQ(::ftruncate(fd->get(), 1), -1);
  EXPECT_EQ(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_FALSE(CopyImmutable("module", fd->get(), kBytes + 1).ok());
}

TEST(SharedSegment, DescriptorIsClosedOnExec) {
  const SharedSegment segment = Make();
  EXPECT_NE(::fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SharedSegment, ForkedChildDoesNotInheritTheMapping) {
  const SharedSegment segment = Make();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // mincore returns ENOMEM for unmapped addresses.
    std::vector<unsigned char> pages(kBytes / 4096);
    ::_exit(::mincore(segment.bytes().data(), kBytes, pages.data()) == -1 && errno == ENOMEM ? 0
                                                                                             : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(SharedSegment, MovedFromIsEmptyAndMappingSurvivesItsDescriptor) {
  SharedSegment first = Make();
  first.bytes()[0] = std::byte{3};
  SharedSegment second = std::move(first);
  EXPECT_FALSE(first.valid());
  EXPECT_TRUE(first.bytes().empty());
  second.CloseFd();
  EXPECT_EQ(second.bytes()[0], std::byte{3});
}

// The kernel would reserve page after page until it kills other processes, so the limit is checked
// first. (Do not try this without the limit on a machine that others use.)
TEST(SharedSegment, RejectsSizesBeyondLimitBeforeSystemCall) {
  EXPECT_FALSE(SharedSegment::Create({.name = "none", .bytes = 0}).ok());
  const Status status =
      SharedSegment::Create({.name = "huge", .bytes = SharedSegment::kBytesMax + 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(),
              HasSubstr("huge asks for 1073741825 bytes, allowed: 1 to 1073741824"));
}

}  // namespace
}  // namespace gpushared::ipc
