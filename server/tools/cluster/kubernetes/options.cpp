// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/options.h"

#include <utility>
#include <vector>

#include "common/command_line/command_line.h"
#include "server/telemetry/admin/parse_arguments.h"

namespace gpushared::kubernetes {

std::variant<Options, ExitNow> ParseOptions(std::span<const char* const> arguments) {
  const command_line::Program app(
      "Kubernetes device plugin for the endpoints of a node's gpushared server.",
      "gpushared-kubernetes");
  app.SetVersion(std::string("gpushared-kubernetes ") + GPUSHARED_VERSION);
  app.SetFooter("Exit codes: 0 stopped by a signal; 2 usage error.");
  Options options;
  std::vector<std::string> shares;
  app.AddOption("--socket", options.socket,
                "path of the server's socket (default: the standard locations)")
      .TypeName("PATH");
  app.AddOption("--kubelet-directory", options.plugin.kubelet_directory,
                "directory of the kubelet's socket for plugins")
      .ShowDefault()
      .TypeName("DIRECTORY");
  app.AddOption("--cdi-directory", options.plugin.cdi_directory,
                "directory for a file of CDI devices, such as /var/run/cdi, whose names are passed "
                "to the kubelet")
      .TypeName("DIRECTORY");
  app.AddOption("--shares", shares,
                "number of containers that may use each endpoint on each device at once, or "
                "ENDPOINT=NUMBER for one endpoint; may be repeated (default: 4)")
      .TypeName("NUMBER")
      .Expected(1)
      .TakeAll();
  if (auto stop = admin::ParseArguments(app, arguments); stop) return *std::move(stop);
  Result<ShareCounts> counts = ParseShareCounts(shares);
  if (!counts.ok()) {
    return ExitNow{admin::kRejectedArguments,
                   "gpushared-kubernetes: " + counts.status().message() + "\n"};
  }
  options.plugin.shares = *std::move(counts);
  return options;
}

}  // namespace gpushared::kubernetes
