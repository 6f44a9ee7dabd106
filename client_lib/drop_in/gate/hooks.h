// SPDX-License-Identifier: Apache-2.0
// Hooks of gate mode, by the names in the last column of functions.inc. All forms of a function
// with the same parameters share one hook.
//
// A hook receives the address of the driver's function, then the arguments of the caller. It runs
// in the caller's thread and returns what the driver returned, unless it rejects the call. It calls
// the driver only by that address, never by a name exported here, and holds no lock during the
// call.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_

#include <cstddef>
#include <cstdint>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in::gate {

// Marks a function without a hook: its symbol jumps to the driver's function.
struct Forwarded {};
inline constexpr Forwarded kForwarded;
// Marks a function for which no hook has been chosen yet. A table that contains it does not
// compile.
struct Undecided {};
inline constexpr Undecided kUndecided;

// The driver selects the function by its own version rules. If the address that it returns belongs
// to a function of functions.inc, the caller gets this library's symbol instead.
Code GetProcAddress(Code (*native)(const char*, void**, int, std::uint64_t), const char* name,
                    void** function, int version, std::uint64_t flags);
Code GetProcAddressV2(Code (*native)(const char*, void**, int, std::uint64_t, ProcAddressResult*),
                      const char* name, void** function, int version, std::uint64_t flags,
                      ProcAddressResult* result);

// Initializes the driver, then calls Admission::Begin.
Code Init(Code (*native)(unsigned), unsigned flags);

// Record the names of kernels, for messages about their launches.
Code ModuleGetFunction(Code (*native)(FunctionHandle*, ModuleHandle, const char*),
                       FunctionHandle* function, ModuleHandle module, const char* name);
Code LibraryGetKernel(Code (*native)(KernelHandle*, LibraryHandle, const char*),
                      KernelHandle* kernel, LibraryHandle library, const char* name);
Code KernelGetFunction(Code (*native)(FunctionHandle*, KernelHandle), FunctionHandle* function,
                       KernelHandle kernel);

// A launch waits until it is admitted (admission.h).
Code LaunchKernel(Code (*native)(FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, StreamHandle, void**, void**),
                  FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  StreamHandle stream, void** parameters, void** extra);
Code LaunchKernelEx(Code (*native)(const LaunchConfig*, FunctionHandle, void**, void**),
                    const LaunchConfig* config, FunctionHandle function, void** parameters,
                    void** extra);
Code LaunchCooperativeKernel(Code (*native)(FunctionHandle, unsigned, unsigned, unsigned, unsigned,
                                            unsigned, unsigned, unsigned, StreamHandle, void**),
                             FunctionHandle function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, StreamHandle stream, void** parameters);
Code LaunchCooperativeKernelMultiDevice(Code (*native)(void*, unsigned, unsigned), void* launches,
                                        unsigned count, unsigned flags);
Code Launch(Code (*native)(FunctionHandle), FunctionHandle function);
Code LaunchGrid(Code (*native)(FunctionHandle, int, int), FunctionHandle function, int width,
                int height);
Code LaunchGridAsync(Code (*native)(FunctionHandle, int, int, StreamHandle),
                     FunctionHandle function, int width, int height, StreamHandle stream);
Code GraphLaunch(Code (*native)(GraphExecHandle, StreamHandle), GraphExecHandle graph,
                 StreamHandle stream);

// Copies and fills of at least 1 MiB are admitted as launches are, because they occupy the device's
// memory and copy engines; smaller ones go to the driver at once.
Code Memcpy(Code (*native)(DevicePointer, DevicePointer, std::size_t), DevicePointer to,
            DevicePointer from, std::size_t bytes);
Code MemcpyAsync(Code (*native)(DevicePointer, DevicePointer, std::size_t, StreamHandle),
                 DevicePointer to, DevicePointer from, std::size_t bytes, StreamHandle stream);
Code MemcpyHtoD(Code (*native)(DevicePointer, const void*, std::size_t), DevicePointer to,
                const void* from, std::size_t bytes);
