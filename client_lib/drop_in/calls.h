// SPDX-License-Identifier: Apache-2.0
// Handlers of the driver's functions, in one file per group. Each has the driver's name without
// `cu`, with a version where forms differ. functions.inc lists the symbols that each one serves.
//
// All handlers are thread-safe, check their arguments, and return the driver's error codes.
// Pointers must be valid for the accesses of the driver's function.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CALLS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

template <typename... Pointer>
bool AnyNull(Pointer... pointers) {
  return ((pointers == nullptr) || ...);
}

// Converts between handle types that are the same object here: CUfunction and CUkernel, CUmodule
// and CUlibrary.
template <typename To, typename From>
To As(From handle) {
  return reinterpret_cast<To>(handle);
}

// ---- driver_calls.cpp
Code Init(unsigned flags);
Code DriverGetVersion(int* version);
Code GetProcAddress(const char* name, void** function, int version, std::uint64_t flags);
Code GetProcAddressV2(const char* name, void** function, int version, std::uint64_t flags,
                      ProcAddressResult* result);
Code GetExportTable(const void** table, const Uuid* id);
Code GetErrorName(Code code, const char** name);
Code GetErrorString(Code code, const char** text);
Code ProfilerInitialize(const char* config, const char* output, int mode);
Code ProfilerStart();
Code ProfilerStop();

// ---- device_calls.cpp
Code DeviceGet(int* device, int ordinal);
Code DeviceGetCount(int* count);
Code DeviceGetName(char* name, int bytes, int device);
Code DeviceGetUuid(Uuid* uuid, int device);
Code DeviceGetLuid(char* luid, unsigned* node_mask, int device);
Code DeviceTotalMem(std::size_t* bytes, int device);
Code DeviceGetAttribute(int* value, int attribute, int device);
Code DeviceComputeCapability(int* major, int* minor, int device);
Code DeviceGetProperties(LegacyDeviceProperties* properties, int device);
Code DeviceGetPciBusId(char* id, int bytes, int device);
Code DeviceGetByPciBusId(int* device, const char* id);
Code DeviceCanAccessPeer(int* can, int device, int peer);
Code DeviceGetP2pAttribute(int* value, int attribute, int source, int destination);

// ---- context_calls.cpp
Code DevicePrimaryCtxRetain(ContextHandle* context, int device);
Code DevicePrimaryCtxRelease(int device);
Code DevicePrimaryCtxReset(int device);
Code DevicePrimaryCtxSetFlags(int device, unsigned flags);
Code DevicePrimaryCtxGetState(int device, unsigned* flags, int* is_active);
Code CtxCreate(ContextHandle* context, unsigned flags, int device);
Code CtxCreateV3(ContextHandle* context, void* affinities, int affinity_count, unsigned flags,
                 int device);
Code CtxCreateV4(ContextHandle* context, void* parameters, unsigned flags, int device);
Code CtxDestroy(ContextHandle context);
Code CtxAttach(ContextHandle* context, unsigned flags);
Code CtxDetach(ContextHandle context);
Code CtxPushCurrent(ContextHandle context);
Code CtxPopCurrent(ContextHandle* context);
Code CtxSetCurrent(ContextHandle context);
Code CtxGetCurrent(ContextHandle* context);
Code CtxGetDevice(int* device);
Code CtxGetDeviceV2(int* device, ContextHandle context);
Code CtxGetFlags(unsigned* flags);
Code CtxSetFlags(unsigned flags);
Code CtxGetId(ContextHandle context, unsigned long long* id);
Code CtxGetApiVersion(ContextHandle context, unsigned* version);
Code CtxGetLimit(std::size_t* value, int limit);
Code CtxSetLimit(int limit, std::size_t value);
Code CtxGetCacheConfig(int* config);
Code CtxSetCacheConfig(int config);
Code CtxGetSharedMemConfig(int* config);
Code CtxSetSharedMemConfig(int config);
Code CtxResetPersistingL2Cache();
Code CtxGetStreamPriorityRange(int* least, int* greatest);
Code CtxSynchronize();
Code CtxSynchronizeV2(ContextHandle context);

// ---- peer_calls.cpp
Code CtxEnablePeerAccess(ContextHandle peer, unsigned flags);
Code CtxDisablePeerAccess(ContextHandle peer);
Code MemcpyPeer(DevicePointer destination, ContextHandle destination_context, DevicePointer source,
                ContextHandle source_context, std::size_t bytes);
