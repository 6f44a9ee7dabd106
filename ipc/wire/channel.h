// SPDX-License-Identifier: Apache-2.0
// Messages between the broker and its workers, over a SOCK_SEQPACKET pair. Both ends run the same
// binary. The checks guard against our own mistakes and a worker gone mad. So a refused message
// costs the worker, never the broker.

#ifndef GPUSHARED_IPC_WIRE_CHANNEL_H_
#define GPUSHARED_IPC_WIRE_CHANNEL_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/wire/control.h"
#include "ipc/wire/frame.h"

namespace gpushared::ipc {

enum class ChannelType : std::uint16_t {
  kReady = 1,             // Worker: the device is open; its description.
  kAttach = 2,            // Broker: a new client. Fds: its socket, its pidfd.
  kSessionStarted = 3,    // Worker.
  kSessionEnded = 4,      // Worker; also when an attach was refused.
  kAdminRequest = 5,      // Broker: verbs that workers answer, by `request`.
  kChannelReply = 6,      // Worker: the answer to a broker's request.
  kDrain = 7,             // Broker: take no new sessions, exit when the last has ended.
  kTerminateSession = 8,  // Broker.
  kSetSession = 9,        // Broker: new class or weight, live.
  // A broker that finds a worker whose broker died: the first message on their channel.
  kTakeOver = 10,
  kRoster = 11,         // Worker: its answer. Then sessions, ends and keepsakes, and Ready last.
  kRosterSession = 12,  // Worker.
  kRosterEnd = 13,      // Worker: a session that ended not long ago.
  kKept = 14,           // Worker: a lease that it was given. Fd: its connection.
  kKeep = 15,           // Broker: a lease that is to outlive it. Fd: its connection.
  kForget = 16,         // Broker: that lease is over.
  // Broker: somebody wants to see what runs. Fd: the connection, on which the worker answers.
  kWatch = 17,
  kResume = 18,  // Broker: take new sessions again, kDrain is taken back.
};

// Of the messages in this file. A worker that is asked for its roster in another version refuses,
// and ends with its last session.
inline constexpr std::uint32_t kChannelVersion = 5;

inline constexpr std::uint32_t kAttachFds = 2;
inline constexpr std::uint8_t kIsolationMax = 2;       // Of device::Isolation.
inline constexpr std::size_t kEntranceNameBytes = 40;  // Terminator included.
// A roster's limits.
inline constexpr std::uint32_t kRosterSessionsMax = 1024;
inline constexpr std::uint32_t kRosterEndsMax = 128;
inline constexpr std::uint32_t kKeepsMax = 256;
// Header, fixed part and the largest tail, a page of an admin reply.
inline constexpr std::uint32_t kChannelMessageBytesMax = kPageTextBytesMax + 1024;

struct ReadyWire {
  std::uint32_t version = kProtocolVersion;
  std::uint32_t generation = 0;
  DeviceWire device;
};
struct Ready {
  static constexpr ChannelType kType = ChannelType::kReady;
  std::uint32_t generation = 0;
  DeviceDescription device;
};

// Who the kernel says is at the other end of a socket.
struct PeerIdentity {
  pid_t pid = 0;  // For messages only: process numbers are reused.
  uid_t uid = 0;
  gid_t gid = 0;
};

struct AttachWire {
  std::uint64_t session = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t request = 0;      // The hello frame's, repeated in the welcome.
  std::uint64_t quota_bytes = 0;  // Device memory this client may hold.
  std::uint64_t share_group = 0;  // Clients of one group share what one client would have.
  std::uint64_t rule_cap = 0;     // Number of the cap that clients of one rule are under.
  std::uint32_t rule_share = 0;   // Its share, in thousandths.
  std::uint32_t max_share = 0;    // The client's own, in thousandths.
  std::uint32_t weight_max = 0;
  std::uint32_t weight = 0;
  std::uint8_t allowed_class = 0;  // Most urgent class the access rules give it.
  std::uint8_t client_class = 0;
  std::uint8_t isolation = 0;   // device::Isolation.
  std::uint8_t is_trusted = 0;  // 0 or 1.
  std::uint32_t entrance = 0;   // The broker's number of it.
  char entrance_name[kEntranceNameBytes] = {};
  std::uint64_t guaranteed_bytes = 0;  // The part of its quota that is there at any time.
  HelloWire hello;
};
struct Attach {
  static constexpr ChannelType kType = ChannelType::kAttach;
  std::uint64_t session = 0;
  PeerIdentity peer;
  std::uint32_t request = 0;
  std::uint64_t quota_bytes = 0;
  std::uint64_t guaranteed_bytes = 0;
  std::uint64_t share_group = 0;
  // Caps of device time in thousandths, of all clients of its rule together and of it alone.
  std::uint64_t rule_cap = 0;
  std::uint32_t rule_share = kSharePerMilleMax;
  std::uint32_t max_share = kSharePerMilleMax;
  std::uint32_t weight_max = 1;
  // What it gets: what it has said, else the broker's word.
  std::uint32_t weight = 1;
  ClientClass client_class = ClientClass::kNormal;
  ClientClass allowed_class = ClientClass::kNormal;
  std::uint8_t isolation = 0;  // device::Isolation: how its kernels are kept in its memory.
  bool is_trusted = false;     // It could do anything to the server anyway.
  // What it came through: for the roster alone.
  std::uint32_t entrance = 0;
  std::string entrance_name;
  Hello hello;
};

struct SessionWire {  // kSessionStarted
  std::uint64_t session = 0;
};
struct SessionStarted {
  static constexpr ChannelType kType = ChannelType::kSessionStarted;
  std::uint64_t session = 0;
};

struct TerminateSessionWire {
  std::uint64_t session = 0;
  std::uint32_t text_bytes = 0;
  std::uint32_t reserved = 0;
  // Then the text.
};
struct TerminateSession {
  static constexpr ChannelType kType = ChannelType::kTerminateSession;
  std::uint64_t session = 0;
  std::string why;  // The reason that the client is told.
};

struct SessionEndedWire {
  std::uint64_t session = 0;
  std::uint32_t code = 0;  // StatusCode; kOk: the client closed its socket.
  std::uint32_t text_bytes = 0;
  // Then the text.
};
struct SessionEnded {
  static constexpr ChannelType kType = ChannelType::kSessionEnded;
  std::uint64_t session = 0;
  Status status;
};

struct AdminRequest {  // On the wire: AdminWire.
  static constexpr ChannelType kType = ChannelType::kAdminRequest;
  Admin admin;
};
struct ChannelReply {  // On the wire: PageWire and the text.
  static constexpr ChannelType kType = ChannelType::kChannelReply;
  StatusCode code = StatusCode::kOk;
  std::string text;  // JSON (or nothing) when code is kOk, else a sentence.
  bool is_last = true;
};

struct Drain {
  static constexpr ChannelType kType = ChannelType::kDrain;
};

struct Resume {
  static constexpr ChannelType kType = ChannelType::kResume;
};

struct SetSessionWire {
  std::uint64_t session = 0;
  std::uint32_t weight = 0;  // 0: leave as it is.
  std::uint8_t client_class = kKeepClass;
  std::uint8_t reserved = 0;
  std::uint16_t max_share = 0;  // 0: leave as it is.
};
struct SetSession {
  static constexpr ChannelType kType = ChannelType::kSetSession;
  std::uint64_t session = 0;
  std::optional<ClientClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.
};

// Its layout stays in all versions.
struct TakeOverWire {
  std::uint32_t version = kChannelVersion;
  std::uint32_t reserved = 0;
};
struct TakeOver {
  static constexpr ChannelType kType = ChannelType::kTakeOver;
  std::uint32_t version = kChannelVersion;
};

struct RosterWire {
  std::uint32_t version = kChannelVersion;
  std::uint32_t generation = 0;
  std::uint64_t made_by = 0;       // See Roster.
  std::uint64_t last_session = 0;  // The highest number that this worker was ever told.
  std::uint32_t sessions = 0;
  std::uint32_t ends = 0;
  std::uint32_t keeps = 0;
  std::uint32_t reserved = 0;
};
struct Roster {
  static constexpr ChannelType kType = ChannelType::kRoster;
  std::uint32_t generation = 0;
  std::uint64_t made_by = 0;  // Tells options and version of the broker that started the worker.
  std::uint64_t last_session = 0;
  std::uint32_t sessions = 0, ends = 0, keeps = 0;  // Messages that follow.
};

struct RosterSessionWire {
  std::uint64_t session = 0;
  std::uint64_t quota_bytes = 0;
  std::uint64_t age_ns = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t entrance = 0;
  std::uint32_t weight = 0;
  std::uint8_t client_class = 0;
  std::uint8_t isolation = 0;
  std::uint8_t has_started = 0;  // 0 or 1.
  std::uint8_t reserved = 0;
  char entrance_name[kEntranceNameBytes] = {};
  char name[kNameBytes] = {};
  std::uint64_t guaranteed_bytes = 0;
};
struct RosterSession {
  static constexpr ChannelType kType = ChannelType::kRosterSession;
  std::uint64_t session = 0;
  PeerIdentity peer;
  std::string name;
  ClientClass client_class = ClientClass::kNormal;
  std::uint32_t weight = 1;
  std::uint32_t entrance = 0;
  std::string entrance_name;
  std::uint64_t quota_bytes = 0;
  std::uint64_t guaranteed_bytes = 0;
  std::uint8_t isolation = 0;
  bool has_started = false;  // It was welcomed.
  std::uint64_t age_ns = 0;
};

struct RosterEndWire {
  std::uint64_t session = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t code = 0;  // StatusCode; kOk: the client closed its socket.
  std::uint32_t text_bytes = 0;
  // Then the text.
};
struct RosterEnd {
  static constexpr ChannelType kType = ChannelType::kRosterEnd;
  std::uint64_t session = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  Status status;
};

struct KeepWire {
  std::uint32_t entrance = 0;
  std::uint32_t lessee_bytes = 0;
  std::uint32_t terms_bytes = 0;
  std::uint32_t reserved = 0;
  // Then the lessee and the terms.
};
struct Keep {
  static constexpr ChannelType kType = ChannelType::kKeep;
  std::uint32_t entrance = 0;  // The broker's number of it, not 0.
  std::string lessee;          // Who leased it, for people.
  std::string terms;           // TOML, like those of Admin.
};
struct Kept {  // On the wire: KeepWire.
  static constexpr ChannelType kType = ChannelType::kKept;
  Keep lease;
};

struct ForgetWire {
  std::uint32_t entrance = 0;
  std::uint32_t reserved = 0;
};
struct Forget {
  static constexpr ChannelType kType = ChannelType::kForget;
  std::uint32_t entrance = 0;
};

struct WatchWire {
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::uint32_t request = 0;     // The admin frame's, repeated in the answer.
  std::uint8_t is_operator = 0;  // 0 or 1.
  std::uint8_t reserved[3] = {};
};
struct Watch {
  static constexpr ChannelType kType = ChannelType::kWatch;
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::uint32_t request = 0;
  bool is_operator = false;  // It may act, too.
};

std::vector<std::byte> Encode(const Ready&);
std::vector<std::byte> Encode(const Attach&);
std::vector<std::byte> Encode(const SessionStarted&);
std::vector<std::byte> Encode(const TerminateSession&);
std::vector<std::byte> Encode(const SessionEnded&);
std::vector<std::byte> Encode(const AdminRequest&);
std::vector<std::byte> Encode(const ChannelReply&);
std::vector<std::byte> Encode(const Drain&);
std::vector<std::byte> Encode(const Resume&);
std::vector<std::byte> Encode(const SetSession&);
std::vector<std::byte> Encode(const TakeOver&);
std::vector<std::byte> Encode(const Roster&);
std::vector<std::byte> Encode(const RosterSession&);
std::vector<std::byte> Encode(const RosterEnd&);
std::vector<std::byte> Encode(const Keep&);
std::vector<std::byte> Encode(const Kept&);
std::vector<std::byte> Encode(const Forget&);
std::vector<std::byte> Encode(const Watch&);

template <>
Result<Ready> Decode(std::span<const std::byte>);
template <>
Result<Attach> Decode(std::span<const std::byte>);
template <>
Result<SessionStarted> Decode(std::span<const std::byte>);
template <>
Result<TerminateSession> Decode(std::span<const std::byte>);
template <>
Result<SessionEnded> Decode(std::span<const std::byte>);
template <>
Result<AdminRequest> Decode(std::span<const std::byte>);
template <>
Result<ChannelReply> Decode(std::span<const std::byte>);
template <>
Result<Drain> Decode(std::span<const std::byte>);
template <>
Result<Resume> Decode(std::span<const std::byte>);
template <>
Result<SetSession> Decode(std::span<const std::byte>);
// Takes every version.
template <>
Result<TakeOver> Decode(std::span<const std::byte>);
template <>
Result<Roster> Decode(std::span<const std::byte>);
template <>
Result<RosterSession> Decode(std::span<const std::byte>);
template <>
Result<RosterEnd> Decode(std::span<const std::byte>);
template <>
Result<Keep> Decode(std::span<const std::byte>);
template <>
Result<Kept> Decode(std::span<const std::byte>);
template <>
Result<Forget> Decode(std::span<const std::byte>);
template <>
Result<Watch> Decode(std::span<const std::byte>);

std::optional<FrameRule> ChannelToWorkerRules(std::uint16_t type);
std::optional<FrameRule> ChannelToBrokerRules(std::uint16_t type);
std::string_view ChannelTypeName(std::uint16_t type);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_CHANNEL_H_
