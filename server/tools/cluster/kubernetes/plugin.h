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

#include <nlohmann/json_fwd.hpp>

namespace gpushared::kubernetes {

// Thread-compatible value.
struct PluginSettings {
  std::string kubelet_directory = "/var/lib/kubelet/device-plugins";
  std::string cdi_directory;  // Empty: no CDI file, and no names of its devices.
  ShareCounts shares;
};

// Keeps a kubelet informed of what the node's server offers. Owns an endpoint for each resource,
// and the CDI file; both are gone with this object.
//
// Thread-compatible.
class Plugin {
 public:
  // Asks the server; may block.
  using Ask = std::function<Result<nlohmann::json>(const ipc::Admin& question)>;
  // Is called when there is something new to say.
  using Say = std::function<void(const std::string& sentence)>;

  Plugin(PluginSettings settings, Ask ask, Say say);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Asks the server, tells what has changed, and registers where a kubelet does not follow. To be
  // called every second or so.
  void Turn();

 private:
  // A kubelet that has just registered an endpoint gets so many turns to come and follow it.
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
  // Whether there is a kubelet that has not been seen yet, or none: its directory's socket is
  // another one.
  void AttendKubelet();
  void Attend(Resource& resource, bool is_new_kubelet);
  // Once, until there is something else to say of that.
  void SayOnce(const std::string& about, const std::string& sentence);

  const PluginSettings settings_;
  const Ask ask_;
  const Say say_;
  std::map<std::string, Resource> resources_;  // By name.
  std::string cdi_text_;                       // As the file has it; empty: there is none.
  struct stat kubelet_ {};                     // Its socket, as last seen.
  std::map<std::string, std::string> said_;    // By what it is about.
};

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_PLUGIN_H_
