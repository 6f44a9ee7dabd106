// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/dra/kubelet.h"

#include <dra.grpc.pb.h>
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <plugin_registration.grpc.pb.h>
#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ipc/unique_fd.h"

namespace gpushared::dra {
namespace {

namespace v1 = k8s::io::kubelet::pkg::apis::dra::v1;

constexpr const char* kService = "v1.DRAPlugin";
constexpr std::size_t kRequestClaimsMax = 256;

ClaimName GetName(const v1::Claim& claim) {
  return {.space = claim.namespace_(), .name = claim.name(), .uid = claim.uid()};
}

template <typename Request>
grpc::Status CheckSize(const Request& request) {
  if (static_cast<std::size_t>(request.claims_size()) <= kRequestClaimsMax) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          "rejected: asked for " + std::to_string(request.claims_size()) +
              " claims at once, allowed: " + std::to_string(kRequestClaimsMax)};
}

}  // namespace

// Thread-safe.
class KubeletPlugin::Services final : public v1::DRAPlugin::Service,
                                      public pluginregistration::Registration::Service {
 public:
  Services(std::string socket, Driver& driver, std::function<void(const std::string&)> log)
      : socket_(std::move(socket)), driver_(driver), log_(std::move(log)) {}

  grpc::Status NodePrepareResources(grpc::ServerContext*,
                                    const v1::NodePrepareResourcesRequest* request,
                                    v1::NodePrepareResourcesResponse* response) override {
    if (grpc::Status fits = CheckSize(*request); !fits.ok()) return fits;
    for (const v1::Claim& asked : request->claims()) {
      v1::NodePrepareResourceResponse& answer = (*response->mutable_claims())[asked.uid()];
      const Result<Claim> claim = driver_.Prepare(GetName(asked));
      if (!claim.ok()) {
        log_(claim.status().message());
        answer.set_error(claim.status().message());
        continue;
      }
      for (const AllocatedDevice& each : claim->devices) {
        v1::Device& device = *answer.add_devices();
        device.add_request_names(each.request.substr(0, each.request.find('/')));
        device.set_pool_name(each.pool);
        device.set_device_name(each.device);
        for (const std::string& name : GetCdiNames(*claim, each, driver_.containers())) {
          device.add_cdi_device_ids(name);
        }
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status NodeUnprepareResources(grpc::ServerContext*,
                                      const v1::NodeUnprepareResourcesRequest* request,
                                      v1::NodeUnprepareResourcesResponse* response) override {
    if (grpc::Status fits = CheckSize(*request); !fits.ok()) return fits;
    for (const v1::Claim& asked : request->claims()) {
      v1::NodeUnprepareResourceResponse& answer = (*response->mutable_claims())[asked.uid()];
      const Status status = driver_.Unprepare(GetName(asked));
      if (!status.ok()) answer.set_error(status.message());
    }
    return grpc::Status::OK;
  }

  grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                       pluginregistration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(kDriverName);
    info->set_endpoint(socket_);
    info->add_supported_versions(kService);
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const pluginregistration::RegistrationStatus* status,
                                        pluginregistration::RegistrationStatusResponse*) override {
    if (status->plugin_registered()) {
      log_("the kubelet has registered the driver");
      driver_.PublishSoon();
    } else {
      log_("the kubelet rejected the driver: " + status->error() + "; this driver speaks " +
           kService + ", which kubelets since 1.34 do");
    }
    return grpc::Status::OK;
  }

  Status Listen(const std::string& registration) {
    const std::filesystem::path directory = std::filesystem::path(socket_).parent_path();
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (!lock_.valid()) {
      const std::string path = directory / "lock";
      ipc::UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!lock.valid()) return {StatusCode::kInternal, "cannot open " + path};
      if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        return {StatusCode::kUnavailable, "another driver runs on this node and holds " + path};
      }
      lock_ = std::move(lock);
    }
    Stop();
    // Removes sockets that exist because an earlier process was killed.
    for (const std::string& path : {socket_, registration}) std::filesystem::remove(path, error);
    grpc::ServerBuilder builder;
    // The registration socket is last, because the kubelet may call the driver as soon as that
    // socket exists.
    for (const std::string& path : {socket_, registration}) {
      builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    }
    builder.RegisterService(static_cast<v1::DRAPlugin::Service*>(this));
    builder.RegisterService(static_cast<pluginregistration::Registration::Service*>(this));
    server_ = builder.BuildAndStart();
    if (server_ != nullptr) return Status::Ok();
    return {StatusCode::kInternal, "cannot listen on " + socket_ + " and " + registration +
                                       ": the directories are the kubelet's, in which only root "
                                       "may write, and a path may have at most 107 bytes"};
  }
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    server_->Wait();
    server_.reset();
  }
  bool IsServing() const { return server_ != nullptr; }

 private:
  const std::string socket_;
  Driver& driver_;
  const std::function<void(const std::string&)> log_;
  ipc::UniqueFd lock_;
  std::unique_ptr<grpc::Server> server_;
};

KubeletPlugin::KubeletPlugin(const std::string& directory, Driver& driver,
                             std::function<void(const std::string& message)> log)
    : registration_(directory + "/plugins_registry/" + kDriverName + "-reg.sock"),
      own_directory_(directory + "/plugins/" + kDriverName),
      services_(std::make_unique<Services>(own_directory_ + "/dra.sock", driver, std::move(log))) {}

KubeletPlugin::~KubeletPlugin() {
  if (!services_->IsServing()) return;
  services_->Stop();
  std::error_code ignored;
  std::filesystem::remove(registration_, ignored);
  std::filesystem::remove(own_directory_ + "/dra.sock", ignored);
}

Status KubeletPlugin::Listen() {
  std::error_code ignored;
  const bool are_there = std::filesystem::is_socket(registration_, ignored) &&
                         std::filesystem::is_socket(own_directory_ + "/dra.sock", ignored);
  return services_->IsServing() && are_there ? Status::Ok() : services_->Listen(registration_);
}

}  // namespace gpushared::dra
