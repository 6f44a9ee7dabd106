// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/transfers.h"

#include <atomic>
#include <cstring>

namespace gpushared::testing::fake_cuda {
namespace {

using device::cuda::Code;

template <typename T>
void FillRow(std::byte* row, std::size_t width, std::uint32_t value) {
  for (std::size_t i = 0; i < width; ++i) {
    // Running kernels may read these words.
    std::atomic_ref(*reinterpret_cast<T*>(row + i * sizeof(T)))
        .store(static_cast<T>(value), std::memory_order_relaxed);
  }
}

}  // namespace

Code MakeCopy(World& world, const char* call, const Side& to, const Side& from, Area area,
              Work& work, bool& is_pageable) {
  const auto [width, height] = area;
  if (height > 1 && (to.pitch < width || from.pitch < width)) return Code::kInvalidValue;
  for (const Side& side : {to, from}) {
    const std::uint64_t bytes = side.Extent(width, height);
    if (side.host) {
      if (!world.memory.Pinned(side.start, bytes)) is_pageable = true;
    } else if (!world.memory.Accessible(Number(side.start), bytes)) {
      return Code::kInvalidValue;
    }
    work.uses.push_back({.address = Number(side.start), .bytes = bytes});
  }
  work.call = call;
  work.kind = to.host ? Kind::kCopyOut : from.host ? Kind::kCopyIn : Kind::kCopyInside;
  work.bytes = width * height;
  const bool is_wrong = work.bytes >= world.settings.wrong_copy_bytes.value_or(UINT64_MAX);
  work.run = [to, from, width = width, height = height, is_wrong] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memmove(to.start + row * to.pitch, from.start + row * from.pitch, width);
    }
    if (is_wrong) {
      // Adds 1 instead of flipping a bit, so that the errors of a copy to the device and of one
      // back do not cancel out.
      std::byte& last = to.start[to.Extent(width, height) - 1];
      last = static_cast<std::byte>(std::to_integer<unsigned>(last) + 1);
    }
    return Code::kSuccess;
  };
  return Code::kSuccess;
}

Code MakeFill(World& world, const char* call, const Side& to, FillValue value, Area area,
              Work& work) {
  const auto [width, height] = area;
  const std::size_t element = value.element_bytes;
  const std::uint64_t bytes = to.Extent(width * element, height);
  if (element != 1 && element != 2 && element != 4) return Code::kInvalidValue;
  if (Number(to.start) % element != 0 || to.pitch % element != 0 ||
      !world.memory.Accessible(Number(to.start), bytes) ||
      (height > 1 && to.pitch < width * element)) {
    return Code::kInvalidValue;
  }
  work.call = call;
  work.kind = Kind::kFill;
  work.bytes = width * element * height;
  work.uses.push_back({.address = Number(to.start), .bytes = bytes});
  work.run = [to, value, width = width, height = height] {
    for (std::size_t row = 0; row < height; ++row) {
      std::byte* const start = to.start + row * to.pitch;
      if (value.element_bytes == 1) FillRow<std::uint8_t>(start, width, value.value);
      if (value.element_bytes == 2) FillRow<std::uint16_t>(start, width, value.value);
      if (value.element_bytes == 4) FillRow<std::uint32_t>(start, width, value.value);
    }
    return Code::kSuccess;
  };
  return Code::kSuccess;
}

}  // namespace gpushared::testing::fake_cuda
