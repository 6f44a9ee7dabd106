// SPDX-License-Identifier: Apache-2.0
// Kernels that kernels have started: common/ptx/link/child_kernels.h says how they ask for it.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_CHILD_KERNELS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_CHILD_KERNELS_H_

#include "gpushared/client.h"

#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Waits for what is on the stream, then launches what kernels of this module have asked for, and
// what those ask for. They may use what the first kernel was given. The caller keeps other launches
// of the module away.
Code LaunchChildren(const StreamChoice& stream, const Module& module, const MirrorUse& use);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_CHILD_KERNELS_H_
