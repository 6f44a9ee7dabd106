// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/options.h"

#include <utility>
#include <vector>

#include "common/command_line/command_line.h"
#include "server/telemetry/admin/parse_arguments.h"

namespace gpushared::kubernetes {

std::variant<Options, ExitNow> ParseOptions(std::span<const char* const> arguments) {
  const command_line::Program app(
      "Offers a node's gpushared endpoints to Kubernetes: a device plugin of its kubelet.",
      "gpushared-kubernetes");
  app.SetVersion(std::string("gpushared-kubernetes ") + GPUSHARED_VERSION);
  app.SetFooter("Exit codes: 0 stopped by a signal; 2 the command line makes no sense.");
  Options options;
  std::vector<std::string> shares;
  app.AddOption("--socket", options.socket, "the server's socket (default: the usual places)")
      .TypeName("PATH");
  app.AddOption("--kubelet-directory", options.plugin.kubelet_directory,
                "where the kubelet's socket for plugins is")
      .ShowDefault()
      .TypeName("DIRECTORY");
  app.AddOption("--cdi-directory", options.plugin.cdi_directory,
                "also write CDI devices there, such as /var/run/cdi, and name them to the kubelet")
      .TypeName("DIRECTORY");
  app.AddOption("--shares", shares,
                "how many containers may come through each endpoint to each device at a time, or "
                "ENDPOINT=NUMBER of one endpoint; may be repeated (default: 4)")
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
