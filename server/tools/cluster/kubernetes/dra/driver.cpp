// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/dra/driver.h"

#include <poll.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "server/telemetry/admin/containers.h"
#include "server/telemetry/admin/json_fields.h"

namespace gpushared::dra {
namespace {

using nlohmann::json;

// File names according to the convention of the CDI tools: vendor, class and an id.
constexpr const char* kFilePrefix = "gpushared.io-claim_";
constexpr const char* kSlices = "/apis/resource.k8s.io/v1/resourceslices";

bool IsOver(const admin::Lease& lease) {
  pollfd ended = {.fd = lease.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, 0) > 0;
}

}  // namespace

Driver::Driver(DriverSettings settings, GetServer get_server, const ApiServer& api,
               kubernetes::SubjectLog::Write log)
    : settings_(std::move(settings)),
      get_server_(std::move(get_server)),
      api_(api),
      log_(std::move(log)) {
  const MutexLock lock(mutex_);
  ReadCdiFiles();
}

std::string Driver::GetCdiPath(const std::string& uid) const {
  return settings_.cdi_directory + "/" + kFilePrefix + uid + ".json";
}

void Driver::ReadCdiFiles() {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& each : std::filesystem::directory_iterator(settings_.cdi_directory, error)) {
    if (each.path().filename().string().starts_with(kFilePrefix)) files.push_back(each.path());
  }
  if (error) log_.Always("cannot read " + settings_.cdi_directory + ": " + error.message());
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file);
    const json parsed = json::parse(stream, nullptr, /*allow_exceptions=*/false);
    Result<Claim> claim = ReadCdiFile(parsed);
    // All other files are removed, such as an incomplete file of a driver that was killed while
    // writing.
    if (claim.ok() && file == GetCdiPath(claim->name.uid)) {
      const std::string uid = claim->name.uid;
      claims_.emplace(uid, Prepared{.claim = *std::move(claim),
                                    .lease = std::nullopt,
                                    .cdi_text = parsed.dump(2) + "\n"});
      continue;
    }
    log_.Always(file.string() + " is removed: " + claim.status().message());
    std::filesystem::remove(file, error);
  }
}

Result<json> Driver::Ask(ipc::AdminVerb verb) const {
  const Result<std::string> path = get_server_();
  if (!path.ok()) return path.status();
  return admin::Ask(*path, {.verb = verb});
}

Result<Claim> Driver::Prepare(const ClaimName& name) {
  if (Status status = CheckUid(name); !status.ok()) return status;
  const MutexLock lock(mutex_);
  if (const auto found = claims_.find(name.uid); found != claims_.end()) {
    const Status leased = Lease(found->second);
    return leased.ok() ? Result<Claim>(found->second.claim) : leased;
  }
  const Result<json> object = api_.Call(
      "GET", "/apis/resource.k8s.io/v1/namespaces/" + name.space + "/resourceclaims/" + name.name);
  if (!object.ok()) {
    return Status(object.status().code(),
                  InWords(name) + " is not prepared: " + object.status().message());
  }
  const Result<json> status = Ask(ipc::AdminVerb::kStatus);
  const auto devices = status.ok() ? kubernetes::GetDevices(*status)
                                   : Result<std::vector<kubernetes::DeviceFacts>>(status.status());
  if (!devices.ok()) {
    return Status(devices.status().code(), InWords(name) + " is not prepared: the node's server: " +
                                               devices.status().message());
  }
  Result<Claim> claim = ReadClaim(name, *object, settings_.node, *devices);
  if (!claim.ok()) return claim.status();
  Prepared prepared = {.claim = *std::move(claim), .lease = std::nullopt, .cdi_text = ""};
  if (Status leased = Lease(prepared); !leased.ok()) {
    // Ends the lease explicitly, because the server would otherwise keep it until it is resumed.
    if (prepared.lease) (void)EndLease(GetLeaseName(name.uid));
    return leased;
  }
  log_.Always(InWords(name) + " is prepared: " + prepared.lease->socket());
  return claims_.emplace(name.uid, std::move(prepared)).first->second.claim;
}

Status Driver::Lease(Prepared& prepared) {
  const ClaimName& name = prepared.claim.name;
  if (!prepared.lease || IsOver(*prepared.lease)) {
    prepared.lease.reset();
    const Result<std::string> path = get_server_();
    if (!path.ok()) return path.status();
    Result<admin::Lease> lease =
        admin::Lease::Take(*path, prepared.claim.terms + "resume_within = \"" +
                                      std::to_string(settings_.resume_seconds) + "s\"\n");
    if (!lease.ok()) {
      return {lease.status().code(),
              InWords(name) + " is not prepared: the node's server: " + lease.status().message()};
    }
    prepared.lease = std::move(*lease);
  }
  // The text changes if the server was restarted, because its sockets then have new directories.
  std::string text =
      GetCdiFile(prepared.claim, prepared.lease->socket(), settings_.containers).dump(2) + "\n";
  const std::string path = GetCdiPath(name.uid);
  std::error_code ignored;
  if (text == prepared.cdi_text && std::filesystem::exists(path, ignored)) return Status::Ok();
  if (Status written = admin::ReplaceFile(path, text); !written.ok()) {
    return {written.code(), InWords(name) + " is not prepared: " + written.message()};
  }
  prepared.cdi_text = std::move(text);
  return Status::Ok();
}