Code MemcpyPeerAsync(DevicePointer destination, ContextHandle destination_context,
                     DevicePointer source, ContextHandle source_context, std::size_t bytes,
                     StreamHandle stream);
Code Memcpy3dPeer(const PeerCopy3d* copy);
Code Memcpy3dPeerAsync(const PeerCopy3d* copy, StreamHandle stream);

// ---- memory_calls.cpp
Code MemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
Code MemAlloc(DevicePointer* address, std::size_t bytes);
Code MemAllocPitch(DevicePointer* address, std::size_t* pitch, std::size_t width_bytes,
                   std::size_t height, unsigned element_bytes);
Code MemFree(DevicePointer address);
Code MemGetAddressRange(DevicePointer* base, std::size_t* bytes, DevicePointer address);
Code PointerGetAttribute(void* value, int attribute, DevicePointer address);
Code PointerGetAttributes(unsigned count, int* attributes, void** values, DevicePointer address);
Code PointerSetAttribute(const void* value, int attribute, DevicePointer address);
Code MemAllocHost(void** address, std::size_t bytes);
Code MemAllocManaged(DevicePointer* address, std::size_t bytes, unsigned flags);
Code StreamAttachMemAsync(StreamHandle stream, DevicePointer address, std::size_t bytes,
                          unsigned flags);
Code MemHostGetDevicePointer(DevicePointer* address, void* host, unsigned flags);
Code MemHostAlloc(void** address, std::size_t bytes, unsigned flags);
Code MemFreeHost(void* address);
Code MemHostGetFlags(unsigned* flags, void* address);
Code MemHostRegister(void* address, std::size_t bytes, unsigned flags);
Code MemHostUnregister(void* address);

// ---- managed_calls.cpp
Code MemAdvise(DevicePointer address, std::size_t bytes, int advice, MemoryLocation location);
Code MemAdviseV1(DevicePointer address, std::size_t bytes, int advice, int device);
Code MemPrefetchAsync(DevicePointer address, std::size_t bytes, MemoryLocation location,
                      unsigned flags, StreamHandle stream);
Code MemPrefetchAsyncV1(DevicePointer address, std::size_t bytes, int device, StreamHandle stream);
Code MemPrefetchBatchAsync(DevicePointer* addresses, std::size_t* bytes, std::size_t count,
                           MemoryLocation* locations, std::size_t* location_starts,
                           std::size_t location_count, unsigned long long flags,
                           StreamHandle stream);
Code MemDiscardBatchAsync(DevicePointer* addresses, std::size_t* bytes, std::size_t count,
                          unsigned long long flags, StreamHandle stream);
Code MemDiscardAndPrefetchBatchAsync(DevicePointer* addresses, std::size_t* bytes,
                                     std::size_t count, MemoryLocation* locations,
                                     std::size_t* location_starts, std::size_t location_count,
                                     unsigned long long flags, StreamHandle stream);
Code MemRangeGetAttribute(void* data, std::size_t data_bytes, int attribute, DevicePointer address,
                          std::size_t bytes);
Code MemRangeGetAttributes(void** data, std::size_t* data_bytes, int* attributes, std::size_t count,
                           DevicePointer address, std::size_t bytes);

// ---- pool_calls.cpp
Code MemAllocAsync(DevicePointer* address, std::size_t bytes, StreamHandle stream);
Code MemAllocFromPoolAsync(DevicePointer* address, std::size_t bytes, PoolHandle pool,
                           StreamHandle stream);
Code MemFreeAsync(DevicePointer address, StreamHandle stream);
Code MemPoolCreate(PoolHandle* pool, const PoolProperties* properties);
Code MemPoolDestroy(PoolHandle pool);
Code MemPoolGetAttribute(PoolHandle pool, int attribute, void* value);
Code MemPoolSetAttribute(PoolHandle pool, int attribute, void* value);
Code MemPoolTrimTo(PoolHandle pool, std::size_t bytes);
Code MemPoolGetAccess(int* access, PoolHandle pool, MemoryLocation* location);
Code MemPoolSetAccess(PoolHandle pool, const AccessDescription* list, std::size_t count);
Code DeviceGetDefaultMemPool(PoolHandle* pool, int device);
Code DeviceGetMemPool(PoolHandle* pool, int device);
Code DeviceSetMemPool(int device, PoolHandle pool);
Code MemGetDefaultMemPool(PoolHandle* pool, MemoryLocation* location, AllocationType type);
Code MemGetMemPool(PoolHandle* pool, MemoryLocation* location, AllocationType type);
Code MemSetMemPool(MemoryLocation* location, AllocationType type, PoolHandle pool);

