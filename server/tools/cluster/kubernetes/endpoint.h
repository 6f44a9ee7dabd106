// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_ENDPOINT_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_ENDPOINT_H_

#include <memory>
#include <string>

#include "gpushared/status.h"

#include "server/tools/cluster/kubernetes/devices.h"

namespace gpushared::kubernetes {

// The kubelet's own socket, in its directory.
inline constexpr const char* kKubeletSocket = "kubelet.sock";

// One resource as the kubelet sees it: a socket in the kubelet's directory, on which it asks, and
// the registration that tells it so. Owns the socket, and the threads that answer on it.
//
// Thread-compatible. Its own threads answer the kubelet.
class Endpoint {
 public:
  // `names_cdi`: containers are told their CDI device, too.
  Endpoint(std::string kubelet_directory, Offer offer, bool names_cdi);
  ~Endpoint();  // Removes the socket.
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // The kubelet hears of shares that have changed.
  void Publish(Offer offer);
  // Listens, anew if it did before, and registers. Blocks for up to 5 s. kUnsupported: the kubelet
  // wants another version of the interface, or rejects the resource.
  Status Register();
  // Whether a kubelet follows the shares.
  bool IsFollowed() const;
  // Whether the socket is where it was made: a kubelet that starts empties its directory.
  bool HasSocket() const;

 private:
  class Service;
  class Listener;

  const std::string kubelet_directory_;
  const std::string name_;  // The socket's.
  std::unique_ptr<Service> service_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_ENDPOINT_H_
