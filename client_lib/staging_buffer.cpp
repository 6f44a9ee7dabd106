// SPDX-License-Identifier: Apache-2.0
#include "client_lib/staging_buffer.h"

#include <functional>
#include <optional>
#include <utility>

namespace gpushared::client {

StagingBuffer::StagingBuffer(std::uint32_t number, ipc::SharedSegment segment)
    : number_(number),
      segment_(std::move(segment)),
      blocks_(reinterpret_cast<std::uintptr_t>(segment_.bytes().data())) {
  blocks_.Grow(segment_.size());
}

std::byte* StagingBuffer::Allocate(std::size_t bytes) {
  const std::optional<std::uint64_t> address = blocks_.Allocate(bytes);
  return address ? reinterpret_cast<std::byte*>(*address) : nullptr;
}

void StagingBuffer::Free(std::byte* block) {
  static_cast<void>(blocks_.Release(reinterpret_cast<std::uintptr_t>(block)));
}

bool StagingBuffer::Contains(const void* first, std::size_t bytes) const {
  const auto* const byte = static_cast<const std::byte*>(first);
  const std::byte* const begin = segment_.bytes().data();
  const std::byte* const end = begin + segment_.size();
  // std::less, because < does not order pointers into different objects.
  if (std::less<>()(byte, begin) || !std::less<>()(byte, end)) return false;
  return bytes <= static_cast<std::size_t>(end - byte);
}

std::uint32_t StagingBuffer::GetOffset(const void* byte) const {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(byte) - segment_.bytes().data());
}

}  // namespace gpushared::client