Code MemcpyHtoDAsync(Code (*native)(DevicePointer, const void*, std::size_t, StreamHandle),
                     DevicePointer to, const void* from, std::size_t bytes, StreamHandle stream);
Code MemcpyDtoH(Code (*native)(void*, DevicePointer, std::size_t), void* to, DevicePointer from,
                std::size_t bytes);
Code MemcpyDtoHAsync(Code (*native)(void*, DevicePointer, std::size_t, StreamHandle), void* to,
                     DevicePointer from, std::size_t bytes, StreamHandle stream);
Code MemcpyPeerAsync(Code (*native)(DevicePointer, ContextHandle, DevicePointer, ContextHandle,
                                    std::size_t, StreamHandle),
                     DevicePointer to, ContextHandle to_context, DevicePointer from,
                     ContextHandle from_context, std::size_t bytes, StreamHandle stream);
Code MemsetD8Async(Code (*native)(DevicePointer, unsigned char, std::size_t, StreamHandle),
                   DevicePointer to, unsigned char value, std::size_t count, StreamHandle stream);
Code MemsetD16Async(Code (*native)(DevicePointer, unsigned short, std::size_t, StreamHandle),
                    DevicePointer to, unsigned short value, std::size_t count, StreamHandle stream);
Code MemsetD32Async(Code (*native)(DevicePointer, unsigned, std::size_t, StreamHandle),
                    DevicePointer to, unsigned value, std::size_t count, StreamHandle stream);

// Count the streams that are being captured (driver_functions.h).
Code StreamBeginCapture(Code (*native)(StreamHandle, int), StreamHandle stream, int mode);
Code StreamBeginCaptureV1(Code (*native)(StreamHandle), StreamHandle stream);
Code StreamBeginCaptureToGraph(Code (*native)(StreamHandle, GraphHandle, const GraphNodeHandle*,
                                              const EdgeData*, std::size_t, int),
                               StreamHandle stream, GraphHandle graph, const GraphNodeHandle* needs,
                               const EdgeData* edges, std::size_t count, int mode);
Code StreamEndCapture(Code (*native)(StreamHandle, GraphHandle*), StreamHandle stream,
                      GraphHandle* graph);

// ---- memory_hooks.cpp: allocations are counted and limited (memory.h)
//
// The oldest forms, which have 32-bit sizes and which no header declares any more, are forwarded.

Code MemAlloc(Code (*native)(DevicePointer*, std::size_t), DevicePointer* address,
              std::size_t bytes);
Code MemAllocPitch(Code (*native)(DevicePointer*, std::size_t*, std::size_t, std::size_t, unsigned),
                   DevicePointer* address, std::size_t* pitch, std::size_t width_bytes,
                   std::size_t height, unsigned element_bytes);
Code MemAllocManaged(Code (*native)(DevicePointer*, std::size_t, unsigned), DevicePointer* address,
                     std::size_t bytes, unsigned flags);
Code MemFree(Code (*native)(DevicePointer), DevicePointer address);

Code ArrayCreate(Code (*native)(ArrayHandle*, const ArrayShape*), ArrayHandle* array,
                 const ArrayShape* shape);
Code Array3dCreate(Code (*native)(ArrayHandle*, const ArrayShape3d*), ArrayHandle* array,
                   const ArrayShape3d* shape);
Code ArrayDestroy(Code (*native)(ArrayHandle), ArrayHandle array);
Code MipmappedArrayCreate(Code (*native)(MipmappedArrayHandle*, const ArrayShape3d*, unsigned),
                          MipmappedArrayHandle* array, const ArrayShape3d* shape, unsigned levels);
Code MipmappedArrayDestroy(Code (*native)(MipmappedArrayHandle), MipmappedArrayHandle array);

// Physical memory outlives its handle while it is mapped.
Code MemCreate(Code (*native)(std::uint64_t*, std::size_t, const AllocationProperties*,
                              std::uint64_t),
               std::uint64_t* handle, std::size_t bytes, const AllocationProperties* properties,
               std::uint64_t flags);
