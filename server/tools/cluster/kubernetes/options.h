// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_OPTIONS_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_OPTIONS_H_

#include <span>
#include <string>
#include <variant>

#include "server/telemetry/admin/exit_now.h"
#include "server/tools/cluster/kubernetes/plugin.h"

namespace gpushared::kubernetes {

// Thread-compatible value.
struct Options {
  std::string socket;  // If empty, the default locations apply.
  PluginSettings plugin;
};

// Output of a program that exits after parsing its command line.
using admin::ExitNow;

std::variant<Options, ExitNow> ParseOptions(std::span<const char* const> arguments);

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_OPTIONS_H_
