// SPDX-License-Identifier: Apache-2.0
// Where bytes of messages between broker and worker become values.
#include "ipc/wire/bytes.h"
#include "ipc/wire/channel.h"
#include "ipc/wire/convert.h"

namespace gpushared::ipc {
namespace {

constexpr std::uint64_t kAny64 = ~std::uint64_t{0};
constexpr std::uint64_t kAgeNsMax = std::uint64_t{1} << 62;  // A century and a half.

template <typename Wire>
Wire ReadFixed(MessageChecks& checks, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  Wire wire;
  checks.Fixed(reader, wire);
  checks.End(reader);
  return wire;
}

}  // namespace

template <>
Result<Ready> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("worker's ready message");
  checks.Version(payload);
  if (!checks.ok()) return checks.status();
  const auto wire = ReadFixed<ReadyWire>(checks, payload);
  Ready ready;
  ready.generation = wire.generation;
  ready.device = FromWire(wire.device, checks);
  if (!checks.ok()) return checks.status();
  return ready;
}

template <>
Result<Attach> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("attach");
  const auto wire = ReadFixed<AttachWire>(checks, payload);
  checks.Range("session", wire.session, 1, kAny64);
  checks.Range("allowed class", wire.allowed_class, 0, kClassMax);
  checks.Range("class", wire.client_class, 0, kClassMax);
  checks.Range("isolation", wire.isolation, 0, kIsolationMax);
  checks.Range("is trusted", wire.is_trusted, 0, 1);
  checks.Range("share of its rule", wire.rule_share, 1, kSharePerMilleMax);
  checks.Range("max_share", wire.max_share, 1, kSharePerMilleMax);
  checks.Range("highest weight", wire.weight_max, 1, kWeightMax);
  checks.Range("weight", wire.weight, 1, kWeightMax);
  checks.Range("guaranteed bytes", wire.guaranteed_bytes, 0, wire.quota_bytes);
  Attach attach;
  attach.session = wire.session;
  attach.peer = {wire.pid, wire.uid, wire.gid};
  attach.request = wire.request;
  attach.quota_bytes = wire.quota_bytes;
  attach.guaranteed_bytes = wire.guaranteed_bytes;
  attach.share_group = wire.share_group;
  attach.rule_cap = wire.rule_cap;
  attach.rule_share = wire.rule_share;
  attach.max_share = wire.max_share;
  attach.weight_max = wire.weight_max;
  attach.weight = wire.weight;
  attach.client_class = static_cast<ClientClass>(wire.client_class);
  attach.allowed_class = static_cast<ClientClass>(wire.allowed_class);
  attach.isolation = wire.isolation;
  attach.is_trusted = wire.is_trusted == 1;
  attach.entrance = wire.entrance;
  checks.PrintableText("entrance name", wire.entrance_name, attach.entrance_name);
  attach.hello = FromWire(wire.hello, checks);
  if (!checks.ok()) return checks.status();
  return attach;
}

template <>
Result<SessionStarted> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("session start");
  const auto wire = ReadFixed<SessionWire>(checks, payload);
  checks.Range("session", wire.session, 1, kAny64);
  if (!checks.ok()) return checks.status();
  return SessionStarted{wire.session};
}

template <>
Result<TerminateSession> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("session termination");
  ByteReader reader(payload);
  TerminateSessionWire wire;
  checks.Fixed(reader, wire);
  checks.Range("session", wire.session, 1, kAny64);
  checks.Range("text bytes", wire.text_bytes, 0, kTextBytesMax);
  checks.Zero("reserved", wire.reserved);
  std::string why;
  if (checks.ok()) reader.GetRaw(why, wire.text_bytes);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return TerminateSession{wire.session, std::move(why)};
}

template <>
Result<SessionEnded> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("session end");
  ByteReader reader(payload);
  SessionEndedWire wire;
  checks.Fixed(reader, wire);
  checks.Range("session", wire.session, 1, kAny64);
  const TextWire text{wire.code, wire.text_bytes};
  Status status = TextFromWire(text, StatusCode::kOk, kTextBytesMax, reader, checks);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return SessionEnded{wire.session, std::move(status)};
}

template <>
Result<AdminRequest> Decode(std::span<const std::byte> payload) {
  Result<Admin> admin = Decode<Admin>(payload);
  if (!admin.ok()) return admin.status();
  return AdminRequest{*admin};
}

template <>
Result<ChannelReply> Decode(std::span<const std::byte> payload) {
  Result<AdminReply> reply = Decode<AdminReply>(payload);
  if (!reply.ok()) return reply.status();
  return ChannelReply{reply->code, std::move(reply->text), reply->is_last};
}

template <>
Result<Drain> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("drain");
  checks.End(ByteReader(payload));
  if (!checks.ok()) return checks.status();
  return Drain{};
}

template <>
Result<Resume> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("resume");
  checks.End(ByteReader(payload));
  if (!checks.ok()) return checks.status();
  return Resume{};
}

