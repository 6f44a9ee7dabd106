// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_DRIVER_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_DRIVER_H_

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "server/telemetry/admin/ask.h"
#include "server/tools/cluster/kubernetes/dra/api_server.h"
#include "server/tools/cluster/kubernetes/dra/claim.h"
#include "server/tools/cluster/kubernetes/subject_log.h"

#include <nlohmann/json.hpp>

namespace gpushared::dra {

// Thread-compatible value.
struct DriverSettings {
  std::string node;
  std::string cdi_directory = "/var/run/cdi";
  // How long endpoints outlive this process, so that its successor can resume their leases.
  unsigned resume_seconds = 600;
  ContainerSettings containers;
};

// The claims that are prepared on this node. Each has a lease on an endpoint of the node's server
// and a CDI file. The files are the only state on disk: a new driver reads them and resumes the
// leases; it ends leases without a file.
//
// Thread-safe, except Turn, which is called by one thread.
class Driver {
 public:
  // Returns the path of the server's socket.
  using GetServer = std::function<Result<std::string>()>;

  // Reads the CDI files. `api` must outlive this object.
  Driver(DriverSettings settings, GetServer get_server, const ApiServer& api,
         kubernetes::SubjectLog::Write log);

  // Returns the prepared claim; preparing it again has no further effect. Blocks for at most about
  // 30 s.
  Result<Claim> Prepare(const ClaimName& name);
  // Ends the claim's lease and removes its CDI file. Also succeeds if the claim is not prepared. If
  // the server does not answer, a later turn ends the lease.
  Status Unprepare(const ClaimName& name);
  // Renews leases that the server has lost, ends leases that belong to no claim, and periodically
  // publishes the devices. Should be called about once a second.
  void Turn();
  // Makes the next turn publish, because a new kubelet deletes its node's ResourceSlices.
  void PublishSoon() { must_publish_ = true; }

  const ContainerSettings& containers() const { return settings_.containers; }

 private:
  // Number of turns between two checks whether the devices have changed or the slice was deleted.
  static constexpr int kTurnsToPublish = 10;
  struct Prepared {
    Claim claim;
    std::optional<admin::Lease> lease;
    std::string cdi_text;
  };

  Result<nlohmann::json> Ask(ipc::AdminVerb verb) const;
  std::string GetCdiPath(const std::string& uid) const;
  void ReadCdiFiles() GPUSHARED_REQUIRES(mutex_);
  // Leases the claim's endpoint unless it is leased, and writes its CDI file.
  Status Lease(Prepared& prepared) GPUSHARED_REQUIRES(mutex_);
  // Ends a lease that another connection may hold.
  Status EndLease(const std::string& name) GPUSHARED_REQUIRES(mutex_);
  void Reconcile() GPUSHARED_REQUIRES(mutex_);
  void Publish();
  Status PublishDevices(const std::vector<kubernetes::DeviceFacts>& devices,
                        const std::string& server_version);

  const DriverSettings settings_;
  const GetServer get_server_;
  const ApiServer& api_;
  std::atomic<bool> must_publish_ = true;
  int turns_ = 0;
  // Content of the last published ResourceSlice, and the resourceVersion that it received.
  nlohmann::json published_;
  std::string published_version_;
  // The following is also used by threads of the kubelet's calls.
  Mutex mutex_;
  kubernetes::SubjectLog log_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<std::string, Prepared> claims_ GPUSHARED_GUARDED_BY(mutex_);  // By UID.
};

}  // namespace gpushared::dra

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_DRA_DRIVER_H_
