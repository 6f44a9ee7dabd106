// SPDX-License-Identifier: Apache-2.0
// Hooks of gate mode, by the names in the last column of functions.inc. One hook serves all forms
// of a function with the same parameters.
//
// A hook receives the driver's function, then the arguments of the caller. It runs in the caller's
// thread and returns what the driver returned. It calls the driver only by that address, never by a
// name exported here, and holds no lock during the call.

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

// Connects to the server once the driver is initialized.
Code Init(Code (*native)(unsigned), unsigned flags);

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

// Count the streams that are being captured (driver_functions.h).
Code StreamBeginCapture(Code (*native)(StreamHandle, int), StreamHandle stream, int mode);
Code StreamBeginCaptureV1(Code (*native)(StreamHandle), StreamHandle stream);
Code StreamBeginCaptureToGraph(Code (*native)(StreamHandle, GraphHandle, const GraphNodeHandle*,
                                              const EdgeData*, std::size_t, int),
                               StreamHandle stream, GraphHandle graph, const GraphNodeHandle* needs,
                               const EdgeData* edges, std::size_t count, int mode);
Code StreamEndCapture(Code (*native)(StreamHandle, GraphHandle*), StreamHandle stream,
                      GraphHandle* graph);

// Nothing of the gate outlives the stream or the context.
Code StreamDestroy(Code (*native)(StreamHandle), StreamHandle stream);
Code CtxDestroy(Code (*native)(ContextHandle), ContextHandle context);
// Releases or resets a primary context.
Code DevicePrimaryCtxEnd(Code (*native)(int), int device);

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_
