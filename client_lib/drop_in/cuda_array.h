// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CUDA_ARRAY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CUDA_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gpushared/client.h"
#include "gpushared/texture_record.h"

#include "client_lib/drop_in/context.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Channels of a texel.
struct TexelType {
  TexelFormat format = {};
  std::uint32_t channels = 0;
  std::uint32_t channel_bytes = 0;

  std::uint32_t bytes() const { return channels * channel_bytes; }
  bool is_float() const {
    return format == TexelFormat::kFloat16 || format == TexelFormat::kFloat32;
  }
};
// Returns the type of a texel. No value unless `format` is a CUarray_format of integers or floats
// (not normalized, planar or block-compressed) and there are 1, 2 or 4 channels.
std::optional<TexelType> GetTexelType(int format, unsigned channels);

// Array: device memory with contiguous rows and slices.
//
// Immutable.
struct CudaArray {
  std::shared_ptr<Context> context;
  ArrayShape3d shape = {};
  TexelType texel;
  DeviceBuffer memory;

  // Returns the texels along an axis; 1 for dimensions that the array does not have.
  std::size_t Extent(int axis) const;
  std::size_t row_bytes() const { return Extent(0) * texel.bytes(); }
  std::size_t slice_bytes() const { return Extent(1) * row_bytes(); }
  std::size_t bytes() const { return Extent(2) * slice_bytes(); }
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CUDA_ARRAY_H_
