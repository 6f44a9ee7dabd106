// SPDX-License-Identifier: Apache-2.0
#include "server/config/config.h"

#include "ipc/share.h"
#include "scheduler/class_name.h"

namespace gpushared::server {

std::string Describe(const Allowance& allowance) {
  return allowance.label + ": class " + std::string(scheduler::ClassName(allowance.UsualClass())) +
         ", highest class " + std::string(scheduler::ClassName(allowance.highest_class)) +
         ", weight " + std::to_string(allowance.usual_weight) + " up to " +
         std::to_string(allowance.max_weight) +
         (allowance.AllowsLatencyTargets() ? ", targets" : ", no targets") + ", memory " +
         allowance.memory.ToString() +
         (allowance.client_memory ? ", per client " + allowance.client_memory->ToString() : "") +
         (allowance.memory_limit ? ", at most " + allowance.memory_limit->ToString() : "") +
         ", device time " + ipc::ShareText(allowance.max_share) +
         (allowance.client_max_share ? ", per client " + ipc::ShareText(*allowance.client_max_share)
                                     : "") +
         ", clients " + std::to_string(allowance.clients_max) +
         (allowance.isolation ? ", kernels " + std::string(IsolationName(*allowance.isolation))
                              : "");
}

}  // namespace gpushared::server
