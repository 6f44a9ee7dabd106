// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/missing_functions.h"

#include <algorithm>
#include <iterator>

namespace gpushared::drop_in {
namespace {

constexpr std::string_view kOldForm = "32-bit addresses ended with CUDA 3.2; call the _v2 form";
constexpr std::string_view kSharing =
    "sessions share no memory and no events: a handle would outlive its owner's session and quota, "
    "and its memory may move; pass data through host memory";
constexpr std::string_view kGraphics =
    "graphics interoperability is not supported on shared devices";
constexpr std::string_view kReferences =
    "CUDA 12 removed texture and surface references; create texture objects";
constexpr std::string_view kPartition = "the server decides which part of a device a client gets";
constexpr std::string_view kMemoryWords =
    "streams cannot wait for or write memory words, as the device's attributes report; use events";
constexpr std::string_view kDevices = "direct cooperation of several devices is not supported";
constexpr std::string_view kTensor = "tensor maps require compute capability 9.0";
constexpr std::string_view kMipmaps = "mipmapped and sparse arrays are not supported";

struct Reason {
  std::string_view begin;  // Prefix of the symbols.
  std::string_view why;
};
// The first match applies.
constexpr Reason kReasons[] = {
    {"cuIpc", kSharing},
    {"cuMemPoolExport", kSharing},
    {"cuMemPoolImport", kSharing},
    {"cuMemGetHandleForAddressRange", kSharing},
    {"cuImportExternal", kSharing},
    {"cuExternalMemory", kSharing},
    {"cuDestroyExternal", kSharing},
    {"cuSignalExternal", kSharing},
    {"cuWaitExternal", kSharing},
    {"cuDeviceGetNvSciSync", kSharing},
    {"cuGraphics", kGraphics},
    {"cuGL", kGraphics},
    {"cuEGL", kGraphics},
    {"cuEventCreateFromEGLSync", kGraphics},
    {"cuVDPAU", kGraphics},
    {"cuWGL", kGraphics},
    {"cuStreamBeginCaptureToCig", kGraphics},
    {"cuStreamEndCaptureToCig", kGraphics},
    {"cuStreamBeginRecaptureToGraph", "capture into a new graph and call cuGraphExecUpdate"},
    {"cuTexRef", kReferences},
    {"cuSurfRef", kReferences},
    {"cuModuleGetTexRef", kReferences},
    {"cuModuleGetSurfRef", kReferences},
    {"cuParamSetTexRef", kReferences},
    {"cuGreenCtx", kPartition},
    {"cuCtxFromGreenCtx", kPartition},
    {"cuCtxGetDevResource", kPartition},
    {"cuCtxGetExecAffinity", kPartition},
    {"cuCtxRecordEvent", kPartition},
    {"cuCtxWaitEvent", kPartition},
    {"cuDevResource", kPartition},
    {"cuDevSmResource", kPartition},
    {"cuDeviceGetDevResource", kPartition},
    {"cuDeviceGetExecAffinity", kPartition},
    {"cuStreamGetDevResource", kPartition},
    {"cuStreamGetGreenCtx", kPartition},
    {"cuStreamBatchMemOp", kMemoryWords},
    {"cuStreamWaitValue", kMemoryWords},
    {"cuStreamWriteValue", kMemoryWords},
    {"cuGraphAddBatchMemOp", kMemoryWords},
    {"cuGraphBatchMemOp", kMemoryWords},
    {"cuGraphExecBatchMemOp", kMemoryWords},
    {"cuGraphAddExternalSemaphores", kSharing},
    {"cuGraphExternalSemaphores", kSharing},
    {"cuGraphExecExternalSemaphores", kSharing},
    {"cuGraphConditional",
     "conditional nodes are not supported: the order of a graph's nodes must be known before it "
     "runs"},
    {"cuMulticast", kDevices},
    {"cuLogicalEndpoint", kDevices},
    {"cuFabric", kDevices},
    {"cuDeviceGetClique", kDevices},
    {"cuDeviceGetFabric", kDevices},
    {"cuDeviceGetP2PAtomic", kDevices},
    {"cuDeviceGetHostAtomic", kDevices},
    {"cuLaunchCooperativeKernelMultiDevice", "CUDA 13 removed it; launch on each device"},
    {"cuTensorMap", kTensor},
    {"cuMipmapped", kMipmaps},
    {"cuMemMapArrayAsync", kMipmaps},
    {"cuArrayGetSparse", kMipmaps},
    {"cuArrayGetMemoryRequirements", kMipmaps},
    {"cuArrayGetPlane", "multi-planar arrays are not supported"},
    {"cuMemBatchDecompress", "decompression by devices is not supported"},
    {"cuMemGetLocationInfo", "memory remains where it was allocated"},
    {"cuCheckpoint", "a session cannot be written to a file"},
    {"cuCoredump", "the worker runs the kernels; its log shows what failed"},
    {"cuDeviceRegisterAsync", "the server gives no notice of memory pressure"},
    {"cuDeviceUnregisterAsync", "the server gives no notice of memory pressure"},
    {"cuFlushGPUDirect", "no other device writes to the memory"},
    {"cuLibraryGetUnifiedFunction", "functions shared by programs and kernels are not supported"},
    {"cuLogs", "set GPUSHARED_LOG"},
    // Forms of CUDA 2 and 3.1, which the _v2 forms replaced.
    {"cuArray", kOldForm},
    {"cuDeviceTotalMem", kOldForm},
    {"cuMem", kOldForm},
    {"cuModuleGetGlobal", kOldForm},
};

}  // namespace

std::string_view WhyMissing(std::string_view symbol) {
  const auto* const found = std::ranges::find_if(
      kReasons, [&](const Reason& reason) { return symbol.starts_with(reason.begin); });
  return found == std::end(kReasons) ? std::string_view() : found->why;
}

}  // namespace gpushared::drop_in
