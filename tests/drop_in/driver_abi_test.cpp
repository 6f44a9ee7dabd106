// SPDX-License-Identifier: Apache-2.0
// Compares the drop-in's declarations of the driver interface with the CUDA toolkit's at compile
// time: this file compiles only if they agree.
#include <type_traits>

// Exposes the types of the older forms, too.
#define __CUDA_API_VERSION_INTERNAL
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include "gpushared/texture_record.h"

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/gate/hooks.h"
#include "client_lib/drop_in/graph.h"
#include "tests/support/driver_abi.h"

namespace gpushared::testing {

GPUSHARED_SAME(drop_in::LibraryTarget, CUlib_st);
GPUSHARED_SAME(drop_in::UserObjectTarget, CUuserObject_st);
GPUSHARED_SAME(drop_in::KernelNodeParametersV1, CUDA_KERNEL_NODE_PARAMS_v1);
GPUSHARED_SAME(drop_in::KernelNodeParameters, CUDA_KERNEL_NODE_PARAMS);
GPUSHARED_SAME(drop_in::HostNodeParameters, CUDA_HOST_NODE_PARAMS);
GPUSHARED_SAME(drop_in::MemoryNodeParameters, CUDA_MEM_ALLOC_NODE_PARAMS);
GPUSHARED_SAME(drop_in::NodeParameters, CUgraphNodeParams);
GPUSHARED_SAME(drop_in::EdgeData, CUgraphEdgeData);
GPUSHARED_SAME(drop_in::InstantiateParameters, CUDA_GRAPH_INSTANTIATE_PARAMS);
GPUSHARED_SAME(drop_in::UpdateResultInfo, CUgraphExecUpdateResultInfo);
GPUSHARED_SAME(device::cuda::LaunchAttribute::Value, CUkernelNodeAttrValue);
GPUSHARED_SAME(drop_in::LinkTarget, CUlinkState_st);
GPUSHARED_SAME(drop_in::PoolTarget, CUmemPoolHandle_st);
GPUSHARED_SAME(drop_in::MipmappedArrayTarget, CUmipmappedArray_st);
GPUSHARED_SAME(device::cuda::MemoryLocation, CUmemLocation);
GPUSHARED_SAME(drop_in::PoolProperties, CUmemPoolProps);
GPUSHARED_SAME(drop_in::PeerCopy3d, CUDA_MEMCPY3D_PEER);
GPUSHARED_SAME(drop_in::CopyHints, CUmemcpyAttributes);
GPUSHARED_SAME(drop_in::CopyOperation, CUDA_MEMCPY3D_BATCH_OP);
GPUSHARED_SAME(drop_in::LegacyDeviceProperties, CUdevprop);
GPUSHARED_SAME(drop_in::ArrayShape, CUDA_ARRAY_DESCRIPTOR);
GPUSHARED_SAME(drop_in::ArrayShape3d, CUDA_ARRAY3D_DESCRIPTOR);
GPUSHARED_SAME(drop_in::TextureResource, CUDA_RESOURCE_DESC);
GPUSHARED_SAME(drop_in::TextureMode, CUDA_TEXTURE_DESC);
GPUSHARED_SAME(drop_in::TextureView, CUDA_RESOURCE_VIEW_DESC);
// Types of functions that the driver calls.
GPUSHARED_SAME(std::size_t(int), std::remove_pointer_t<CUoccupancyB2DSize>);
GPUSHARED_SAME(std::remove_pointer_t<drop_in::StreamCallback>,
               std::remove_pointer_t<CUstreamCallback>);

}  // namespace gpushared::testing

