// SPDX-License-Identifier: Apache-2.0
// gpushared-kubernetes: a device plugin. It queries the server's socket, which requires the right
// to observe, and reports to the node's kubelet what containers can be allocated.

#include <signal.h>

#include <cstdio>
#include <exception>
#include <string>
#include <variant>

#include "ipc/socket_path.h"
#include "server/telemetry/admin/ask.h"
#include "server/tools/cluster/kubernetes/end_signals.h"
#include "server/tools/cluster/kubernetes/options.h"
#include "server/tools/cluster/kubernetes/plugin.h"

#include <nlohmann/json.hpp>

namespace gpushared::kubernetes {
namespace {

void WriteToLog(const std::string& message) {
  std::fprintf(stderr, "gpushared-kubernetes: %s\n", message.c_str());
}

// Runs until a signal arrives.
void Serve(const Options& options) {
  const EndSignals ends;
  Plugin plugin(
      options.plugin,
      [&](const ipc::Admin& question) -> Result<nlohmann::json> {
        // The path is looked up for each query, because the server may start later than this
        // program and its socket may then be in another default location.
        const Result<std::string> path = ipc::ClientSocketPath(options.socket);
        if (!path.ok()) return path.status();
        return admin::Ask(*path, question);
      },
      WriteToLog);
  do {
    plugin.Turn();
  } while (!ends.Await());
}

int Main(std::span<const char* const> arguments) {
  auto parsed = ParseOptions(arguments);
  if (const auto* stop = std::get_if<ExitNow>(&parsed)) {
    std::fputs(stop->text.c_str(), stop->code == 0 ? stdout : stderr);
    return stop->code;
  }
  Serve(std::get<Options>(parsed));
  return 0;
}

}  // namespace
}  // namespace gpushared::kubernetes

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return gpushared::kubernetes::Main({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpushared-kubernetes: %s\n", error.what());
    return 1;
  }
}
