// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/rejection.h"

namespace gpushared::server {

MaybeRejected Reject(const Rejection& why) { return std::make_unique<CommandFailure>(why); }

}  // namespace gpushared::server
