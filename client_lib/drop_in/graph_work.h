// SPDX-License-Identifier: Apache-2.0
// Conversion of calls to graph nodes and back.

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

// Checks the shape only and does not look up the memory: kInvalidValue if cuda.h does not allow it.
Code CheckShape(const Copy3d& copy);
Code CheckShape(const FillNodeParameters& fill);

// Allocates memory of the device that the parameters name. That device must have a context.
Code MakeAllocateWork(const MemoryNodeParameters& given, AllocateWork& work);
// kInvalidValue if no memory of a node begins at `address`.
Code MakeFreeWork(DevicePointer address, FreeWork& work);
// Called before a launch of the plan. If an earlier launch left memory of its nodes allocated,
// frees the memory if `may_free`, and rejects the launch otherwise.
Code FreeLeftOver(const GraphExec::Plan& plan, bool may_free, const StreamChoice& stream);

// Runs `call` after the work that is on the stream now, with the error code of that work.
Code AddHostCall(const StreamChoice& stream, const std::function<void(Code)>& call);

// Submits the work to the stream as the original call would.
Code Replay(const KernelWork& work, StreamHandle stream);
Code Replay(const CopyWork& work, StreamHandle stream);
Code Replay(const FillWork& work, StreamHandle stream);
Code Replay(const AllocateWork& work, StreamHandle stream);
Code Replay(const FreeWork& work, StreamHandle stream);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GRAPH_WORK_H_
