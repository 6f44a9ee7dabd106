// SPDX-License-Identifier: Apache-2.0
// Kernels launched by kernels. common/ptx/link/child_kernels.h describes how a kernel requests a
// launch.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CHILD_KERNELS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CHILD_KERNELS_H_

#include "gpushared/client.h"

#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Waits for the work on the stream, then launches the child kernels that kernels of this module
// have requested, and their children in turn. Child kernels may access the memory in `use`, as the
// first kernel may. The caller prevents other launches of the module in the meantime.
Code LaunchChildren(const StreamChoice& stream, const Module& module, const MirrorUse& use);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CHILD_KERNELS_H_
