// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/dra/api_server.h"

#include <curl/curl.h>

#include <cstddef>
#include <fstream>
#include <memory>
#include <utility>

namespace gpushared::dra {
namespace {

using nlohmann::json;

constexpr long kCallSecondsMax = 10;
// Far above the size of a claim, of which etcd stores at most 1.5 MiB.
constexpr std::size_t kAnswerBytesMax = std::size_t{4} << 20;
constexpr std::size_t kMessageBytesMax = 512;

std::size_t Append(const char* data, std::size_t, std::size_t bytes, void* answer) {
  auto& text = *static_cast<std::string*>(answer);
  if (text.size() + bytes > kAnswerBytesMax) return 0;  // Ends the transfer.
  text.append(data, bytes);
  return bytes;
}

StatusCode GetCode(long http) {
  if (http == 404) return StatusCode::kNotFound;
  if (http == 409) return StatusCode::kNotReady;
  return http == 401 || http == 403 ? StatusCode::kPermissionDenied : StatusCode::kUnavailable;
}

}  // namespace

ApiServer::ApiServer(Settings settings) : settings_(std::move(settings)) {
  ::curl_global_init(CURL_GLOBAL_DEFAULT);
}

Result<json> ApiServer::Call(const std::string& method, const std::string& path,
                             const json& body) const {
  const std::string what = method + " " + settings_.url + path;
  // The token is read for each call, because the kubelet renews it.
  std::string token;
  if (!std::getline(std::ifstream(settings_.token_file), token) || token.empty()) {
    return Status(StatusCode::kNotFound, "cannot read the token in " + settings_.token_file);
  }
  const std::unique_ptr<CURL, void (*)(CURL*)> call(::curl_easy_init(), ::curl_easy_cleanup);
  curl_slist* list = nullptr;
  for (const std::string& header :
       {"Authorization: Bearer " + token, std::string("Content-Type: application/json"),
        std::string("Accept: application/json")}) {
    list = ::curl_slist_append(list, header.c_str());
  }
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, ::curl_slist_free_all);
  // Names of products may have been cut within a character.
  const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string url = settings_.url + path;
  std::string answer;
  char why[CURL_ERROR_SIZE] = "";
  ::curl_easy_setopt(call.get(), CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(call.get(), CURLOPT_PROTOCOLS_STR, "https");
  ::curl_easy_setopt(call.get(), CURLOPT_PROXY, "");
  ::curl_easy_setopt(call.get(), CURLOPT_CAINFO, settings_.ca_file.c_str());
  ::curl_easy_setopt(call.get(), CURLOPT_HTTPHEADER, headers.get());
  ::curl_easy_setopt(call.get(), CURLOPT_CUSTOMREQUEST, method.c_str());
  if (!body.is_null()) ::curl_easy_setopt(call.get(), CURLOPT_POSTFIELDS, text.c_str());
  ::curl_easy_setopt(call.get(), CURLOPT_TIMEOUT, kCallSecondsMax);
  ::curl_easy_setopt(call.get(), CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(call.get(), CURLOPT_WRITEFUNCTION, Append);
  ::curl_easy_setopt(call.get(), CURLOPT_WRITEDATA, &answer);
  ::curl_easy_setopt(call.get(), CURLOPT_ERRORBUFFER, why);
  if (const CURLcode code = ::curl_easy_perform(call.get()); code != CURLE_OK) {
    return Status(StatusCode::kUnavailable,
                  what + " failed: " + (why[0] != '\0' ? why : ::curl_easy_strerror(code)));
  }
  long http = 0;
  ::curl_easy_getinfo(call.get(), CURLINFO_RESPONSE_CODE, &http);
  json object = json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (http < 200 || http >= 300) {
    const bool has_message = object.is_object() && object.contains("message");
    return Status(
        GetCode(http),
        what + " failed: " + std::to_string(http) + " " +
            (has_message ? object["message"].dump() : answer).substr(0, kMessageBytesMax));
  }
  if (object.is_object()) return object;
  return Status(StatusCode::kProtocolViolation, what + ": the answer is no JSON object");
}

}  // namespace gpushared::dra
