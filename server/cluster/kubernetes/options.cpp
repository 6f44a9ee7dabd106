// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/kubernetes/options.h"

#include <utility>
#include <vector>

#include "server/admin/parse_arguments.h"

#include <CLI/CLI.hpp>

namespace gpushared::kubernetes {

std::variant<Options, ExitNow> ParseOptions(std::span<const char* const> arguments) {
  CLI::App app("Offers a node's gpushared entrances to Kubernetes: a device plugin of its kubelet.",
               "gpushared-kubernetes");
  app.set_version_flag("--version", std::string("gpushared-kubernetes ") + GPUSHARED_VERSION);
  app.footer("Exit codes: 0 stopped by a signal; 2 the command line makes no sense.");
  Options options;
  std::vector<std::string> shares;
  app.add_option("--socket", options.socket, "the server's socket (default: the usual places)")
      ->type_name("PATH");
  app.add_option("--kubelet-folder", options.plugin.kubelet_folder,
                 "where the kubelet's socket for plugins is")
      ->capture_default_str()
      ->type_name("FOLDER");
  app.add_option("--cdi-folder", options.plugin.cdi_folder,
                 "also write CDI devices there, such as /var/run/cdi, and name them to the kubelet")
      ->type_name("FOLDER");
  app.add_option("--shares", shares,
                 "how many containers may come through each entrance to each device at a time, or "
                 "ENTRANCE=NUMBER of one entrance; may be repeated (default: 4)")
      ->type_name("NUMBER")
      ->expected(1)
      ->take_all();
  if (auto stop = admin::ParseArguments(app, arguments); stop) return *std::move(stop);
  Result<ShareCounts> counts = ParseShareCounts(shares);
  if (!counts.ok()) {
    return ExitNow{admin::kRefusedArguments,
                   "gpushared-kubernetes: " + counts.status().message() + "\n"};
  }
  options.plugin.shares = *std::move(counts);
  return options;
}

}  // namespace gpushared::kubernetes
