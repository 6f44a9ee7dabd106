// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_KUBELET_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_KUBELET_H_

#include <functional>
#include <memory>
#include <string>

#include "gpushared/status.h"

#include "server/tools/cluster/kubernetes/dra/driver.h"

namespace gpushared::dra {

// The sockets on which the kubelet finds the driver and calls it: one in the kubelet's directory of
// registrations, one in the driver's own. Owns them and the threads that serve them.
//
// Thread-compatible; its own threads answer the kubelet.
class KubeletPlugin {
 public:
  // `directory` is the kubelet's, usually /var/lib/kubelet. `driver` must outlive this object.
  KubeletPlugin(const std::string& directory, Driver& driver,
                std::function<void(const std::string& message)> log);
  ~KubeletPlugin();  // Removes the sockets, so that the kubelet forgets the driver.
  KubeletPlugin(const KubeletPlugin&) = delete;
  KubeletPlugin& operator=(const KubeletPlugin&) = delete;

  // Listens, unless both sockets exist and this object serves them. kUnavailable if another driver
  // runs on this node.
  Status Listen();

 private:
  class Services;

  const std::string registration_, own_directory_;
  const std::unique_ptr<Services> services_;
};

}  // namespace gpushared::dra

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_KUBELET_H_
