// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/endpoint.h"

#include <device_plugin.grpc.pb.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"

namespace gpushared::kubernetes {
namespace {

constexpr const char* kVersion = "v1beta1";
constexpr std::chrono::seconds kRegisterTimeMax{5};
// Normally a kubelet has one stream; while it restarts, the previous one may not have ended yet.
constexpr int kFollowersMax = 8;
// Bounds the delay until a kubelet's exit is detected.
constexpr std::chrono::milliseconds kFollowerCheck{200};

grpc::Status ToGrpc(const Status& why) {
  const grpc::StatusCode code = why.code() == StatusCode::kNotFound
                                    ? grpc::StatusCode::NOT_FOUND
                                    : grpc::StatusCode::INVALID_ARGUMENT;
  return {code, why.message()};
}

template <typename Texts>
std::vector<std::string> Copy(const Texts& texts) {
  return {texts.begin(), texts.end()};
}

}  // namespace

// Thread-safe.
class Endpoint::Service final : public v1beta1::DevicePlugin::Service {
 public:
  Service(Offer offer, bool names_cdi) : names_cdi_(names_cdi), offer_(std::move(offer)) {}

  std::string resource() const {
    const MutexLock lock(mutex_);
    return offer_.resource;
  }

  void Publish(Offer offer) {
    const MutexLock lock(mutex_);
    if (offer.shares != offer_.shares) ++version_;
    offer_ = std::move(offer);
    changed_.notify_all();
  }
  bool IsFollowed() const {
    const MutexLock lock(mutex_);
    return followers_ > 0;
  }
  // Makes active calls return, and rejects new ones.
  void Stop() {
    const MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  void Resume() {
    const MutexLock lock(mutex_);
    is_over_ = false;
  }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* options) override {
    options->set_get_preferred_allocation_available(true);
    return grpc::Status::OK;
  }

  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    MutexLock lock(mutex_);
    if (followers_ >= kFollowersMax) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "rejected: " + std::to_string(followers_) + " follow " + offer_.resource +
                  " already, allowed: " + std::to_string(kFollowersMax)};
    }
    ++followers_;
    std::uint64_t sent = 0;  // Versions start at 1.
    while (!is_over_ && !context->IsCancelled()) {
      if (sent == version_) {
        changed_.wait_for(lock.waitable(), kFollowerCheck);
        continue;
      }
      sent = version_;
      const v1beta1::ListAndWatchResponse list = GetList(offer_.shares);
      lock.Unlock();
      const bool is_there = writer->Write(list);
      lock.Lock();
      if (!is_there) break;
    }
    --followers_;
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override {
    const MutexLock lock(mutex_);
    for (const auto& asked : request->container_requests()) {
      const auto size = static_cast<std::size_t>(std::max(asked.allocation_size(), 0));
      auto* const chosen = response->add_container_responses();
      for (const std::string& id : GetPreferred(offer_, Copy(asked.available_deviceids()),
                                                Copy(asked.must_include_deviceids()), size)) {
        chosen->add_deviceids(id);
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    const MutexLock lock(mutex_);
    for (const auto& asked : request->container_requests()) {
      const Result<Grant> grant = GetGrant(offer_, Copy(asked.devicesids()));
      if (!grant.ok()) return ToGrpc(grant.status());
      auto* const given = response->add_container_responses();
      for (const auto& [name, value] : grant->variables) (*given->mutable_envs())[name] = value;
      auto* const mount = given->add_mounts();
      mount->set_container_path(grant->directory_inside);
      mount->set_host_path(grant->directory);
      mount->set_read_only(true);
      if (names_cdi_) given->add_cdi_devices()->set_name(grant->cdi_device);
    }
    return grpc::Status::OK;
  }

 private:
  static v1beta1::ListAndWatchResponse GetList(const std::vector<Share>& shares) {
    v1beta1::ListAndWatchResponse list;
    for (const Share& share : shares) {
      auto* const device = list.add_devices();
      device->set_id(share.id);
      device->set_health(share.is_healthy ? "Healthy" : "Unhealthy");
    }
    return list;
  }

  const bool names_cdi_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  Offer offer_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t version_ GPUSHARED_GUARDED_BY(mutex_) = 1;  // Counts changes of the shares.
  int followers_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  bool is_over_ GPUSHARED_GUARDED_BY(mutex_) = false;
};

// Runs a server on the socket until destruction.
class Endpoint::Listener {
 public:
  Listener(const std::string& path, Service& service) : service_(service) {
    service_.Resume();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~Listener() {
    service_.Stop();
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  bool is_there() const { return server_ != nullptr; }

 private:
  Service& service_;
  std::unique_ptr<grpc::Server> server_;
};

Endpoint::Endpoint(std::string kubelet_directory, Offer offer, bool names_cdi)
    : kubelet_directory_(std::move(kubelet_directory)),
      name_("gpushared-" + offer.endpoint.name + ".sock"),
      service_(std::make_unique<Service>(std::move(offer), names_cdi)) {}

Endpoint::~Endpoint() {
  if (!listener_) return;
  listener_.reset();
  std::remove((kubelet_directory_ + "/" + name_).c_str());
}

void Endpoint::Publish(Offer offer) { service_->Publish(std::move(offer)); }

bool Endpoint::IsFollowed() const { return service_->IsFollowed(); }

bool Endpoint::HasSocket() const {
  struct stat facts {};
  const std::string path = kubelet_directory_ + "/" + name_;
  return listener_ && ::lstat(path.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode);
}

Status Endpoint::Register() {
  const std::string path = kubelet_directory_ + "/" + name_;
  listener_.reset();
  std::remove(path.c_str());  // The socket exists if an earlier process was killed.
  listener_ = std::make_unique<Listener>(path, *service_);
  if (!listener_->is_there()) {
    listener_.reset();
    return {StatusCode::kInternal,
            "cannot listen on " + path +
                ": the directory is the kubelet's, in which only root may write, "
                "and a path may have at most 107 bytes"};
  }
  const auto kubelet = v1beta1::Registration::NewStub(grpc::CreateChannel(
      "unix:" + kubelet_directory_ + "/" + kKubeletSocket, grpc::InsecureChannelCredentials()));
  v1beta1::RegisterRequest request;
  request.set_version(kVersion);
  request.set_endpoint(name_);
  request.set_resource_name(service_->resource());
  request.mutable_options()->set_get_preferred_allocation_available(true);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRegisterTimeMax);
  v1beta1::Empty nothing;
  const grpc::Status answer = kubelet->Register(&context, request, &nothing);
  if (answer.ok()) return Status::Ok();
  const std::string said = service_->resource() + " is not registered: the kubelet " +
                           (answer.error_code() == grpc::StatusCode::UNAVAILABLE ||
                                    answer.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED
                                ? "does not answer: "
                                : "rejected it: ") +
                           answer.error_message();
  const bool is_rejection = answer.error_code() == grpc::StatusCode::UNKNOWN ||
                            answer.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  if (!is_rejection) return {StatusCode::kUnavailable, said};
  return {StatusCode::kUnsupported,
          said + "; this plugin speaks " + kVersion + ", which kubelets since 1.10 do"};
}

}  // namespace gpushared::kubernetes