Status Driver::EndLease(const std::string& name) {
  const Result<std::string> path = get_server_();
  if (!path.ok()) return path.status();
  // Resumes the lease without resume_within, which makes it an ordinary lease, so that the server
  // ends it at once.
  const Result<admin::Lease> lease =
      admin::Lease::Take(*path, "name = \"" + name + "\"\nclass = \"low\"\nwho = \"everyone\"\n");
  if (lease.ok()) lease->End();
  return lease.status();
}

Status Driver::Unprepare(const ClaimName& name) {
  if (Status status = CheckUid(name); !status.ok()) return status;
  const MutexLock lock(mutex_);
  std::error_code error;
  std::filesystem::remove(GetCdiPath(name.uid), error);
  if (error) {
    return {StatusCode::kInternal, InWords(name) + " is still prepared: cannot remove " +
                                       GetCdiPath(name.uid) + ": " + error.message()};
  }
  // From here on the lease belongs to no claim, so if it is not ended now, a later turn ends it.
  if (claims_.erase(name.uid) == 0) return Status::Ok();
  if (const Status ended = EndLease(GetLeaseName(name.uid)); !ended.ok()) {
    log_.Always("the lease of " + InWords(name) + " ends later: " + ended.message());
  }
  log_.Always(InWords(name) + " is unprepared");
  return Status::Ok();
}

void Driver::Reconcile() {
  // The server is asked while mutex_ is held, because the answer must not be older than `claims_`.
  const Result<json> answer = Ask(ipc::AdminVerb::kEndpoints);
  if (!answer.ok()) {
    return log_.Once("server", "the server does not answer: " + answer.status().ToString());
  }
  log_.Once("server", "the server answers");
  std::set<std::string> needed;
  for (auto& [uid, prepared] : claims_) {
    needed.insert(GetLeaseName(uid));
    const Status leased = Lease(prepared);
    log_.Once("claim " + uid,
              leased.ok() ? InWords(prepared.claim.name) + " has its endpoint" : leased.message());
  }
  const auto rows = answer->find("endpoints");
  if (rows == answer->end()) return;
  for (const json& row : *rows) {
    const std::string name = row.value("endpoint", "");
    const bool is_ours = name.starts_with(kLeasePrefix) && row.contains("lessee");
    if (!is_ours || needed.contains(name) || !row.value("open", false)) continue;
    log_.Always("ending the lease of endpoint '" + name + "', which belongs to no claim");
    (void)EndLease(name);
  }
}

void Driver::Turn() {
  {
    const MutexLock lock(mutex_);
    Reconcile();
  }
  const bool is_time = ++turns_ % kTurnsToPublish == 0;
  if (must_publish_.exchange(false) || is_time) Publish();
}

void Driver::Publish() {
  // While the server does not answer, an empty list of devices is published.
  std::vector<kubernetes::DeviceFacts> devices;
  std::string version = "0.0.0";
  if (const Result<json> status = Ask(ipc::AdminVerb::kStatus); status.ok()) {
    if (auto found = kubernetes::GetDevices(*status); found.ok()) devices = *std::move(found);
    version = admin::Text(Find(*status, "/server"), "version");
  }
  const Status published = PublishDevices(devices, version);
  const MutexLock lock(mutex_);
  log_.Once("slice", published.ok() ? "the node's ResourceSlice is published"
                                    : "the node's ResourceSlice: " + published.message());
}

Status Driver::PublishDevices(const std::vector<kubernetes::DeviceFacts>& devices,
                              const std::string& server_version) {
  const std::string name = settings_.node + "-" + kDriverName;
  const std::string path = std::string(kSlices) + "/" + name;
  const Result<json> current = api_.Call("GET", path);
  if (!current.ok() && current.status().code() != StatusCode::kNotFound) return current.status();
  json wanted = {{"apiVersion", "resource.k8s.io/v1"},
                 {"kind", "ResourceSlice"},
                 {"metadata", {{"name", name}}},
                 {"spec", GetSliceSpec(settings_.node, devices, server_version, 1)}};
  Result<json> written = current;
  if (current.ok()) {
    const std::string version = admin::Text(Find(*current, "/metadata"), "resourceVersion");
    // The objects are not compared, because the API server writes quantities differently.
    if (wanted["spec"] == published_ && version == published_version_) return Status::Ok();
    const json& generation = Find(*current, "/spec/pool/generation");
    json sent = wanted;
    sent["metadata"]["resourceVersion"] = version;
    sent["spec"]["pool"]["generation"] =
        (generation.is_number_integer() ? generation.get<std::int64_t>() : 0) + 1;
    written = api_.Call("PUT", path, sent);
  } else {
    written = api_.Call("POST", kSlices, wanted);
  }
  if (!written.ok()) return written.status();
  published_ = wanted["spec"];
  published_version_ = admin::Text(Find(*written, "/metadata"), "resourceVersion");
  const bool is_shared = Find(*written, "/spec/devices/0/allowMultipleAllocations") == true;
  if (wanted["spec"]["devices"].empty() || is_shared) return Status::Ok();
  return {StatusCode::kUnsupported,
          "the API server has dropped allowMultipleAllocations, so a claim gets a whole device; "
          "enable its feature gate DRAConsumableCapacity"};
}

}  // namespace gpushared::dra
