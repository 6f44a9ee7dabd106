// SPDX-License-Identifier: Apache-2.0
#include "ipc/wire/channel.h"

namespace gpushared::ipc {

void Attach::Visit(Fields& f) {
  f.Descriptors(kAttachFds);
  f.Number("session", session, 1);
  f.Number("pid", peer.pid);
  f.Number("uid", peer.uid);
  f.Number("gid", peer.gid);
  f.Number("request", request);
  f.Number("quota_bytes", quota_bytes);
  f.Number("share_group", share_group);
  f.Number("rule_cap", rule_cap);
  f.Number("rule_share", rule_share, 1, kSharePerMilleMax);
  f.Number("max_share", max_share, 1, kSharePerMilleMax);
  f.Number("weight_max", weight_max, 1, kWeightMax);
  f.Number("weight", weight, 1, kWeightMax);
  f.Number("allowed_class", allowed_class, 0, kClassMax);
  f.Number("client_class", client_class, 0, kClassMax);
  f.Number("isolation", isolation, 0, kIsolationMax);
  f.Flag("is_trusted", is_trusted);
  f.Number("endpoint", endpoint);
  f.Text("endpoint_name", endpoint_name, kEndpointNameBytes);
  f.Number("guaranteed_bytes", guaranteed_bytes);
  f.Range("guaranteed_bytes", guaranteed_bytes, 0, quota_bytes);
  f.Text("owner", owner, kOwnerTextBytes);
  f.Struct("hello", hello);
}

void RegistrySession::Visit(Fields& f) {
  constexpr std::uint64_t kAgeNsMax = std::uint64_t{1} << 62;  // About 146 years.
  f.Number("session", session, 1);
  f.Number("quota_bytes", quota_bytes);
  f.Number("age_ns", age_ns, 0, kAgeNsMax);
  f.Number("pid", peer.pid);
  f.Number("uid", peer.uid);
  f.Number("gid", peer.gid);
  f.Number("endpoint", endpoint);
  f.Number("weight", weight, 1, kWeightMax);
  f.Number("client_class", client_class, 0, kClassMax);
  f.Number("isolation", isolation, 0, kIsolationMax);
  f.Flag("has_started", has_started);
  f.Reserved<std::uint8_t>();
  f.Text("endpoint_name", endpoint_name, kEndpointNameBytes);
  f.Text("name", name, kNameBytes);
  f.Number("guaranteed_bytes", guaranteed_bytes);
  f.Range("guaranteed_bytes", guaranteed_bytes, 0, quota_bytes);
}

std::optional<FrameRule> ChannelToWorkerRules(std::uint16_t type) {
  return RuleIn(ToWorkerMessages(), type);
}
std::optional<FrameRule> ChannelToBrokerRules(std::uint16_t type) {
  return RuleIn(ToBrokerMessages(), type);
}
std::optional<FrameRule> MoveRules(std::uint16_t type) { return RuleIn(MoveMessages(), type); }
std::optional<FrameRule> MoveAnswerRules(std::uint16_t type) { return RuleIn(MoveAnswers(), type); }

std::string_view ChannelTypeName(std::uint16_t type) {
  for (const std::string_view name :
       {NameIn(ToWorkerMessages(), type), NameIn(ToBrokerMessages(), type),
        NameIn(MoveMessages(), type)}) {
    if (!name.empty()) return name;
  }
  return "unknown";
}

}  // namespace gpushared::ipc
