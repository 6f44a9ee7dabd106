// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/cuda_array.h"

#include <algorithm>

namespace gpushared::drop_in {

std::optional<TexelType> GetTexelType(int format, unsigned channels) {
  struct Known {
    int number;  // CUarray_format.
    TexelFormat format;
    std::uint32_t bytes;
  };
  constexpr Known kKnown[] = {
      {0x01, TexelFormat::kUint8, 1},   {0x02, TexelFormat::kUint16, 2},
      {0x03, TexelFormat::kUint32, 4},  {0x08, TexelFormat::kInt8, 1},
      {0x09, TexelFormat::kInt16, 2},   {0x0a, TexelFormat::kInt32, 4},
      {0x10, TexelFormat::kFloat16, 2}, {0x20, TexelFormat::kFloat32, 4},
  };
  const auto* const known = std::ranges::find(kKnown, format, &Known::number);
  if (known == std::end(kKnown) || (channels != 1 && channels != 2 && channels != 4)) {
    return std::nullopt;
  }
  return TexelType{.format = known->format, .channels = channels, .channel_bytes = known->bytes};
}

std::size_t CudaArray::Extent(int axis) const {
  const std::size_t texels = axis == 0 ? shape.width : axis == 1 ? shape.height : shape.depth;
  return std::max<std::size_t>(texels, 1);
}

}  // namespace gpushared::drop_in
