// SPDX-License-Identifier: Apache-2.0
// List of all driver calls in use.
//
// A row: X(name, suffix, version, feature, signature). The driver's documentation calls it
// cu<name>. `version` is the CUDA version that introduced the declared form of the call: 1000 times
// the major plus ten times the minor version (12040 is 12.4). `suffix` is the ending of that form's
// exported symbol; it is used only with drivers before CUDA 11.3. `feature` is disabled if the
// driver lacks the call (kBase: required).
//
// All calls name a stream explicitly, so for calls with two forms the one without per-thread
// default streams is declared.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_SYMBOLS_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_SYMBOLS_H_

// clang-format off
#define GPUSHARED_CUDA_SYMBOLS(X)                                                                 \
  /* The driver and its devices */                                                                \
  X(Init, , 2000, kBase, (unsigned flags))                                                        \
  X(DriverGetVersion, , 2020, kBase, (int* version))                                              \
  X(GetErrorName, , 6000, kBase, (Code code, const char** name))                                  \
  X(GetErrorString, , 6000, kBase, (Code code, const char** text))                                \
  X(DeviceGet, , 2000, kBase, (DeviceNumber* device, int ordinal))                                \
  X(DeviceGetCount, , 2000, kBase, (int* count))                                                  \
  X(DeviceGetName, , 2000, kBase, (char* name, int bytes, DeviceNumber device))                   \
  X(DeviceGetUuid, _v2, 11040, kInstanceUuid, (Uuid* uuid, DeviceNumber device))                  \
  X(DeviceTotalMem, _v2, 3020, kBase, (std::size_t* bytes, DeviceNumber device))                  \
  X(DeviceGetAttribute, , 2000, kBase, (int* value, DeviceAttribute which, DeviceNumber device))  \
  X(DeviceGetPCIBusId, , 4010, kBase, (char* text, int bytes, DeviceNumber device))               \
  /* The context */                                                                               \
  X(DevicePrimaryCtxRetain, , 7000, kBase, (Context* context, DeviceNumber device))               \
  X(DevicePrimaryCtxRelease, _v2, 11000, kBase, (DeviceNumber device))                            \
  X(DevicePrimaryCtxSetFlags, _v2, 11000, kBase, (DeviceNumber device, unsigned flags))           \
  X(CtxSetCurrent, , 4000, kBase, (Context context))                                              \
  X(CtxGetCurrent, , 4000, kBase, (Context* context))                                             \
  X(CtxSynchronize, , 2000, kBase, ())                                                            \
  X(CtxSetLimit, , 3010, kBase, (Limit limit, std::size_t value))                                 \
  X(CtxGetLimit, , 3010, kBase, (std::size_t* value, Limit limit))                                \
  X(CtxGetStreamPriorityRange, , 5050, kBase, (int* least, int* greatest))                        \
  X(MemGetInfo, _v2, 3020, kBase, (std::size_t* free, std::size_t* total))                        \
  /* Streams and events */                                                                        \
  X(StreamCreateWithPriority, , 5050, kBase, (Stream* stream, unsigned flags, int priority))      \
  X(StreamDestroy, _v2, 4000, kBase, (Stream stream))                                             \
  X(StreamSynchronize, , 2000, kBase, (Stream stream))                                            \
  X(StreamQuery, , 2000, kBase, (Stream stream))                                                  \
  X(StreamWaitEvent, , 3020, kBase, (Stream stream, Event event, unsigned flags))                 \
  X(EventCreate, , 2000, kBase, (Event* event, unsigned flags))                                   \
  X(EventDestroy, _v2, 4000, kBase, (Event event))                                                \
  X(EventRecord, , 2000, kBase, (Event event, Stream stream))                                     \
  X(EventQuery, , 2000, kBase, (Event event))                                                     \
  X(EventSynchronize, , 2000, kBase, (Event event))                                               \
  X(EventElapsedTime, , 2000, kBase, (float* milliseconds, Event start, Event end))               \
  X(LaunchHostFunc, , 10000, kBase, (Stream stream, HostFunction function, void* data))           \
  /* Copies and fills */                                                                          \
  X(MemcpyHtoDAsync, _v2, 3020, kBase,                                                            \
    (DeviceAddress to, const void* from, std::size_t bytes, Stream stream))                       \
  X(MemcpyDtoHAsync, _v2, 3020, kBase,                                                            \
    (void* to, DeviceAddress from, std::size_t bytes, Stream stream))                             \
  X(MemcpyDtoDAsync, _v2, 3020, kBase,                                                            \
    (DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream))                     \
  X(Memcpy2DAsync, _v2, 3020, kBase, (const Copy2d* copy, Stream stream))                         \
  X(MemsetD8Async, , 3020, kBase,                                                                 \
    (DeviceAddress to, unsigned char value, std::size_t count, Stream stream))                    \
  X(MemsetD16Async, , 3020, kBase,                                                                \
    (DeviceAddress to, unsigned short value, std::size_t count, Stream stream))                   \
  X(MemsetD32Async, , 3020, kBase,                                                                \
    (DeviceAddress to, unsigned value, std::size_t count, Stream stream))                         \
  X(MemsetD2D8Async, , 3020, kBase,                                                               \
    (DeviceAddress to, std::size_t pitch, unsigned char value, std::size_t width,                 \
     std::size_t height, Stream stream))                                                          \
  X(MemsetD2D16Async, , 3020, kBase,                                                              \
    (DeviceAddress to, std::size_t pitch, unsigned short value, std::size_t width,                \
     std::size_t height, Stream stream))                                                          \
  X(MemsetD2D32Async, , 3020, kBase,                                                              \
    (DeviceAddress to, std::size_t pitch, unsigned value, std::size_t width,                      \
     std::size_t height, Stream stream))                                                          \
  /* Plain memory */                                                                              \
  X(MemAlloc, _v2, 3020, kBase, (DeviceAddress* address, std::size_t bytes))                      \
  X(MemFree, _v2, 3020, kBase, (DeviceAddress address))                                           \
  X(MemHostAlloc, , 2020, kBase, (void** address, std::size_t bytes, unsigned flags))             \
  X(MemFreeHost, , 2000, kBase, (void* address))                                                  \
  X(MemHostGetDevicePointer, _v2, 3020, kBase,                                                    \
    (DeviceAddress* address, void* host, unsigned flags))                                         \
  X(MemHostRegister, _v2, 6050, kHostRegister, (void* host, std::size_t bytes, unsigned flags))   \
  X(MemHostUnregister, , 4000, kHostRegister, (void* host))                                       \
  /* Virtual memory */                                                                            \
  X(MemGetAllocationGranularity, , 10020, kVirtualMemory,                                         \
    (std::size_t* bytes, const AllocationProperties* properties, Granularity which))              \
  X(MemAddressReserve, , 10020, kVirtualMemory,                                                   \
    (DeviceAddress* address, std::size_t bytes, std::size_t alignment, DeviceAddress hint,        \
     unsigned long long flags))                                                                   \
  X(MemAddressFree, , 10020, kVirtualMemory, (DeviceAddress address, std::size_t bytes))          \
  X(MemCreate, , 10020, kVirtualMemory,                                                           \
    (MemoryHandle* handle, std::size_t bytes, const AllocationProperties* properties,             \
     unsigned long long flags))                                                                   \
  X(MemRelease, , 10020, kVirtualMemory, (MemoryHandle handle))                                   \
  X(MemMap, , 10020, kVirtualMemory,                                                              \
    (DeviceAddress address, std::size_t bytes, std::size_t offset, MemoryHandle handle,           \
     unsigned long long flags))                                                                   \
  X(MemUnmap, , 10020, kVirtualMemory, (DeviceAddress address, std::size_t bytes))                \
  X(MemSetAccess, , 10020, kVirtualMemory,                                                        \
    (DeviceAddress address, std::size_t bytes, const AccessDescription* access,                   \
     std::size_t count))                                                                          \
  /* Modules and launches */                                                                      \
  X(ModuleLoadDataEx, , 2010, kBase,                                                              \
    (Module* module, const void* image, unsigned options, JitOption* names, void** values))       \
  X(ModuleUnload, , 2000, kBase, (Module module))                                                 \
  X(ModuleGetFunction, , 2000, kBase, (Function* function, Module module, const char* name))      \
  X(ModuleGetGlobal, _v2, 3020, kBase,                                                            \
    (DeviceAddress* address, std::size_t* bytes, Module module, const char* name))                \
  X(FuncGetAttribute, , 2020, kBase, (int* value, FunctionAttribute which, Function function))    \
  X(FuncSetAttribute, , 9000, kBase, (Function function, FunctionAttribute which, int value))     \
  X(OccupancyMaxActiveBlocksPerMultiprocessor, , 6050, kBase,                                     \
    (int* blocks, Function function, int threads, std::size_t dynamic_shared_bytes))              \
  X(LaunchKernel, , 4000, kBase,                                                                  \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,                    \
     void** parameters, void** extra))                                                            \
  X(LaunchKernelEx, , 11060, kLaunchAttributes,                                                   \
    (const LaunchConfig* config, Function function, void** parameters, void** extra))             \
  X(FuncGetParamInfo, , 12040, kParameterInfo,                                                    \
    (Function function, std::size_t index, std::size_t* offset, std::size_t* bytes))              \
  X(ModuleGetFunctionCount, , 12040, kFunctionNames, (unsigned* count, Module module))            \
  X(ModuleEnumerateFunctions, , 12040, kFunctionNames,                                            \
    (Function* functions, unsigned count, Module module))                                         \
  X(FuncGetName, , 12030, kFunctionNames, (const char** name, Function function))                 \
  X(FuncLoad, , 12040, kEagerLoading, (Function function))                                        \
  X(ModuleGetLoadingMode, , 11070, kEagerLoading, (LoadingMode* mode))                            \
  /* Graphs */                                                                                    \
  X(GraphCreate, , 10000, kGraphs, (DriverGraph* graph, unsigned flags))                          \
  X(GraphAddKernelNode, _v2, 12000, kGraphs,                                                      \
    (DriverNode* node, DriverGraph graph, const DriverNode* after, std::size_t count,             \
     const KernelNode* what))                                                                     \
  X(GraphAddMemcpyNode, , 10000, kGraphs,                                                         \
    (DriverNode* node, DriverGraph graph, const DriverNode* after, std::size_t count,             \
     const CopyNode* what, Context context))                                                      \
  X(GraphAddMemsetNode, , 10000, kGraphs,                                                         \
    (DriverNode* node, DriverGraph graph, const DriverNode* after, std::size_t count,             \
     const FillNode* what, Context context))                                                      \
  X(GraphInstantiateWithFlags, , 11040, kGraphs,                                                  \
    (DriverExec* exec, DriverGraph graph, unsigned long long flags))                              \
  X(GraphExecKernelNodeSetParams, _v2, 12000, kGraphs,                                            \
    (DriverExec exec, DriverNode node, const KernelNode* what))                                   \
  X(GraphUpload, , 11010, kGraphs, (DriverExec exec, Stream stream))                              \
  X(GraphLaunch, , 10000, kGraphs, (DriverExec exec, Stream stream))                              \
  X(GraphExecDestroy, , 10000, kGraphs, (DriverExec exec))                                        \
  X(GraphDestroy, , 10000, kGraphs, (DriverGraph graph))                                          \
  /* Words written by a stream */                                                                 \
  X(StreamWriteValue32, _v2, 11070, kStreamMemoryOperations,                                      \
    (Stream stream, DeviceAddress address, std::uint32_t value, unsigned flags))                  \
  X(StreamWriteValue64, _v2, 11070, kStreamMemoryOperations,                                      \
    (Stream stream, DeviceAddress address, std::uint64_t value, unsigned flags))                  \
  /* Parts of the multiprocessors */                                                              \
  X(DeviceGetDevResource, , 12040, kGreenContexts,                                                \
    (DeviceNumber device, Resource* resource, ResourceType type))                                 \
  X(DevSmResourceSplitByCount, , 12040, kGreenContexts,                                           \
    (Resource* groups, unsigned* count, const Resource* whole, Resource* rest, unsigned flags,    \
     unsigned minimum))                                                                           \
  X(DevResourceGenerateDesc, , 12040, kGreenContexts,                                             \
    (ResourceDescription* description, Resource* resources, unsigned count))                      \
  X(GreenCtxCreate, , 12040, kGreenContexts,                                                      \
    (GreenContext* context, ResourceDescription description, DeviceNumber device,                 \
     unsigned flags))                                                                             \
  X(GreenCtxDestroy, , 12040, kGreenContexts, (GreenContext context))                             \
  X(CtxFromGreenCtx, , 12040, kGreenContexts, (Context* context, GreenContext green))             \
  X(GreenCtxStreamCreate, , 12050, kGreenContexts,                                                \
    (Stream* stream, GreenContext green, unsigned flags, int priority))
// clang-format on

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_DRIVER_SYMBOLS_H_
