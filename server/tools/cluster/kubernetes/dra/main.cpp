// SPDX-License-Identifier: Apache-2.0
// gpushared-dra: a driver for Kubernetes' dynamic resource allocation. It offers the devices of the
// node's server to the scheduler, and leases an endpoint of the server for each allocated claim,
// which requires the right to operate the server.

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <variant>

#include "ipc/socket_path.h"
#include "server/tools/cluster/kubernetes/dra/kubelet.h"
#include "server/tools/cluster/kubernetes/dra/options.h"
#include "server/tools/cluster/kubernetes/end_signals.h"

namespace gpushared::dra {
namespace {

// Writes each message with a single call, because several threads write.
void WriteToLog(const std::string& message) {
  std::fputs(("gpushared-dra: " + message + "\n").c_str(), stderr);
}

int Main(std::span<const char* const> arguments) {
  auto parsed = ParseOptions(arguments, [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  });
  if (const auto* stop = std::get_if<admin::ExitNow>(&parsed)) {
    std::fputs(stop->text.c_str(), stop->code == 0 ? stdout : stderr);
    return stop->code;
  }
  const Options& options = std::get<Options>(parsed);
  const kubernetes::EndSignals ends;
  const ApiServer api(options.api);
  Driver driver(
      options.driver, [&] { return ipc::ClientSocketPath(options.socket); }, api, WriteToLog);
  KubeletPlugin plugin(options.kubelet_directory, driver, WriteToLog);
  kubernetes::SubjectLog log(WriteToLog);
  do {
    const Status listening = plugin.Listen();
    log.Once("kubelet", listening.ok() ? "waiting for the kubelet" : listening.message());
    if (listening.code() == StatusCode::kUnavailable) continue;
    driver.Turn();
  } while (!ends.Await());
  return 0;
}

}  // namespace
}  // namespace gpushared::dra

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return gpushared::dra::Main({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpushared-dra: %s\n", error.what());
    return 1;
  }
}
