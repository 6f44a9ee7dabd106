// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_PLUGIN_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_PLUGIN_H_

#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "gpushared/result.h"

#include "ipc/wire/control.h"
#include "server/tools/cluster/kubernetes/devices.h"
#include "server/tools/cluster/kubernetes/endpoint.h"
#include "server/tools/cluster/kubernetes/subject_log.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::kubernetes {

// Thread-compatible value.
struct PluginSettings {
  std::string kubelet_directory = "/var/lib/kubelet/device-plugins";
  std::string cdi_directory;  // If empty, there are no CDI file and no CDI device names.
  ShareCounts shares;
};

// Keeps a kubelet informed of the resources that the node's server offers. Owns an endpoint for
// each resource and the CDI file, and removes both on destruction.
//
// Thread-compatible.
class Plugin {
 public:
  // Queries the server; may block.
  using Ask = std::function<Result<nlohmann::json>(const ipc::Admin& question)>;

  Plugin(PluginSettings settings, Ask ask, SubjectLog::Write log);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Queries the server, reports changes, and registers resources that no kubelet follows. Should be
  // called about once a second.
  void Turn();

 private:
  // Number of turns within which a kubelet that has registered an endpoint must open the stream.
  static constexpr int kTurnsToFollow = 10;
  struct Resource {
    Offer offer;
    std::unique_ptr<Endpoint> endpoint;
    int turns_unfollowed = 0;
  };

  void AskServer();
  Result<Offers> CurrentOffers() const;
  void Take(Offers found);
  void WriteCdi();
  // Registers the resources that no kubelet follows; all of them if the identity of the kubelet's
  // socket shows that the kubelet has restarted.
  void AttendKubelet();
  void Attend(Resource& resource, bool is_new_kubelet);

  const PluginSettings settings_;
  const Ask ask_;
  SubjectLog log_;
  std::map<std::string, Resource> resources_;  // By name.
  std::string cdi_text_;                       // Contents of the CDI file; empty if there is none.
  struct stat kubelet_ {};                     // Identity of the kubelet's socket, as last seen.
};

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_PLUGIN_H_