// ---- virtual_calls.cpp
Code MemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* properties,
                                 int option);
Code MemAddressReserve(DevicePointer* address, std::size_t bytes, std::size_t alignment,
                       DevicePointer wanted, std::uint64_t flags);
Code MemAddressFree(DevicePointer address, std::size_t bytes);
Code MemCreate(std::uint64_t* handle, std::size_t bytes, const AllocationProperties* properties,
               std::uint64_t flags);
Code MemRelease(std::uint64_t handle);
Code MemRetainAllocationHandle(std::uint64_t* handle, void* address);
Code MemGetAllocationPropertiesFromHandle(AllocationProperties* properties, std::uint64_t handle);
Code MemMap(DevicePointer address, std::size_t bytes, std::size_t offset, std::uint64_t handle,
            std::uint64_t flags);
Code MemUnmap(DevicePointer address, std::size_t bytes);
Code MemSetAccess(DevicePointer address, std::size_t bytes, const AccessDescription* list,
                  std::size_t count);
Code MemGetAccess(std::uint64_t* access, const MemoryLocation* location, DevicePointer address);
Code MemExportToShareableHandle(void* shareable, std::uint64_t handle, int type,
                                std::uint64_t flags);
Code MemImportFromShareableHandle(std::uint64_t* handle, void* shareable, int type);

// ---- copy_calls.cpp
Code Memcpy(DevicePointer destination, DevicePointer source, std::size_t bytes);
Code MemcpyAsync(DevicePointer destination, DevicePointer source, std::size_t bytes,
                 StreamHandle stream);
Code MemcpyHtoD(DevicePointer destination, const void* source, std::size_t bytes);
Code MemcpyHtoDAsync(DevicePointer destination, const void* source, std::size_t bytes,
                     StreamHandle stream);
Code MemcpyDtoH(void* destination, DevicePointer source, std::size_t bytes);
Code MemcpyDtoHAsync(void* destination, DevicePointer source, std::size_t bytes,
                     StreamHandle stream);
Code MemcpyDtoD(DevicePointer destination, DevicePointer source, std::size_t bytes);
Code MemcpyDtoDAsync(DevicePointer destination, DevicePointer source, std::size_t bytes,
                     StreamHandle stream);
Code Memcpy2d(const Copy2d* copy);
Code Memcpy2dAsync(const Copy2d* copy, StreamHandle stream);
Code Memcpy3d(const Copy3d* copy);
Code Memcpy3dAsync(const Copy3d* copy, StreamHandle stream);

Code MemcpyAtoA(ArrayHandle destination, std::size_t destination_offset, ArrayHandle source,
                std::size_t source_offset, std::size_t bytes);
Code MemcpyAtoD(DevicePointer destination, ArrayHandle source, std::size_t source_offset,
                std::size_t bytes);
Code MemcpyDtoA(ArrayHandle destination, std::size_t destination_offset, DevicePointer source,
                std::size_t bytes);
Code MemcpyAtoH(void* destination, ArrayHandle source, std::size_t source_offset,
                std::size_t bytes);
Code MemcpyAtoHAsync(void* destination, ArrayHandle source, std::size_t source_offset,
                     std::size_t bytes, StreamHandle stream);
Code MemcpyHtoA(ArrayHandle destination, std::size_t destination_offset, const void* source,
                std::size_t bytes);
Code MemcpyHtoAAsync(ArrayHandle destination, std::size_t destination_offset, const void* source,
                     std::size_t bytes, StreamHandle stream);

// ---- copy_batch_calls.cpp
Code MemcpyBatchAsync(DevicePointer* destinations, DevicePointer* sources, std::size_t* bytes,
                      std::size_t count, CopyHints* hints, std::size_t* hint_starts,
                      std::size_t hint_count, StreamHandle stream);
Code MemcpyBatchAsyncV1(DevicePointer* destinations, DevicePointer* sources, std::size_t* bytes,
                        std::size_t count, CopyHints* hints, std::size_t* hint_starts,
                        std::size_t hint_count, std::size_t* failed, StreamHandle stream);
Code MemcpyWithAttributesAsync(DevicePointer destination, DevicePointer source, std::size_t bytes,
                               CopyHints* hints, StreamHandle stream);
