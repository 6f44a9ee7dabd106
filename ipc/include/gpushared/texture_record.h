// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces on the cpu device, described by a record in the client's own device memory.
//
// A client writes a TextureRecord to device memory and passes the record's address to a kernel as
// its cudaTextureObject_t or cudaSurfaceObject_t. Nothing is registered with the server, and
// nothing has to be destroyed. The device reads and validates the record again for each fetch, so a
// kernel that forges a handle or changes a record reaches only what a load could reach: memory of
// its own client.
//
// CUDA devices do not support these records, and reject fenced kernels that use textures.

#ifndef GPUSHARED_TEXTURE_RECORD_H_
#define GPUSHARED_TEXTURE_RECORD_H_

#include <cstddef>
#include <cstdint>

namespace gpushared {

// Format of one channel of a texel in memory.
enum class TexelFormat : std::uint8_t {
  kUint8 = 1,
  kUint16 = 2,
  kUint32 = 3,
  kInt8 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kFloat16 = 7,  // Half precision, which kernels read as 32-bit float.
  kFloat32 = 8,
};

// Meaning of a coordinate outside the texture. kWrap and kMirror require normalized coordinates;
// coordinates that are not normalized are clamped instead.
enum class TextureAddressMode : std::uint8_t { kWrap = 0, kClamp = 1, kMirror = 2, kBorder = 3 };

enum class TextureFilter : std::uint8_t { kPoint = 0, kLinear = 1 };

// Texture of one to three dimensions. Texels are contiguous in rows along x, rows form slices along
// y, and slices follow each other along z. A surface uses only the address, strides, extents,
// format and channels of the record.
//
// A kernel faults if the record violates the rules below or if a texel that it needs is outside the
// memory of its client.
//
// Thread-compatible value.
struct alignas(64) TextureRecord {
  static constexpr std::uint64_t kMagic = 0x7865745f72687367;

  std::uint64_t magic = kMagic;
  std::uint64_t address = 0;  // Address of the first texel; a multiple of the texel size.
  // Distance between the starts of two slices; unused without depth.
  std::uint64_t slice_bytes = 0;
  std::uint32_t row_bytes = 0;    // Distance between the starts of two rows; unused without height.
  std::uint32_t extents[3] = {};  // Texels along x, y and z; each at least 1.
  TexelFormat format = {};        // Format of each channel.
  std::uint8_t channels = 1;      // 1, 2 or 4. Kernels read 0 for channels beyond these.
  TextureFilter filter = {};      // kLinear requires values that are read as floats.
  // 1: coordinates run from 0 to 1 along each axis; 0: they count texels.
  std::uint8_t normalised_coordinates = 0;
  TextureAddressMode address_modes[3] = {};
  std::uint8_t normalised_values = 0;  // 1: 8-bit and 16-bit integers are read as 0..1 or -1..1.
  // Color that kBorder yields, as the kernel receives it in registers: float bits if values are
  // read as floats.
  std::uint32_t border[4] = {};
};
static_assert(sizeof(TextureRecord) == 64);

}  // namespace gpushared

#endif  // GPUSHARED_TEXTURE_RECORD_H_
