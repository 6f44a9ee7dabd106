// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/plugin.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace gpushared::kubernetes {
namespace {

// File name according to the convention of the CDI tools: vendor and class.
constexpr const char* kCdiFile = "gpushared.io-endpoint.json";

bool IsSameFile(const struct stat& one, const struct stat& other) {
  // The change time is compared as well, because the inode number of a deleted file is reused.
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino &&
         one.st_ctim.tv_sec == other.st_ctim.tv_sec && one.st_ctim.tv_nsec == other.st_ctim.tv_nsec;
}

std::string InWords(const Offer& offer) {
  const auto healthy = std::ranges::count_if(offer.shares, &Share::is_healthy);
  return offer.resource + " has " + std::to_string(healthy) + " healthy shares of " +
         std::to_string(offer.shares.size());
}

}  // namespace

Plugin::Plugin(PluginSettings settings, Ask ask, SubjectLog::Write log)
    : settings_(std::move(settings)), ask_(std::move(ask)), log_(std::move(log)) {}

Plugin::~Plugin() {
  if (!cdi_text_.empty()) std::remove((settings_.cdi_directory + "/" + kCdiFile).c_str());
}

void Plugin::Turn() {
  AskServer();
  if (!settings_.cdi_directory.empty()) WriteCdi();
  AttendKubelet();
}

Result<Offers> Plugin::CurrentOffers() const {
  const Result<nlohmann::json> endpoints = ask_({.verb = ipc::AdminVerb::kEndpoints});
  if (!endpoints.ok()) return endpoints.status();
  const Result<nlohmann::json> status = ask_({.verb = ipc::AdminVerb::kStatus});
  if (!status.ok()) return status.status();
  return GetOffers(*endpoints, *status, settings_.shares);
}

void Plugin::AskServer() {
  Result<Offers> found = CurrentOffers();
  if (found.ok()) {
    log_.Once("server", "the server answers");
    return Take(*std::move(found));
  }
  log_.Once("server", "the server does not answer: " + found.status().ToString());
  // If the server does not answer, the last known resources are kept as unhealthy, because they
  // will return with the server.
  Offers last;
  for (const auto& [name, resource] : resources_) {
    last.offers.push_back(resource.offer);
    for (Share& share : last.offers.back().shares) share.is_healthy = false;
  }
  Take(std::move(last));
}

void Plugin::Take(Offers found) {
  std::string rejections;
  for (const std::string& why : found.rejections)
    rejections += (rejections.empty() ? "" : "; ") + why;
  if (!rejections.empty()) log_.Once("rejections", rejections);
  // Resources whose endpoint no longer exists are kept, without shares.
  for (const auto& [name, resource] : resources_) {
    if (std::ranges::find(found.offers, name, &Offer::resource) != found.offers.end()) continue;
    found.offers.push_back({.resource = name, .endpoint = resource.offer.endpoint, .shares = {}});
  }
  for (Offer& offer : found.offers) {
    Resource& resource = resources_[offer.resource];
    if (resource.endpoint == nullptr) {
      resource.endpoint = std::make_unique<Endpoint>(settings_.kubelet_directory, offer,
                                                     !settings_.cdi_directory.empty());
    } else {
      resource.endpoint->Publish(offer);
    }
    log_.Once(offer.resource, InWords(offer));
    resource.offer = std::move(offer);
  }
}

void Plugin::WriteCdi() {
  std::vector<admin::ContainerEndpoint> endpoints;
  for (const auto& [name, resource] : resources_) {
    if (!resource.offer.shares.empty()) endpoints.push_back(resource.offer.endpoint);
  }
  const std::string file = settings_.cdi_directory + "/" + kCdiFile;
  const Result<nlohmann::json> devices = admin::CdiFile(endpoints);
  if (!devices.ok()) {  // No device to describe.
    if (!cdi_text_.empty()) std::remove(file.c_str());
    cdi_text_.clear();
    return;
  }
  std::string text = devices->dump(2) + "\n";
  if (text == cdi_text_) return;
  if (const Status written = admin::ReplaceFile(file, text); !written.ok()) {
    return log_.Once("cdi", written.message());
  }
  log_.Once("cdi", "CDI devices are in " + file);
  cdi_text_ = std::move(text);
}

void Plugin::AttendKubelet() {
  const std::string path = settings_.kubelet_directory + "/" + kKubeletSocket;
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    return log_.Once("kubelet", "there is no kubelet yet: " + path + " is missing");
  }
  const bool is_new = !IsSameFile(facts, kubelet_);
  kubelet_ = facts;
  for (auto& [name, resource] : resources_) Attend(resource, is_new);
}

void Plugin::Attend(Resource& resource, bool is_new_kubelet) {
  resource.turns_unfollowed = resource.endpoint->IsFollowed() ? 0 : resource.turns_unfollowed + 1;
  const bool is_in_order = !is_new_kubelet && resource.endpoint->HasSocket() &&
                           resource.turns_unfollowed < kTurnsToFollow;
  if (is_in_order) return;
  const Status registered = resource.endpoint->Register();
  const std::string about = "registration of " + resource.offer.resource;
  if (!registered.ok()) {
    // The next iteration retries.
    resource.turns_unfollowed = kTurnsToFollow;
    return log_.Once(about, registered.ToString());
  }
  resource.turns_unfollowed = 0;
  log_.Forget(about);
  log_.Always("the kubelet has registered " + resource.offer.resource);
}

}  // namespace gpushared::kubernetes