Code Memcpy3dBatchAsync(std::size_t count, CopyOperation* operations, std::uint64_t flags,
                        StreamHandle stream);
Code Memcpy3dBatchAsyncV1(std::size_t count, CopyOperation* operations, std::size_t* failed,
                          std::uint64_t flags, StreamHandle stream);
Code Memcpy3dWithAttributesAsync(CopyOperation* operation, std::uint64_t flags,
                                 StreamHandle stream);

// ---- array_calls.cpp
Code ArrayCreate(ArrayHandle* array, const ArrayShape* shape);
Code Array3dCreate(ArrayHandle* array, const ArrayShape3d* shape);
Code ArrayGetDescriptor(ArrayShape* shape, ArrayHandle array);
Code Array3dGetDescriptor(ArrayShape3d* shape, ArrayHandle array);
Code ArrayDestroy(ArrayHandle array);

// ---- texture_calls.cpp
Code TexObjectCreate(TextureHandle* texture, const TextureResource* resource,
                     const TextureMode* mode, const TextureView* view);
Code TexObjectDestroy(TextureHandle texture);
Code TexObjectGetResourceDesc(TextureResource* resource, TextureHandle texture);
Code TexObjectGetTextureDesc(TextureMode* mode, TextureHandle texture);
Code TexObjectGetResourceViewDesc(TextureView* view, TextureHandle texture);
Code SurfObjectCreate(TextureHandle* surface, const TextureResource* resource);
Code SurfObjectDestroy(TextureHandle surface);
Code SurfObjectGetResourceDesc(TextureResource* resource, TextureHandle surface);
Code DeviceGetTexture1dLinearMaxWidth(std::size_t* texels, int format, unsigned channels,
                                      int device);

// ---- fill_calls.cpp
Code MemsetD8(DevicePointer destination, unsigned char value, std::size_t count);
Code MemsetD16(DevicePointer destination, unsigned short value, std::size_t count);
Code MemsetD32(DevicePointer destination, unsigned value, std::size_t count);
Code MemsetD8Async(DevicePointer destination, unsigned char value, std::size_t count,
                   StreamHandle stream);
Code MemsetD16Async(DevicePointer destination, unsigned short value, std::size_t count,
                    StreamHandle stream);
Code MemsetD32Async(DevicePointer destination, unsigned value, std::size_t count,
                    StreamHandle stream);
Code MemsetD2D8(DevicePointer destination, std::size_t pitch, unsigned char value,
                std::size_t width, std::size_t height);
Code MemsetD2D16(DevicePointer destination, std::size_t pitch, unsigned short value,
                 std::size_t width, std::size_t height);
Code MemsetD2D32(DevicePointer destination, std::size_t pitch, unsigned value, std::size_t width,
                 std::size_t height);
Code MemsetD2D8Async(DevicePointer destination, std::size_t pitch, unsigned char value,
                     std::size_t width, std::size_t height, StreamHandle stream);
Code MemsetD2D16Async(DevicePointer destination, std::size_t pitch, unsigned short value,
                      std::size_t width, std::size_t height, StreamHandle stream);
Code MemsetD2D32Async(DevicePointer destination, std::size_t pitch, unsigned value,
                      std::size_t width, std::size_t height, StreamHandle stream);

// ---- module_calls.cpp
Code ModuleLoad(ModuleHandle* module, const char* path);
Code ModuleLoadData(ModuleHandle* module, const void* image);
Code ModuleLoadDataEx(ModuleHandle* module, const void* image, unsigned option_count,
                      JitOption* options, void** values);
Code ModuleLoadFatBinary(ModuleHandle* module, const void* image);
Code ModuleUnload(ModuleHandle module);
Code ModuleGetFunction(FunctionHandle* function, ModuleHandle module, const char* name);
Code ModuleGetFunctionCount(unsigned* count, ModuleHandle module);
Code ModuleEnumerateFunctions(FunctionHandle* functions, unsigned count, ModuleHandle module);
Code ModuleGetGlobal(DevicePointer* address, std::size_t* bytes, ModuleHandle module,
                     const char* name);
Code ModuleGetLoadingMode(LoadingMode* mode);
Code LibraryLoadData(LibraryHandle* library, const void* image, JitOption* options, void** values,
                     unsigned option_count, void* library_options, void** library_values,
                     unsigned library_option_count);