template <>
Result<SetSession> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("session change");
  const auto wire = ReadFixed<SetSessionWire>(checks, payload);
  checks.Range("session", wire.session, 1, kAny64);
  checks.Range("weight", wire.weight, 0, kWeightMax);
  checks.Zero("reserved", wire.reserved);
  SetSession set;
  set.session = wire.session;
  if (wire.weight != 0) set.weight = wire.weight;
  checks.Range("max_share", wire.max_share, 0, kSharePerMilleMax);
  if (wire.max_share != 0) set.max_share = wire.max_share;
  if (wire.client_class != kKeepClass) {
    checks.Range("class", wire.client_class, 0, kClassMax);
    set.client_class = static_cast<ClientClass>(wire.client_class);
  }
  if (!checks.ok()) return checks.status();
  return set;
}

template <>
Result<TakeOver> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("take-over");
  const auto wire = ReadFixed<TakeOverWire>(checks, payload);
  checks.Zero("reserved", wire.reserved);
  if (!checks.ok()) return checks.status();
  return TakeOver{wire.version};
}

template <>
Result<Roster> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("roster");
  const auto wire = ReadFixed<RosterWire>(checks, payload);
  checks.Range("version", wire.version, kChannelVersion, kChannelVersion);
  checks.Range("generation", wire.generation, 1, ~std::uint32_t{0});
  checks.Range("sessions", wire.sessions, 0, kRosterSessionsMax);
  checks.Range("ends", wire.ends, 0, kRosterEndsMax);
  checks.Range("keeps", wire.keeps, 0, kKeepsMax);
  checks.Zero("reserved", wire.reserved);
  if (!checks.ok()) return checks.status();
  return Roster{.generation = wire.generation,
                .made_by = wire.made_by,
                .last_session = wire.last_session,
                .sessions = wire.sessions,
                .ends = wire.ends,
                .keeps = wire.keeps};
}

template <>
Result<RosterSession> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("session of a roster");
  const auto wire = ReadFixed<RosterSessionWire>(checks, payload);
  checks.Range("session", wire.session, 1, kAny64);
  checks.Range("age in ns", wire.age_ns, 0, kAgeNsMax);
  checks.Range("weight", wire.weight, 1, kWeightMax);
  checks.Range("class", wire.client_class, 0, kClassMax);
  checks.Range("isolation", wire.isolation, 0, kIsolationMax);
  checks.Range("has started", wire.has_started, 0, 1);
  checks.Zero("reserved", wire.reserved);
  checks.Range("guaranteed bytes", wire.guaranteed_bytes, 0, wire.quota_bytes);
  RosterSession session;
  session.session = wire.session;
  session.peer = {wire.pid, wire.uid, wire.gid};
  checks.PrintableText("name", wire.name, session.name);
  session.client_class = static_cast<ClientClass>(wire.client_class);
  session.weight = wire.weight;
  session.entrance = wire.entrance;
  checks.PrintableText("entrance name", wire.entrance_name, session.entrance_name);
  session.quota_bytes = wire.quota_bytes;
  session.guaranteed_bytes = wire.guaranteed_bytes;
  session.isolation = wire.isolation;
  session.has_started = wire.has_started == 1;
  session.age_ns = wire.age_ns;
  if (!checks.ok()) return checks.status();
  return session;
}

template <>
Result<RosterEnd> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("ended session of a roster");
  ByteReader reader(payload);
  RosterEndWire wire;
  checks.Fixed(reader, wire);
  checks.Range("session", wire.session, 1, kAny64);
  const TextWire text{wire.code, wire.text_bytes};
  Status status = TextFromWire(text, StatusCode::kOk, kTextBytesMax, reader, checks);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return RosterEnd{wire.session, wire.pid, wire.uid, std::move(status)};
}

template <>
Result<Keep> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("lease to keep");
  ByteReader reader(payload);
  KeepWire wire;
  checks.Fixed(reader, wire);
  checks.Range("entrance", wire.entrance, 1, ~std::uint32_t{0});
  checks.Range("lessee bytes", wire.lessee_bytes, 0, kNameBytes);
  checks.Range("terms bytes", wire.terms_bytes, 0, kLeaseTermsBytesMax);
  checks.Zero("reserved", wire.reserved);
  Keep keep{.entrance = wire.entrance, .lessee = {}, .terms = {}};
  if (checks.ok()) {
    reader.GetRaw(keep.lessee, wire.lessee_bytes);
    reader.GetRaw(keep.terms, wire.terms_bytes);
  }
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return keep;
}

template <>
Result<Kept> Decode(std::span<const std::byte> payload) {
  Result<Keep> lease = Decode<Keep>(payload);
  if (!lease.ok()) return lease.status();
  return Kept{*std::move(lease)};
}

template <>
Result<Forget> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("lease to forget");
  const auto wire = ReadFixed<ForgetWire>(checks, payload);
  checks.Range("entrance", wire.entrance, 1, ~std::uint32_t{0});
  checks.Zero("reserved", wire.reserved);
  if (!checks.ok()) return checks.status();
  return Forget{wire.entrance};
}

template <>
Result<Watch> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("watch");
  const auto wire = ReadFixed<WatchWire>(checks, payload);
  checks.Range("is operator", wire.is_operator, 0, 1);
  checks.Zero("reserved", wire.reserved);
  if (!checks.ok()) return checks.status();
  return Watch{wire.uid, wire.pid, wire.request, wire.is_operator == 1};
}

}  // namespace gpushared::ipc
