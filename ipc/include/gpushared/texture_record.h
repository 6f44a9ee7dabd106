// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces on the cpu device: a record in the client's own device memory.
//
// A client writes a TextureRecord to device memory and passes the record's address to a kernel as
// its cudaTextureObject_t or cudaSurfaceObject_t. Nothing is registered with the server and nothing
// has to be destroyed. The device reads and checks the record anew for each fetch. So a kernel that
// invents a handle, or changes a record, reaches what a load could reach: its own client's memory.
//
// CUDA devices know no such records, and reject fenced kernels with textures.

#ifndef GPUSHARED_TEXTURE_RECORD_H_
#define GPUSHARED_TEXTURE_RECORD_H_

#include <cstddef>
#include <cstdint>

namespace gpushared {

// A channel of a texel, as it is in memory.
enum class TexelFormat : std::uint8_t {
  kUint8 = 1,
  kUint16 = 2,
  kUint32 = 3,
  kInt8 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kFloat16 = 7,  // A kernel reads it as 32-bit float.
  kFloat32 = 8,
};

// What a coordinate outside of the texture means. kWrap and kMirror are for normalised coordinates;
// others are clamped instead.
enum class TextureAddressMode : std::uint8_t { kWrap = 0, kClamp = 1, kMirror = 2, kBorder = 3 };

enum class TextureFilter : std::uint8_t { kPoint = 0, kLinear = 1 };

// A texture of one to three dimensions. Texels lie one behind the other in rows along x, rows in
// slices along y, and slices along z. Surfaces use its place, extents, format and channels only.
//
// A kernel faults where a record is not as said here, and where a texel that it needs lies outside
// of its client's memory.
//
// Thread-compatible value.
struct alignas(64) TextureRecord {
  static constexpr std::uint64_t kMagic = 0x7865745f72687367;

  std::uint64_t magic = kMagic;
  std::uint64_t address = 0;                // Of the first texel; a multiple of a texel's bytes.
  std::uint64_t slice_bytes = 0;            // From a slice to the next one; unused without depth.
  std::uint32_t row_bytes = 0;              // From a row to the next one; unused without height.
  std::uint32_t extents[3] = {};            // Texels along x, y and z; each at least 1.
  TexelFormat format = {};                  // Format of each channel.
  std::uint8_t channels = 1;                // 1, 2 or 4. A kernel reads 0 in the others.
  TextureFilter filter = {};                // kLinear needs values that are read as floats.
  std::uint8_t normalised_coordinates = 0;  // 1: along each axis from 0 to 1; 0: in texels.
  TextureAddressMode address_modes[3] = {};
  std::uint8_t normalised_values = 0;  // 1: 8-bit and 16-bit integers are read as 0..1 or -1..1.
  std::uint32_t border[4] = {};  // What kBorder reads, as a kernel's registers hold it: float bits
                                 // where values are read as floats.
};
static_assert(sizeof(TextureRecord) == 64);

}  // namespace gpushared

#endif  // GPUSHARED_TEXTURE_RECORD_H_