Code LibraryLoadFromFile(LibraryHandle* library, const char* path, JitOption* options,
                         void** values, unsigned option_count, void* library_options,
                         void** library_values, unsigned library_option_count);
Code LibraryUnload(LibraryHandle library);
Code LibraryGetKernel(KernelHandle* kernel, LibraryHandle library, const char* name);
Code LibraryGetKernelCount(unsigned* count, LibraryHandle library);
Code LibraryEnumerateKernels(KernelHandle* kernels, unsigned count, LibraryHandle library);
Code LibraryGetGlobal(DevicePointer* address, std::size_t* bytes, LibraryHandle library,
                      const char* name);
Code LibraryGetManaged(DevicePointer* address, std::size_t* bytes, LibraryHandle library,
                       const char* name);
Code LibraryGetModule(ModuleHandle* module, LibraryHandle library);

// ---- link_calls.cpp
Code LinkCreate(unsigned option_count, JitOption* options, void** values, LinkHandle* link);
Code LinkAddData(LinkHandle link, int type, void* data, std::size_t bytes, const char* name,
                 unsigned option_count, JitOption* options, void** values);
Code LinkAddFile(LinkHandle link, int type, const char* path, unsigned option_count,
                 JitOption* options, void** values);
Code LinkComplete(LinkHandle link, void** image, std::size_t* bytes);
Code LinkDestroy(LinkHandle link);

// ---- kernel_calls.cpp
Code FuncGetModule(ModuleHandle* module, FunctionHandle function);
Code FuncGetName(const char** name, FunctionHandle function);
Code FuncGetParamCount(FunctionHandle function, std::size_t* count);
Code FuncGetParamInfo(FunctionHandle function, std::size_t index, std::size_t* offset,
                      std::size_t* bytes);
Code FuncIsLoaded(int* state, FunctionHandle function);
Code FuncLoad(FunctionHandle function);
Code FuncGetAttribute(int* value, int attribute, FunctionHandle function);
Code FuncSetAttribute(FunctionHandle function, int attribute, int value);
Code FuncSetCacheConfig(FunctionHandle function, int config);
Code FuncSetSharedMemConfig(FunctionHandle function, int config);
Code KernelGetFunction(FunctionHandle* function, KernelHandle kernel);
Code KernelGetLibrary(LibraryHandle* library, KernelHandle kernel);
Code KernelGetName(const char** name, KernelHandle kernel);
Code KernelGetParamCount(KernelHandle kernel, std::size_t* count);
Code KernelGetParamInfo(KernelHandle kernel, std::size_t index, std::size_t* offset,
                        std::size_t* bytes);
Code KernelGetAttribute(int* value, int attribute, KernelHandle kernel, int device);
Code KernelSetAttribute(int attribute, int value, KernelHandle kernel, int device);
Code KernelSetCacheConfig(KernelHandle kernel, int config, int device);

// ---- launch_calls.cpp
Code LaunchKernel(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  StreamHandle stream, void** parameters, void** extra);
Code LaunchKernelEx(const LaunchConfig* config, FunctionHandle function, void** parameters,
                    void** extra);
Code LaunchCooperativeKernel(FunctionHandle function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, StreamHandle stream, void** parameters);
Code FuncSetBlockShape(FunctionHandle function, int x, int y, int z);
Code FuncSetSharedSize(FunctionHandle function, unsigned bytes);
Code ParamSetSize(FunctionHandle function, unsigned bytes);
Code ParamSeti(FunctionHandle function, int offset, unsigned value);
Code ParamSetf(FunctionHandle function, int offset, float value);
Code ParamSetv(FunctionHandle function, int offset, void* value, unsigned bytes);
Code Launch(FunctionHandle function);
Code LaunchGrid(FunctionHandle function, int width, int height);
Code LaunchGridAsync(FunctionHandle function, int width, int height, StreamHandle stream);

