// SPDX-License-Identifier: Apache-2.0
// Compares the drop-in's declarations of the driver's interface with the CUDA toolkit's, at compile
// time: this file builds exactly when they agree.
#include <type_traits>

// Shows the types of the older forms, too.
#define __CUDA_API_VERSION_INTERNAL
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include "gpushared/texture_record.h"

#include "client_lib/drop_in/calls.h"
#include "tests/support/driver_abi.h"

namespace gpushared::testing {

GPUSHARED_SAME(device::cuda::ContextTarget, CUctx_st);
GPUSHARED_SAME(device::cuda::ModuleTarget, CUmod_st);
GPUSHARED_SAME(device::cuda::FunctionTarget, CUfunc_st);
GPUSHARED_SAME(device::cuda::StreamTarget, CUstream_st);
GPUSHARED_SAME(device::cuda::EventTarget, CUevent_st);
GPUSHARED_SAME(device::cuda::ArrayTarget, CUarray_st);
GPUSHARED_SAME(drop_in::LibraryTarget, CUlib_st);
GPUSHARED_SAME(drop_in::KernelTarget, CUkern_st);
GPUSHARED_SAME(drop_in::GraphTarget, CUgraph_st);
GPUSHARED_SAME(drop_in::LinkTarget, CUlinkState_st);
GPUSHARED_SAME(drop_in::PoolTarget, CUmemPoolHandle_st);
GPUSHARED_SAME(device::cuda::MemoryLocation, CUmemLocation);
GPUSHARED_SAME(device::cuda::AccessDescription, CUmemAccessDesc);
GPUSHARED_SAME(drop_in::PoolProperties, CUmemPoolProps);
GPUSHARED_SAME(device::cuda::Uuid, CUuuid);
GPUSHARED_SAME(device::cuda::Copy2d, CUDA_MEMCPY2D);
GPUSHARED_SAME(drop_in::Copy3d, CUDA_MEMCPY3D);
GPUSHARED_SAME(device::cuda::LaunchConfig, CUlaunchConfig);
GPUSHARED_SAME(drop_in::LegacyDeviceProperties, CUdevprop);
GPUSHARED_SAME(drop_in::ArrayShape, CUDA_ARRAY_DESCRIPTOR);
GPUSHARED_SAME(drop_in::ArrayShape3d, CUDA_ARRAY3D_DESCRIPTOR);
GPUSHARED_SAME(drop_in::TextureResource, CUDA_RESOURCE_DESC);
GPUSHARED_SAME(drop_in::TextureMode, CUDA_TEXTURE_DESC);
GPUSHARED_SAME(drop_in::TextureView, CUDA_RESOURCE_VIEW_DESC);
// The driver calls these back with the same conventions.
GPUSHARED_SAME(std::size_t(int), std::remove_pointer_t<CUoccupancyB2DSize>);
GPUSHARED_SAME(std::remove_pointer_t<drop_in::StreamCallback>,
               std::remove_pointer_t<CUstreamCallback>);

}  // namespace gpushared::testing

