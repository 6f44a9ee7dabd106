// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/dra/options.h"

#include <utility>

#include "common/command_line/command_line.h"
#include "server/telemetry/admin/parse_arguments.h"

namespace gpushared::dra {
namespace {

constexpr unsigned kResumeSecondsMax = 3600;  // The server's limit.
const std::string kAccount = "/var/run/secrets/kubernetes.io/serviceaccount/";

// Returns the address of the API server from the variables that the kubelet sets in each container.
std::string GetUrl(const std::function<std::string(const char*)>& environment) {
  const std::string host = environment("KUBERNETES_SERVICE_HOST");
  if (host.empty()) return "";
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return "https://" + (is_ipv6 ? "[" + host + "]" : host) + ":" +
         environment("KUBERNETES_SERVICE_PORT");
}

}  // namespace

std::variant<Options, admin::ExitNow> ParseOptions(
    std::span<const char* const> arguments,
    const std::function<std::string(const char*)>& environment) {
  const command_line::Program app("Kubernetes DRA driver for a node's gpushared server.",
                                  "gpushared-dra");
  app.SetVersion(std::string("gpushared-dra ") + GPUSHARED_VERSION);
  app.SetFooter("Exit codes: 0 stopped by a signal; 2 usage error.");
  Options options;
  options.driver.node = environment("NODE_NAME");
  options.api = {
      .url = GetUrl(environment), .ca_file = kAccount + "ca.crt", .token_file = kAccount + "token"};
  app.AddOption("--socket", options.socket,
                "path of the server's socket (default: the standard locations)")
      .TypeName("PATH");
  app.AddOption("--node", options.driver.node, "name of the node (default: NODE_NAME)")
      .TypeName("NAME");
  app.AddOption("--kubelet-directory", options.kubelet_directory, "directory of the kubelet")
      .ShowDefault()
      .TypeName("DIRECTORY");
  app.AddOption("--cdi-directory", options.driver.cdi_directory, "directory for the CDI files")
      .ShowDefault()
      .TypeName("DIRECTORY");
  app.AddOption("--drop-in", options.driver.containers.drop_in,
                "directory on the node with the drop-in libcuda.so.1, which containers get "
                "(default: none)")
      .TypeName("DIRECTORY");
  app.AddOption("--gpu-cdi-kind", options.driver.containers.gpu_cdi_kind,
                "kind of the CDI devices of the node's GPUs, such as nvidia.com/gpu; containers "
                "get theirs with its driver, and their programs run in gate mode")
      .TypeName("KIND");
  app.AddOption("--resume-within", options.driver.resume_seconds,
                "how long endpoints of claims outlive this program, until another one resumes them")
      .Range(1u, kResumeSecondsMax)
      .ShowDefault()
      .TypeName("SECONDS");
  app.AddOption("--api-server", options.api.url,
                "address of the API server (default: as the kubelet tells containers)")
      .TypeName("URL");
  app.AddOption("--api-ca", options.api.ca_file, "certificates of the API server's authority")
      .ShowDefault()
      .TypeName("FILE");
  app.AddOption("--api-token", options.api.token_file, "token of the service account")
      .ShowDefault()
      .TypeName("FILE");
  if (auto stop = admin::ParseArguments(app, arguments); stop) return *std::move(stop);
  const bool is_complete = !options.driver.node.empty() && options.api.url.starts_with("https://");
  if (is_complete) return options;
  return admin::ExitNow{admin::kRejectedArguments,
                        "gpushared-dra: outside a pod, --node NAME and --api-server https://... "
                        "are needed; a pod sets NODE_NAME from its spec.nodeName\n"};
}

}  // namespace gpushared::dra