// ---- stream_calls.cpp
Code StreamCreate(StreamHandle* stream, unsigned flags);
Code StreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority);
Code StreamDestroy(StreamHandle stream);
Code StreamSynchronize(StreamHandle stream);
Code StreamQuery(StreamHandle stream);
Code StreamWaitEvent(StreamHandle stream, EventHandle event, unsigned flags);
Code StreamGetFlags(StreamHandle stream, unsigned* flags);
Code StreamGetPriority(StreamHandle stream, int* priority);
Code StreamGetId(StreamHandle stream, unsigned long long* id);
Code StreamGetCtx(StreamHandle stream, ContextHandle* context);
Code StreamGetCtxV2(StreamHandle stream, ContextHandle* context, GreenContextHandle* green);
Code StreamGetDevice(StreamHandle stream, int* device);
Code StreamGetAttribute(StreamHandle stream, int attribute, LaunchAttribute::Value* value);
Code StreamSetAttribute(StreamHandle stream, int attribute, const LaunchAttribute::Value* value);
Code StreamCopyAttributes(StreamHandle to, StreamHandle from);
Code LaunchHostFunc(StreamHandle stream, HostFunction function, void* data);
Code LaunchHostFuncV2(StreamHandle stream, HostFunction function, void* data, unsigned mode);
Code StreamAddCallback(StreamHandle stream, StreamCallback callback, void* data, unsigned flags);

// ---- capture_calls.cpp
Code StreamBeginCapture(StreamHandle stream, int mode);
Code StreamBeginCaptureV1(StreamHandle stream);
Code StreamBeginCaptureToGraph(StreamHandle stream, GraphHandle graph, const GraphNodeHandle* needs,
                               const EdgeData* edges, std::size_t count, int mode);
Code StreamEndCapture(StreamHandle handle, GraphHandle* graph);
Code StreamIsCapturing(StreamHandle handle, int* status);
Code StreamGetCaptureInfo(StreamHandle handle, int* status, std::uint64_t* id);
Code StreamGetCaptureInfoV2(StreamHandle handle, int* status, std::uint64_t* id, GraphHandle* graph,
                            const GraphNodeHandle** needs, std::size_t* count);
Code StreamGetCaptureInfoV3(StreamHandle handle, int* status, std::uint64_t* id, GraphHandle* graph,
                            const GraphNodeHandle** needs, const EdgeData** edges,
                            std::size_t* count);
Code StreamUpdateCaptureDependenciesV2(StreamHandle handle, GraphNodeHandle* needs,
                                       const EdgeData* edges, std::size_t count, unsigned flags);
Code StreamUpdateCaptureDependencies(StreamHandle stream, GraphNodeHandle* needs, std::size_t count,
                                     unsigned flags);
Code ThreadExchangeStreamCaptureMode(int* mode);

// ---- graph_calls.cpp
Code GraphCreate(GraphHandle* handle, unsigned flags);
Code GraphDestroy(GraphHandle handle);
Code GraphClone(GraphHandle* clone, GraphHandle handle);
Code GraphNodeFindInClone(GraphNodeHandle* found, GraphNodeHandle original, GraphHandle clone);
Code GraphDebugDotPrint(GraphHandle handle, const char* path, unsigned);
Code GraphGetNodes(GraphHandle handle, GraphNodeHandle* list, std::size_t* count);
Code GraphGetRootNodes(GraphHandle handle, GraphNodeHandle* list, std::size_t* count);
Code GraphGetEdgesV2(GraphHandle handle, GraphNodeHandle* from, GraphNodeHandle* to, EdgeData* data,
                     std::size_t* count);
Code GraphGetEdges(GraphHandle graph, GraphNodeHandle* from, GraphNodeHandle* to,
                   std::size_t* count);
Code GraphNodeGetDependenciesV2(GraphNodeHandle handle, GraphNodeHandle* list, EdgeData* data,
                                std::size_t* count);
Code GraphNodeGetDependencies(GraphNodeHandle node, GraphNodeHandle* list, std::size_t* count);
Code GraphNodeGetDependentNodesV2(GraphNodeHandle handle, GraphNodeHandle* list, EdgeData* data,
                                  std::size_t* count);
Code GraphNodeGetDependentNodes(GraphNodeHandle node, GraphNodeHandle* list, std::size_t* count);
Code GraphNodeGetType(GraphNodeHandle handle, int* type);
Code GraphNodeGetContainingGraph(GraphNodeHandle handle, GraphHandle* graph);
Code GraphNodeGetLocalId(GraphNodeHandle handle, unsigned* id);
Code GraphNodeGetToolsId(GraphNodeHandle handle, unsigned long long* id);
Code GraphGetId(GraphHandle handle, unsigned* id);
Code GraphAddDependenciesV2(GraphHandle handle, const GraphNodeHandle* from,
                            const GraphNodeHandle* to, const EdgeData* data, std::size_t count);
Code GraphAddDependencies(GraphHandle graph, const GraphNodeHandle* from, const GraphNodeHandle* to,
                          std::size_t count);