Code MemRetainAllocationHandle(Code (*native)(std::uint64_t*, void*), std::uint64_t* handle,
                               void* address);
// Counts a reference if the program imports memory that it has exported itself; other imported
// memory is not counted.
Code MemImportFromShareableHandle(Code (*native)(std::uint64_t*, void*, int), std::uint64_t* handle,
                                  void* shareable, int type);
Code MemRelease(Code (*native)(std::uint64_t), std::uint64_t handle);
Code MemMap(Code (*native)(DevicePointer, std::size_t, std::size_t, std::uint64_t, std::uint64_t),
            DevicePointer address, std::size_t bytes, std::size_t offset, std::uint64_t handle,
            std::uint64_t flags);
Code MemUnmap(Code (*native)(DevicePointer, std::size_t), DevicePointer address, std::size_t bytes);

Code MemAllocAsync(Code (*native)(DevicePointer*, std::size_t, StreamHandle),
                   DevicePointer* address, std::size_t bytes, StreamHandle stream);
Code MemAllocFromPoolAsync(Code (*native)(DevicePointer*, std::size_t, PoolHandle, StreamHandle),
                           DevicePointer* address, std::size_t bytes, PoolHandle pool,
                           StreamHandle stream);
Code MemFreeAsync(Code (*native)(DevicePointer, StreamHandle), DevicePointer address,
                  StreamHandle stream);
// MemPoolCreate and MemGetPool record the GPU of the pool, or that it is a pool of host memory.
// Pools of host memory are not counted.
Code MemPoolCreate(Code (*native)(PoolHandle*, const PoolProperties*), PoolHandle* pool,
                   const PoolProperties* properties);
Code MemGetPool(Code (*native)(PoolHandle*, MemoryLocation*, AllocationType), PoolHandle* pool,
                MemoryLocation* location, AllocationType type);
Code MemPoolTrimTo(Code (*native)(PoolHandle, std::size_t), PoolHandle pool,
                   std::size_t bytes_kept);
Code MemPoolDestroy(Code (*native)(PoolHandle), PoolHandle pool);

// Reject an allocation node whose memory exceeds what the limit leaves when the node is added. The
// memory of nodes is not counted: it exists only while the graph runs, unless the driver keeps it
// for the next run.
Code GraphAddMemAllocNode(Code (*native)(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*,
                                         std::size_t, MemoryNodeParameters*),
                          GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                          std::size_t count, MemoryNodeParameters* parameters);
Code GraphAddNode(Code (*native)(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*, std::size_t,
                                 NodeParameters*),
                  GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                  std::size_t count, NodeParameters* parameters);
Code GraphAddNodeV2(Code (*native)(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*,
                                   const EdgeData*, std::size_t, NodeParameters*),
                    GraphNodeHandle* node, GraphHandle graph, const GraphNodeHandle* needs,
                    const EdgeData* edges, std::size_t count, NodeParameters* parameters);

// Report at most the limit as the size of the device's memory, and at most the unused part of the
// limit as free.
Code MemGetInfo(Code (*native)(std::size_t*, std::size_t*), std::size_t* free_bytes,
                std::size_t* total_bytes);
Code DeviceTotalMem(Code (*native)(std::size_t*, int), std::size_t* bytes, int device);

// ---- hooks.cpp

// The gate's marks and events end with the stream or context to which they belong.
Code StreamDestroy(Code (*native)(StreamHandle), StreamHandle stream);
Code CtxDestroy(Code (*native)(ContextHandle), ContextHandle context);
// Records the primary context for DevicePrimaryCtxEnd.
Code DevicePrimaryCtxRetain(Code (*native)(ContextHandle*, int), ContextHandle* context,
                            int device);
// Releases or resets a primary context.
Code DevicePrimaryCtxEnd(Code (*native)(int), int device);

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_
