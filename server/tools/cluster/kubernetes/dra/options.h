// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_OPTIONS_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_OPTIONS_H_

#include <functional>
#include <span>
#include <string>
#include <variant>

#include "server/telemetry/admin/exit_now.h"
#include "server/tools/cluster/kubernetes/dra/api_server.h"
#include "server/tools/cluster/kubernetes/dra/driver.h"

namespace gpushared::dra {

// Thread-compatible value.
struct Options {
  std::string socket;  // If empty, the default locations apply.
  std::string kubelet_directory = "/var/lib/kubelet";
  ApiServer::Settings api;
  DriverSettings driver;
};

// `environment` returns the value of a variable, empty if unset.
std::variant<Options, admin::ExitNow> ParseOptions(
    std::span<const char* const> arguments,
    const std::function<std::string(const char*)>& environment);

}  // namespace gpushared::dra

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_OPTIONS_H_
