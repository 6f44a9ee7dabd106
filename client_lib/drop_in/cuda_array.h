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

// The channels of a texel.
struct TexelType {
  TexelFormat format = {};
  std::uint32_t channels = 0;
  std::uint32_t channel_bytes = 0;

  std::uint32_t bytes() const { return channels * channel_bytes; }
  bool is_float() const {
    return format == TexelFormat::kFloat16 || format == TexelFormat::kFloat32;
  }
};
// Of a CUarray_format. Nothing for what this library has not: pictures in planes or blocks, three
// channels.
std::optional<TexelType> GetTexelType(int format, unsigned channels);

// An array: device memory in which rows and slices follow each other without gaps.
//
// Immutable.
struct CudaArray {
  std::shared_ptr<Context> context;
  ArrayShape3d shape = {};
  TexelType texel;
  DeviceBuffer memory;

  // Texels along an axis, 1 along what it does not have.
  std::size_t Extent(int axis) const;
  std::size_t row_bytes() const { return Extent(0) * texel.bytes(); }
  std::size_t slice_bytes() const { return Extent(1) * row_bytes(); }
  std::size_t bytes() const { return Extent(2) * slice_bytes(); }
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CUDA_ARRAY_H_
