// SPDX-License-Identifier: Apache-2.0
#include "client_lib/arena.h"

#include <functional>
#include <new>
#include <utility>

#include <boost/interprocess/managed_external_buffer.hpp>

namespace gpushared::client {

namespace {

// Without a mutex of its own: ArenaSet has one, and a mutex inside shared memory would be
// one that another process can break.
using Buffer = boost::interprocess::managed_external_buffer;

}  // namespace

class Arena::Allocator {
 public:
  explicit Allocator(std::span<std::byte> bytes)
      : buffer(boost::interprocess::create_only, bytes.data(), bytes.size()) {}

  Buffer buffer;
};

Arena::Arena(std::uint32_t number, ipc::SharedSegment segment)
    : number_(number),
      segment_(std::move(segment)),
      allocator_(std::make_unique<Allocator>(segment_.bytes())) {}

Arena::~Arena() = default;

std::byte* Arena::Allocate(std::size_t bytes) {
  return static_cast<std::byte*>(
      allocator_->buffer.allocate_aligned(bytes, kAlignmentBytes, std::nothrow));
}

void Arena::Free(std::byte* block) { allocator_->buffer.deallocate(block); }

bool Arena::Contains(const void* first, std::size_t bytes) const {
  const auto* const byte = static_cast<const std::byte*>(first);
  const std::byte* const begin = segment_.bytes().data();
  const std::byte* const end = begin + segment_.size();
  // std::less orders pointers into different objects, which < does not promise.
  if (std::less<>()(byte, begin) || !std::less<>()(byte, end)) return false;
  return bytes <= static_cast<std::size_t>(end - byte);
}

std::uint32_t Arena::OffsetOf(const void* byte) const {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(byte) - segment_.bytes().data());
}

}  // namespace gpushared::client
