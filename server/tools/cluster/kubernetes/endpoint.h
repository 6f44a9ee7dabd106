// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_ENDPOINT_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_ENDPOINT_H_

#include <memory>
#include <string>

#include "gpushared/status.h"

#include "server/tools/cluster/kubernetes/devices.h"

namespace gpushared::kubernetes {

// Name of the kubelet's own socket in its directory.
inline constexpr const char* kKubeletSocket = "kubelet.sock";

// Device plugin endpoint of one resource: a socket in the kubelet's directory that answers the
// kubelet's requests, and its registration with the kubelet. Owns the socket and the threads that
// serve it.
//
// Thread-compatible; its own threads answer the kubelet.
class Endpoint {
 public:
  // If `names_cdi`, containers also receive the name of their CDI device.
  Endpoint(std::string kubelet_directory, Offer offer, bool names_cdi);
  ~Endpoint();  // Removes the socket.
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Reports changed shares to the kubelet.
  void Publish(Offer offer);
  // Opens the socket, again if it was open, and registers the resource. Blocks for at most 5 s.
  // kUnsupported if the kubelet requires another version of the interface, or rejects the resource.
  Status Register();
  // Returns true if a kubelet has an open stream of the shares.
  bool IsFollowed() const;
  // Returns true if the socket still exists; a kubelet removes all sockets from its directory when
  // it starts.
  bool HasSocket() const;

 private:
  class Service;
  class Listener;

  const std::string kubelet_directory_;
  const std::string name_;  // Name of the socket.
  std::unique_ptr<Service> service_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_ENDPOINT_H_