namespace gpushared::drop_in {
namespace {

using testing::SameCall;

// signatures.inc has one line for each symbol that has a handler and is declared by this toolkit.
#define GPUSHARED_SIGNATURE(theirs, handler)                                                 \
  static_assert(SameCall<std::remove_pointer_t<decltype(&drop_in::handler)>, theirs>::value, \
                #handler " is declared otherwise than " #theirs);
// A hook gets the driver's function as its first argument.
template <typename Hook>
struct GetCall;
template <typename Native, typename... Arguments>
struct GetCall<Code(Native, Arguments...)> {
  using Type = Code(Arguments...);
  static_assert(std::is_same_v<Native, Type*>);
};
#define GPUSHARED_HOOK_SIGNATURE(theirs, hook)                                \
  static_assert(SameCall<GetCall<decltype(gate::hook)>::Type, theirs>::value, \
                "the hook " #hook " is declared otherwise than " #theirs);
#include "signatures.inc"
#undef GPUSHARED_HOOK_SIGNATURE
#undef GPUSHARED_SIGNATURE

// Proves that the comparison can fail.
static_assert(!SameCall<Code(int*, int, int*), PFN_cuDeviceGetAttribute_v2000>::value);
static_assert(!SameCall<Code(int*, int), PFN_cuDeviceGetAttribute_v2000>::value);
static_assert(!SameCall<Code(StreamHandle), PFN_cuEventQuery_v2000>::value);
static_assert(!SameCall<Code(const Copy2d*), PFN_cuMemcpy3D_v3020>::value);

GPUSHARED_LAYOUT(PeerCopy3d, CUDA_MEMCPY3D_PEER);
GPUSHARED_FIELD(PeerCopy3d, source.context, CUDA_MEMCPY3D_PEER, srcContext);
GPUSHARED_FIELD(PeerCopy3d, destination.device, CUDA_MEMCPY3D_PEER, dstDevice);
GPUSHARED_FIELD(PeerCopy3d, destination.context, CUDA_MEMCPY3D_PEER, dstContext);
GPUSHARED_LAYOUT(CopyHints, CUmemcpyAttributes);
GPUSHARED_FIELD(CopyHints, source_order, CUmemcpyAttributes, srcAccessOrder);
GPUSHARED_FIELD(CopyHints, destination, CUmemcpyAttributes, dstLocHint);
GPUSHARED_FIELD(CopyHints, flags, CUmemcpyAttributes, flags);
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
static_assert(kArrayLayered == CUDA_ARRAY3D_LAYERED && kArrayCubemap == CUDA_ARRAY3D_CUBEMAP);
static_assert(kArraySparse == CUDA_ARRAY3D_SPARSE &&
              kArrayDeferredMapping == CUDA_ARRAY3D_DEFERRED_MAPPING);
static_assert(static_cast<int>(TextureAddressMode::kWrap) == CU_TR_ADDRESS_MODE_WRAP);
static_assert(static_cast<int>(TextureAddressMode::kClamp) == CU_TR_ADDRESS_MODE_CLAMP);
static_assert(static_cast<int>(TextureAddressMode::kMirror) == CU_TR_ADDRESS_MODE_MIRROR);
static_assert(static_cast<int>(TextureAddressMode::kBorder) == CU_TR_ADDRESS_MODE_BORDER);
static_assert(static_cast<int>(TextureFilter::kPoint) == CU_TR_FILTER_MODE_POINT);
static_assert(static_cast<int>(TextureFilter::kLinear) == CU_TR_FILTER_MODE_LINEAR);
GPUSHARED_LAYOUT(TextureView, CUDA_RESOURCE_VIEW_DESC);
GPUSHARED_FIELD(TextureView, depth, CUDA_RESOURCE_VIEW_DESC, depth);
GPUSHARED_FIELD(TextureView, layer_last, CUDA_RESOURCE_VIEW_DESC, lastLayer);
GPUSHARED_LAYOUT(KernelNodeParametersV1, CUDA_KERNEL_NODE_PARAMS_v1);
GPUSHARED_FIELD(KernelNodeParametersV1, function, CUDA_KERNEL_NODE_PARAMS_v1, func);
GPUSHARED_FIELD(KernelNodeParametersV1, grid_x, CUDA_KERNEL_NODE_PARAMS_v1, gridDimX);
GPUSHARED_FIELD(KernelNodeParametersV1, block_z, CUDA_KERNEL_NODE_PARAMS_v1, blockDimZ);
GPUSHARED_FIELD(KernelNodeParametersV1, shared_bytes, CUDA_KERNEL_NODE_PARAMS_v1, sharedMemBytes);
GPUSHARED_FIELD(KernelNodeParametersV1, parameters, CUDA_KERNEL_NODE_PARAMS_v1, kernelParams);
GPUSHARED_FIELD(KernelNodeParametersV1, extra, CUDA_KERNEL_NODE_PARAMS_v1, extra);
GPUSHARED_LAYOUT(KernelNodeParameters, CUDA_KERNEL_NODE_PARAMS);
GPUSHARED_FIELD(KernelNodeParameters, kernel, CUDA_KERNEL_NODE_PARAMS, kern);
GPUSHARED_FIELD(KernelNodeParameters, context, CUDA_KERNEL_NODE_PARAMS, ctx);
GPUSHARED_FIELD(FillNodeParameters, height, CUDA_MEMSET_NODE_PARAMS_v2, height);
GPUSHARED_LAYOUT(HostNodeParameters, CUDA_HOST_NODE_PARAMS);
GPUSHARED_FIELD(HostNodeParameters, data, CUDA_HOST_NODE_PARAMS, userData);
GPUSHARED_LAYOUT(CopyNodeParameters, CUDA_MEMCPY_NODE_PARAMS);
GPUSHARED_FIELD(CopyNodeParameters, copy, CUDA_MEMCPY_NODE_PARAMS, copyParams);
GPUSHARED_LAYOUT(MemoryNodeParameters, CUDA_MEM_ALLOC_NODE_PARAMS);
GPUSHARED_FIELD(MemoryNodeParameters, access, CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs);
GPUSHARED_FIELD(MemoryNodeParameters, access_count, CUDA_MEM_ALLOC_NODE_PARAMS, accessDescCount);
GPUSHARED_FIELD(MemoryNodeParameters, bytes, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
GPUSHARED_FIELD(MemoryNodeParameters, address, CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
GPUSHARED_LAYOUT(NodeParameters, CUgraphNodeParams);
GPUSHARED_FIELD(NodeParameters, type, CUgraphNodeParams, type);
GPUSHARED_FIELD(NodeParameters, kernel, CUgraphNodeParams, kernel);
GPUSHARED_FIELD(NodeParameters, copy, CUgraphNodeParams, memcpy);
GPUSHARED_FIELD(NodeParameters, child, CUgraphNodeParams, graph);
GPUSHARED_FIELD(NodeParameters, event, CUgraphNodeParams, eventWait);
GPUSHARED_FIELD(NodeParameters, event, CUgraphNodeParams, eventRecord);
GPUSHARED_FIELD(NodeParameters, allocation, CUgraphNodeParams, alloc);
GPUSHARED_FIELD(NodeParameters, freed, CUgraphNodeParams, free);
GPUSHARED_LAYOUT(EdgeData, CUgraphEdgeData);
GPUSHARED_FIELD(EdgeData, to_port, CUgraphEdgeData, to_port);
GPUSHARED_FIELD(EdgeData, type, CUgraphEdgeData, type);
GPUSHARED_LAYOUT(InstantiateParameters, CUDA_GRAPH_INSTANTIATE_PARAMS);
GPUSHARED_FIELD(InstantiateParameters, flags, CUDA_GRAPH_INSTANTIATE_PARAMS, flags);
GPUSHARED_FIELD(InstantiateParameters, error_node, CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out);
GPUSHARED_FIELD(InstantiateParameters, result, CUDA_GRAPH_INSTANTIATE_PARAMS, result_out);
GPUSHARED_LAYOUT(UpdateResultInfo, CUgraphExecUpdateResultInfo);
GPUSHARED_FIELD(UpdateResultInfo, error_node, CUgraphExecUpdateResultInfo, errorNode);
GPUSHARED_FIELD(UpdateResultInfo, error_from_node, CUgraphExecUpdateResultInfo, errorFromNode);
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

TEST(DropInAbi, SpecialHandlesEqualTheDrivers) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(LegacyStream()),
            reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(PerThreadStream()),
            reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD));
}

TEST(DropInAbi, NodeTypesHaveCudasOrder) {
  EXPECT_EQ(Work(KernelWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_KERNEL});
  EXPECT_EQ(Work(CopyWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_MEMCPY});
  EXPECT_EQ(Work(FillWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_MEMSET});
  EXPECT_EQ(Work(HostWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_HOST});
  EXPECT_EQ(Work(ChildWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_GRAPH});
  EXPECT_EQ(Work(EmptyWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_EMPTY});
  EXPECT_EQ(Work(EventWaitWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_WAIT_EVENT});
  EXPECT_EQ(Work(EventRecordWork{}).index(), std::size_t{CU_GRAPH_NODE_TYPE_EVENT_RECORD});
}

}  // namespace
}  // namespace gpushared::drop_in