Code GraphRemoveDependenciesV2(GraphHandle handle, const GraphNodeHandle* from,
                               const GraphNodeHandle* to, const EdgeData* data, std::size_t count);
Code GraphRemoveDependencies(GraphHandle graph, const GraphNodeHandle* from,
                             const GraphNodeHandle* to, std::size_t count);
Code GraphDestroyNode(GraphNodeHandle handle);

// ---- graph_node_calls.cpp
Code GraphAddKernelNodeV1(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                          std::size_t count, const KernelNodeParametersV1* parameters);
Code GraphAddKernelNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                        std::size_t count, const KernelNodeParameters* parameters);
Code GraphKernelNodeGetParamsV1(GraphNodeHandle handle, KernelNodeParametersV1* parameters);
Code GraphKernelNodeGetParams(GraphNodeHandle handle, KernelNodeParameters* parameters);
Code GraphKernelNodeSetParamsV1(GraphNodeHandle node, const KernelNodeParametersV1* parameters);
Code GraphKernelNodeSetParams(GraphNodeHandle node, const KernelNodeParameters* parameters);
Code GraphExecKernelNodeSetParamsV1(GraphExecHandle exec, GraphNodeHandle node,
                                    const KernelNodeParametersV1* parameters);
Code GraphExecKernelNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                  const KernelNodeParameters* parameters);
Code GraphKernelNodeGetAttribute(GraphNodeHandle handle, int attribute,
                                 LaunchAttribute::Value* value);
Code GraphKernelNodeSetAttribute(GraphNodeHandle handle, int attribute,
                                 const LaunchAttribute::Value* value);
Code GraphKernelNodeCopyAttributes(GraphNodeHandle to, GraphNodeHandle from);
Code GraphAddMemcpyNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                        std::size_t count, const Copy3d* copy, ContextHandle);
Code GraphMemcpyNodeGetParams(GraphNodeHandle handle, Copy3d* copy);
Code GraphMemcpyNodeSetParams(GraphNodeHandle node, const Copy3d* copy);
Code GraphExecMemcpyNodeSetParams(GraphExecHandle exec, GraphNodeHandle node, const Copy3d* copy,
                                  ContextHandle);
Code GraphAddMemsetNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                        std::size_t count, const FillNodeParameters* fill, ContextHandle);
Code GraphMemsetNodeGetParams(GraphNodeHandle handle, FillNodeParameters* fill);
Code GraphMemsetNodeSetParams(GraphNodeHandle node, const FillNodeParameters* fill);
Code GraphExecMemsetNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                  const FillNodeParameters* fill, ContextHandle);
Code GraphAddHostNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                      std::size_t count, const HostNodeParameters* host);
Code GraphHostNodeGetParams(GraphNodeHandle handle, HostNodeParameters* host);
Code GraphHostNodeSetParams(GraphNodeHandle node, const HostNodeParameters* host);
Code GraphExecHostNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                const HostNodeParameters* host);
Code GraphAddEventRecordNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                             std::size_t count, EventHandle event);
Code GraphEventRecordNodeGetEvent(GraphNodeHandle handle, EventHandle* event);
Code GraphEventRecordNodeSetEvent(GraphNodeHandle node, EventHandle event);
Code GraphExecEventRecordNodeSetEvent(GraphExecHandle exec, GraphNodeHandle node,
                                      EventHandle event);
Code GraphAddEventWaitNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                           std::size_t count, EventHandle event);
Code GraphEventWaitNodeGetEvent(GraphNodeHandle handle, EventHandle* event);
Code GraphEventWaitNodeSetEvent(GraphNodeHandle node, EventHandle event);
Code GraphExecEventWaitNodeSetEvent(GraphExecHandle exec, GraphNodeHandle node, EventHandle event);
Code GraphAddEmptyNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                       std::size_t count);
Code GraphAddChildGraphNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                            std::size_t count, GraphHandle child);
Code GraphExecChildGraphNodeSetParams(GraphExecHandle exec, GraphNodeHandle node,
                                      GraphHandle child);
