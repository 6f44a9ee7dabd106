// SPDX-License-Identifier: Apache-2.0
// How calls become nodes of graphs, and nodes become calls again.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_WORK_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_WORK_H_

#include <functional>

#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/driver_types.h"
#include "client_lib/drop_in/graph.h"

namespace gpushared::drop_in {

// Copies the parameters as cuLaunchKernel takes them. Needs a current context.
Code MakeKernelWork(FunctionHandle function, const LaunchShape& shape, void** parameters,
                    void** extra, KernelWork& work);

// kInvalidValue where cuda.h forbids what the copy or fill says, whatever memory it names.
Code CheckShape(const Copy3d& copy);
Code CheckShape(const FillNodeParameters& fill);

// With memory of the device that the parameters name; that device has a context.
Code MakeAllocateWork(const MemoryNodeParameters& given, AllocateWork& work);
// kInvalidValue: the memory of no node begins there.
Code MakeFreeWork(DevicePointer address, FreeWork& work);
// Before a launch of the plan: memory of its nodes that the program was left with by an earlier one
// is freed, or else the launch is rejected.
Code FreeLeftOver(const GraphExec::Plan& plan, bool may_free, const StreamChoice& stream);

// Runs `call` behind the work that is on the stream now, with the code of that.
Code AddHostCall(const StreamChoice& stream, const std::function<void(Code)>& call);

// Submits the work to the stream, as the call would that it came from.
Code Replay(const KernelWork& work, StreamHandle stream);
Code Replay(const CopyWork& work, StreamHandle stream);
Code Replay(const FillWork& work, StreamHandle stream);
Code Replay(const AllocateWork& work, StreamHandle stream);
Code Replay(const FreeWork& work, StreamHandle stream);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_WORK_H_
