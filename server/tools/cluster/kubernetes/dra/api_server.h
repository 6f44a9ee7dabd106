// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_API_SERVER_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_API_SERVER_H_

#include <string>

#include "gpushared/result.h"

#include <nlohmann/json.hpp>

namespace gpushared::dra {

// Client of the Kubernetes API, with the service account's token. Each call is a connection of its
// own, because the driver makes few calls.
//
// Thread-safe.
class ApiServer {
 public:
  // Thread-compatible value.
  struct Settings {
    std::string url;      // "https://10.0.0.1:443"
    std::string ca_file;  // CA certificates that verify the server's certificate.
    std::string token_file;
  };
  explicit ApiServer(Settings settings);

  // Sends a request, without a body if `body` is null. Returns the object in the answer. Blocks for
  // at most 10 s. Fails with kNotFound for HTTP code 404 or if the token cannot be read, and with
  // kNotReady for HTTP code 409.
  Result<nlohmann::json> Call(const std::string& method, const std::string& path,
                              const nlohmann::json& body = nullptr) const;

 private:
  const Settings settings_;
};

}  // namespace gpushared::dra

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_API_SERVER_H_