Code GraphChildGraphNodeGetGraph(GraphNodeHandle handle, GraphHandle* graph);
Code GraphAddMemAllocNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                          std::size_t count, MemoryNodeParameters* parameters);
Code GraphMemAllocNodeGetParams(GraphNodeHandle handle, MemoryNodeParameters* parameters);
Code GraphAddMemFreeNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                         std::size_t count, DevicePointer address);
Code GraphMemFreeNodeGetParams(GraphNodeHandle handle, DevicePointer* address);
Code DeviceGetGraphMemAttribute(int device, int attribute, void* value);
Code DeviceSetGraphMemAttribute(int device, int attribute, void* value);
Code DeviceGraphMemTrim(int device);
Code GraphAddNodeV2(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                    const EdgeData* edges, std::size_t count, NodeParameters* parameters);
Code GraphAddNode(GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                  std::size_t count, NodeParameters* parameters);
Code GraphNodeGetParams(GraphNodeHandle handle, NodeParameters* parameters);
Code GraphNodeSetParams(GraphNodeHandle node, NodeParameters* parameters);
Code GraphExecNodeSetParams(GraphExecHandle exec, GraphNodeHandle node, NodeParameters* parameters);

// ---- graph_exec_calls.cpp
Code GraphInstantiateWithFlags(GraphExecHandle* exec, GraphHandle graph, unsigned long long flags);
Code GraphInstantiateWithParams(GraphExecHandle* exec, GraphHandle graph,
                                InstantiateParameters* parameters);
Code GraphInstantiate(GraphExecHandle* exec, GraphHandle graph, GraphNodeHandle* error_node,
                      char* log, std::size_t log_bytes);
Code GraphExecDestroy(GraphExecHandle handle);
Code GraphExecGetId(GraphExecHandle handle, unsigned* id);
Code GraphExecGetFlags(GraphExecHandle handle, std::uint64_t* flags);
Code GraphExecUpdate(GraphExecHandle handle, GraphHandle graph_handle, UpdateResultInfo* info);
Code GraphExecUpdateV1(GraphExecHandle exec, GraphHandle graph, GraphNodeHandle* error_node,
                       int* result);
Code GraphNodeSetEnabled(GraphExecHandle handle, GraphNodeHandle original, unsigned is_enabled);
Code GraphNodeGetEnabled(GraphExecHandle handle, GraphNodeHandle original, unsigned* is_enabled);
Code GraphLaunch(GraphExecHandle handle, StreamHandle stream_handle);
Code GraphUpload(GraphExecHandle handle, StreamHandle stream_handle);

// ---- user_object_calls.cpp
Code UserObjectCreate(UserObjectHandle* object, void* data, HostFunction destroy, unsigned count,
                      unsigned flags);
Code UserObjectRetain(UserObjectHandle object, unsigned count);
Code UserObjectRelease(UserObjectHandle object, unsigned count);
Code GraphRetainUserObject(GraphHandle graph, UserObjectHandle object, unsigned count,
                           unsigned flags);
Code GraphReleaseUserObject(GraphHandle graph, UserObjectHandle object, unsigned count);

// ---- event_calls.cpp
Code EventCreate(EventHandle* event, unsigned flags);
Code EventDestroy(EventHandle event);
Code EventRecord(EventHandle event, StreamHandle stream);
Code EventRecordWithFlags(EventHandle event, StreamHandle stream, unsigned flags);
Code EventQuery(EventHandle event);
Code EventSynchronize(EventHandle event);
Code EventElapsedTime(float* milliseconds, EventHandle start, EventHandle end);

// ---- occupancy_calls.cpp
Code OccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, FunctionHandle function,
                                               int block_threads, std::size_t shared_bytes);
Code OccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, FunctionHandle function,
                                                        int block_threads, std::size_t shared_bytes,
                                                        unsigned flags);
Code OccupancyMaxPotentialBlockSize(int* grid_least, int* block_threads, FunctionHandle function,
                                    BlockToSharedBytes shared_of_block, std::size_t shared_bytes,
                                    int block_threads_max);
Code OccupancyMaxPotentialBlockSizeWithFlags(int* grid_least, int* block_threads,
                                             FunctionHandle function,
                                             BlockToSharedBytes shared_of_block,
                                             std::size_t shared_bytes, int block_threads_max,
                                             unsigned flags);
Code OccupancyAvailableDynamicSmemPerBlock(std::size_t* shared_bytes, FunctionHandle function,
                                           int blocks, int block_threads);
Code OccupancyMaxActiveClusters(int* clusters, FunctionHandle function, const LaunchConfig* config);
Code OccupancyMaxPotentialClusterSize(int* blocks, FunctionHandle function,
                                      const LaunchConfig* config);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CALLS_H_