namespace gpushared::drop_in {
namespace {

using testing::SameCall;

// One line for each symbol that has a handler and that this toolkit knows.
#define GPUSHARED_SIGNATURE(theirs, handler)                                                 \
  static_assert(SameCall<std::remove_pointer_t<decltype(&drop_in::handler)>, theirs>::value, \
                #handler " is declared otherwise than " #theirs);
#include "signatures.inc"
#undef GPUSHARED_SIGNATURE

// The comparison can fail.
static_assert(!SameCall<Code(int*, int, int*), PFN_cuDeviceGetAttribute_v2000>::value);
static_assert(!SameCall<Code(int*, int), PFN_cuDeviceGetAttribute_v2000>::value);
static_assert(!SameCall<Code(StreamHandle), PFN_cuEventQuery_v2000>::value);
static_assert(!SameCall<Code(const Copy2d*), PFN_cuMemcpy3D_v3020>::value);

GPUSHARED_LAYOUT(Copy3d, CUDA_MEMCPY3D);
GPUSHARED_FIELD(Copy3d, source_x_bytes, CUDA_MEMCPY3D, srcXInBytes);
GPUSHARED_FIELD(Copy3d, source_z, CUDA_MEMCPY3D, srcZ);
GPUSHARED_FIELD(Copy3d, source_lod, CUDA_MEMCPY3D, srcLOD);
GPUSHARED_FIELD(Copy3d, source_type, CUDA_MEMCPY3D, srcMemoryType);
GPUSHARED_FIELD(Copy3d, source_host, CUDA_MEMCPY3D, srcHost);
GPUSHARED_FIELD(Copy3d, source_device, CUDA_MEMCPY3D, srcDevice);
GPUSHARED_FIELD(Copy3d, source_array, CUDA_MEMCPY3D, srcArray);
GPUSHARED_FIELD(Copy3d, source_pitch, CUDA_MEMCPY3D, srcPitch);
GPUSHARED_FIELD(Copy3d, source_height, CUDA_MEMCPY3D, srcHeight);
GPUSHARED_FIELD(Copy3d, destination_x_bytes, CUDA_MEMCPY3D, dstXInBytes);
GPUSHARED_FIELD(Copy3d, destination_z, CUDA_MEMCPY3D, dstZ);
GPUSHARED_FIELD(Copy3d, destination_type, CUDA_MEMCPY3D, dstMemoryType);
GPUSHARED_FIELD(Copy3d, destination_host, CUDA_MEMCPY3D, dstHost);
GPUSHARED_FIELD(Copy3d, destination_device, CUDA_MEMCPY3D, dstDevice);
GPUSHARED_FIELD(Copy3d, destination_pitch, CUDA_MEMCPY3D, dstPitch);
GPUSHARED_FIELD(Copy3d, destination_height, CUDA_MEMCPY3D, dstHeight);
GPUSHARED_FIELD(Copy3d, width_bytes, CUDA_MEMCPY3D, WidthInBytes);
GPUSHARED_FIELD(Copy3d, depth, CUDA_MEMCPY3D, Depth);
GPUSHARED_LAYOUT(ArrayShape, CUDA_ARRAY_DESCRIPTOR);
GPUSHARED_FIELD(ArrayShape, height, CUDA_ARRAY_DESCRIPTOR, Height);
GPUSHARED_FIELD(ArrayShape, format, CUDA_ARRAY_DESCRIPTOR, Format);
GPUSHARED_FIELD(ArrayShape, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
GPUSHARED_LAYOUT(ArrayShape3d, CUDA_ARRAY3D_DESCRIPTOR);
GPUSHARED_FIELD(ArrayShape3d, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
GPUSHARED_FIELD(ArrayShape3d, format, CUDA_ARRAY3D_DESCRIPTOR, Format);
GPUSHARED_FIELD(ArrayShape3d, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
GPUSHARED_LAYOUT(TextureResource, CUDA_RESOURCE_DESC);
GPUSHARED_FIELD(TextureResource, in.array, CUDA_RESOURCE_DESC, res.array.hArray);
GPUSHARED_FIELD(TextureResource, in.linear.address, CUDA_RESOURCE_DESC, res.linear.devPtr);
GPUSHARED_FIELD(TextureResource, in.linear.channels, CUDA_RESOURCE_DESC, res.linear.numChannels);
GPUSHARED_FIELD(TextureResource, in.linear.bytes, CUDA_RESOURCE_DESC, res.linear.sizeInBytes);
GPUSHARED_FIELD(TextureResource, in.pitched.address, CUDA_RESOURCE_DESC, res.pitch2D.devPtr);
GPUSHARED_FIELD(TextureResource, in.pitched.format, CUDA_RESOURCE_DESC, res.pitch2D.format);
GPUSHARED_FIELD(TextureResource, in.pitched.width, CUDA_RESOURCE_DESC, res.pitch2D.width);
GPUSHARED_FIELD(TextureResource, in.pitched.pitch_bytes, CUDA_RESOURCE_DESC,
                res.pitch2D.pitchInBytes);
GPUSHARED_FIELD(TextureResource, flags, CUDA_RESOURCE_DESC, flags);
static_assert(TextureResource::kArray == int{CU_RESOURCE_TYPE_ARRAY});
static_assert(TextureResource::kMipmappedArray == int{CU_RESOURCE_TYPE_MIPMAPPED_ARRAY});
static_assert(TextureResource::kLinear == int{CU_RESOURCE_TYPE_LINEAR});
static_assert(TextureResource::kPitched == int{CU_RESOURCE_TYPE_PITCH2D});
GPUSHARED_LAYOUT(TextureMode, CUDA_TEXTURE_DESC);
GPUSHARED_FIELD(TextureMode, filter, CUDA_TEXTURE_DESC, filterMode);
GPUSHARED_FIELD(TextureMode, flags, CUDA_TEXTURE_DESC, flags);
GPUSHARED_FIELD(TextureMode, anisotropy_max, CUDA_TEXTURE_DESC, maxAnisotropy);
GPUSHARED_FIELD(TextureMode, level_most, CUDA_TEXTURE_DESC, maxMipmapLevelClamp);
GPUSHARED_FIELD(TextureMode, border, CUDA_TEXTURE_DESC, borderColor);
static_assert(kReadAsInteger == CU_TRSF_READ_AS_INTEGER);
static_assert(kNormalisedCoordinates == CU_TRSF_NORMALIZED_COORDINATES);
static_assert(kNoTrilinearShortcut == CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION);
static_assert(kTextureFlags == (kReadAsInteger | kNormalisedCoordinates | kNoTrilinearShortcut |
                                CU_TRSF_SRGB | CU_TRSF_SEAMLESS_CUBEMAP));
static_assert(kArrayForSurfaces == CUDA_ARRAY3D_SURFACE_LDST);
static_assert(static_cast<int>(TextureAddressMode::kWrap) == CU_TR_ADDRESS_MODE_WRAP);
static_assert(static_cast<int>(TextureAddressMode::kClamp) == CU_TR_ADDRESS_MODE_CLAMP);
static_assert(static_cast<int>(TextureAddressMode::kMirror) == CU_TR_ADDRESS_MODE_MIRROR);
static_assert(static_cast<int>(TextureAddressMode::kBorder) == CU_TR_ADDRESS_MODE_BORDER);
static_assert(static_cast<int>(TextureFilter::kPoint) == CU_TR_FILTER_MODE_POINT);
static_assert(static_cast<int>(TextureFilter::kLinear) == CU_TR_FILTER_MODE_LINEAR);
GPUSHARED_LAYOUT(TextureView, CUDA_RESOURCE_VIEW_DESC);
GPUSHARED_FIELD(TextureView, depth, CUDA_RESOURCE_VIEW_DESC, depth);
GPUSHARED_FIELD(TextureView, layer_last, CUDA_RESOURCE_VIEW_DESC, lastLayer);
GPUSHARED_LAYOUT(PoolProperties, CUmemPoolProps);
GPUSHARED_FIELD(PoolProperties, type, CUmemPoolProps, allocType);
GPUSHARED_FIELD(PoolProperties, handle_types, CUmemPoolProps, handleTypes);
GPUSHARED_FIELD(PoolProperties, location, CUmemPoolProps, location);
GPUSHARED_FIELD(PoolProperties, bytes_max, CUmemPoolProps, maxSize);
GPUSHARED_FIELD(PoolProperties, usage, CUmemPoolProps, usage);
GPUSHARED_FIELD(PoolProperties, reserved, CUmemPoolProps, reserved);
GPUSHARED_LAYOUT(LegacyDeviceProperties, CUdevprop);
GPUSHARED_FIELD(LegacyDeviceProperties, block_max, CUdevprop, maxThreadsDim);
GPUSHARED_FIELD(LegacyDeviceProperties, shared_bytes_per_block, CUdevprop, sharedMemPerBlock);
GPUSHARED_FIELD(LegacyDeviceProperties, pitch_bytes_max, CUdevprop, memPitch);
GPUSHARED_FIELD(LegacyDeviceProperties, clock_kilohertz, CUdevprop, clockRate);
GPUSHARED_FIELD(LegacyDeviceProperties, texture_alignment, CUdevprop, textureAlign);

// Names and numbers of errors agree.
#define GPUSHARED_ERROR(code, name, text) static_assert(name == code);
#include "client_lib/drop_in/errors.inc"
#undef GPUSHARED_ERROR

TEST(DropInAbi, HandlesAreTheDriversNumbers) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(LegacyStream()),
            reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(PerThreadStream()),
            reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD));
}

}  // namespace
}  // namespace gpushared::drop_in
