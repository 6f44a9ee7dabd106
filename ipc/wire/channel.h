// SPDX-License-Identifier: Apache-2.0
// Messages between the broker and its workers over a SOCK_SEQPACKET pair. Both ends run the same
// binary, so the checks guard against bugs and against a worker that has been corrupted: an invalid
// message ends the worker, never the broker.

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
  kReady = 1,             // Worker: the device is open; carries the device's description.
  kAttach = 2,            // Broker: a new client. Fds: its socket and its pidfd.
  kSessionStarted = 3,    // Sent by the worker.
  kSessionEnded = 4,      // Worker. Also sent if an attach was rejected.
  kAdminRequest = 5,      // Broker: an Admin message with a verb that workers answer.
  kChannelReply = 6,      // Worker: answer to a request of the broker.
  kDrain = 7,             // Broker: accept no new sessions; exit after the last one has ended.
  kTerminateSession = 8,  // Sent by the broker.
  kSetSession = 9,        // Broker: new class, weight or cap of a live session.
  // First message of a restarted broker to a worker whose broker has died.
  kTakeOver = 10,
  kRegistry = 11,  // Worker: the answer, followed by sessions, ends and leases; Ready comes last.
  kRegistrySession = 12,  // Sent by the worker.
  kRegistryEnd = 13,      // Worker: a session that ended recently.
  kKept = 14,    // Worker: a lease that it holds for the broker. Fd: the lease's connection.
  kKeep = 15,    // Broker: a lease that must outlive the broker. Fd: the lease's connection.
  kForget = 16,  // Broker: a lease that was kept has ended.
  // Broker: a client observes execution. Fd: the connection, on which the worker answers.
  kWatch = 17,
  kResume = 18,  // Broker: accept new sessions again; cancels kDrain.
  // Broker to two workers: a session is to be moved from the first to the second. Fd: a channel
  // between them.
  kMoveOut = 19,
  kMoveIn = 20,
  kMoveEnded = 21,  // Both workers: the result of a move.
  // From the worker that moves a session, after a kAttach; the other one answers with a reply.
  kMovedSession = 22,  // The state of the session. Fds: see MovedSession.
  kMovedBuffer = 23,   // A staging buffer of the session. Fd: its memory.
  kMoveCommit = 24,    // From now on the session belongs to the receiver.
};

// Version of the messages in this file. A worker that receives a TakeOver of another version
// rejects it, and exits after its last session.
inline constexpr std::uint32_t kChannelVersion = 7;

inline constexpr std::uint32_t kAttachFds = 2;
inline constexpr std::uint8_t kIsolationMax = 2;       // Largest device::Isolation.
inline constexpr std::size_t kEndpointNameBytes = 40;  // Includes the terminator.
inline constexpr std::size_t kOwnerTextBytes = 512;    // More than Owner::Parse accepts.
// Limits of a registry.
inline constexpr std::uint32_t kRegistrySessionsMax = 1024;
inline constexpr std::uint32_t kRegistryEndsMax = 128;
inline constexpr std::uint32_t kKeepsMax = 256;
// Limit of a message without its frame header: the largest tail, which is a page of an admin reply,
// and 1024 bytes for the fixed part.
inline constexpr std::uint32_t kChannelMessageBytesMax = kPageTextBytesMax + 1024;

struct Ready {
  static constexpr ChannelType kType = ChannelType::kReady;
  static constexpr char kName[] = "Ready";
  std::uint32_t generation = 0;
  DeviceDescription device;

  void Visit(Fields& f) {
    f.Version();
    f.Number("generation", generation);
    f.Struct("device", device);
  }
};

// Identity of the peer of a socket, according to the kernel.
struct PeerIdentity {
  pid_t pid = 0;  // Used only in messages, because process ids are reused.
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Attach {
  static constexpr ChannelType kType = ChannelType::kAttach;
  static constexpr char kName[] = "Attach";
  std::uint64_t session = 0;
  PeerIdentity peer;
  std::uint32_t request = 0;  // Request number of the hello frame, repeated in the welcome frame.
  std::uint64_t quota_bytes = 0;       // Limit of the client's device memory.
  std::uint64_t guaranteed_bytes = 0;  // The part of the quota that is available at any time.
  std::uint64_t share_group = 0;       // Clients of one group share the portion of a single client.
  // Caps on device time, in thousandths: `rule_share` for all clients of the rule together, and
  // `max_share` for this client alone.
  std::uint64_t rule_cap = 0;  // Identifies the cap that all clients of one rule share.
  std::uint32_t rule_share = kSharePerMilleMax;
  std::uint32_t max_share = kSharePerMilleMax;
  std::uint32_t weight_max = 1;
  // Effective values: those that the client requested, otherwise the broker's defaults.
  std::uint32_t weight = 1;
  SchedulingClass client_class = SchedulingClass::kNormal;
  // The most urgent class that the access rules allow to this client.
  SchedulingClass allowed_class = SchedulingClass::kNormal;
  std::uint8_t isolation = 0;  // device::Isolation of the client's kernels.
  // Whether the client connected to the main endpoint as root or as the server's own user, who can
  // control the server anyway.
  bool is_trusted = false;
  // Endpoint through which the client connected. Needed only for the registry.
  std::uint32_t endpoint = 0;  // Assigned by the broker.
  std::string endpoint_name;
  std::string owner;  // Owner of the work, according to the endpoint's rule: Owner::Parse.
  Hello hello;

  void Visit(Fields& f);
};

struct SessionStarted {
  static constexpr ChannelType kType = ChannelType::kSessionStarted;
  static constexpr char kName[] = "SessionStarted";
  std::uint64_t session = 0;

  void Visit(Fields& f) { f.Number("session", session, 1); }
};

struct TerminateSession {
  static constexpr ChannelType kType = ChannelType::kTerminateSession;
  static constexpr char kName[] = "TerminateSession";
  std::uint64_t session = 0;
  std::string why;  // Reason to be reported to the client.

  void Visit(Fields& f) {
    f.Number("session", session, 1);
    const std::uint32_t bytes = f.Length("text_bytes", why, kTextBytesMax);
    f.Reserved<std::uint32_t>();
    f.Tail(why, bytes);
  }
};

struct SessionEnded {
  static constexpr ChannelType kType = ChannelType::kSessionEnded;
  static constexpr char kName[] = "SessionEnded";
  std::uint64_t session = 0;
  Status status;  // kOk: the client closed its socket.

  void Visit(Fields& f) {
    f.Number("session", session, 1);
    VisitStatus(f, status, StatusCode::kOk);
  }
};

struct AdminRequest {
  static constexpr ChannelType kType = ChannelType::kAdminRequest;
  static constexpr char kName[] = "AdminRequest";
  Admin admin;

  void Visit(Fields& f) {
    admin.Visit(f);
    f.TailAtMost(0);  // Workers handle no verb with a text.
  }
};
struct ChannelReply {
  static constexpr ChannelType kType = ChannelType::kChannelReply;
  static constexpr char kName[] = "ChannelReply";
  StatusCode code = StatusCode::kOk;
  std::string text;  // JSON (or empty) if code is kOk, otherwise a message.
  bool is_last = true;

  void Visit(Fields& f) { VisitPage(f, code, text, is_last); }
};

struct Drain {
  static constexpr ChannelType kType = ChannelType::kDrain;
  static constexpr char kName[] = "Drain";

  void Visit(Fields&) {}
};

struct Resume {
  static constexpr ChannelType kType = ChannelType::kResume;
  static constexpr char kName[] = "Resume";

  void Visit(Fields&) {}
};

// Changes a live session. Fields that are not set remain unchanged.
struct SetSession {
  static constexpr ChannelType kType = ChannelType::kSetSession;
  static constexpr char kName[] = "SetSession";
  std::uint64_t session = 0;
  std::optional<SchedulingClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.

  void Visit(Fields& f) {
    f.Number("session", session, 1);
    f.Optional("weight", weight, 0u, kWeightMax);
    f.Optional("client_class", client_class, kNoClass, kClassMax);
    f.Reserved<std::uint8_t>();
    f.Optional("max_share", max_share, std::uint16_t{0}, kSharePerMilleMax);
  }
};

// Takes over a worker. This message has the same layout in all versions.
struct TakeOver {
  static constexpr ChannelType kType = ChannelType::kTakeOver;
  static constexpr char kName[] = "TakeOver";
  // Any value is valid; the worker decides whether it supports the version.
  std::uint32_t version = kChannelVersion;

  void Visit(Fields& f) {
    f.Number("version", version);
    f.Reserved<std::uint32_t>();
  }
};

struct Registry {
  static constexpr ChannelType kType = ChannelType::kRegistry;
  static constexpr char kName[] = "Registry";
  std::uint32_t generation = 0;
  // Identifies options and version of the broker that started the worker.
  std::uint64_t made_by = 0;
  std::uint64_t last_session = 0;  // Highest session number this worker has received.
  std::uint32_t sessions = 0, ends = 0, keeps = 0;  // Numbers of messages that follow.

  void Visit(Fields& f) {
    f.Constant("version", kChannelVersion);
    f.Number("generation", generation, 1);
    f.Number("made_by", made_by);
    f.Number("last_session", last_session);
    f.Number("sessions", sessions, 0, kRegistrySessionsMax);
    f.Number("ends", ends, 0, kRegistryEndsMax);
    f.Number("keeps", keeps, 0, kKeepsMax);
    f.Reserved<std::uint32_t>();
  }
};

struct RegistrySession {
  static constexpr ChannelType kType = ChannelType::kRegistrySession;
  static constexpr char kName[] = "RegistrySession";
  std::uint64_t session = 0;
  PeerIdentity peer;
  std::string name;
  SchedulingClass client_class = SchedulingClass::kNormal;
  std::uint32_t weight = 1;
  std::uint32_t endpoint = 0;
  std::string endpoint_name;
  std::uint64_t quota_bytes = 0;
  std::uint64_t guaranteed_bytes = 0;
  std::uint8_t isolation = 0;
  bool has_started = false;  // Whether the client has received its welcome.
  std::uint64_t age_ns = 0;

  void Visit(Fields& f);
};

struct RegistryEnd {
  static constexpr ChannelType kType = ChannelType::kRegistryEnd;
  static constexpr char kName[] = "RegistryEnd";
  std::uint64_t session = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  Status status;  // kOk: the client closed its socket.

  void Visit(Fields& f) {
    f.Number("session", session, 1);
    f.Number("pid", pid);
    f.Number("uid", uid);
    VisitStatus(f, status, StatusCode::kOk);
  }
};

struct Keep {
  static constexpr ChannelType kType = ChannelType::kKeep;
  static constexpr char kName[] = "Keep";
  std::uint32_t endpoint = 0;  // Assigned by the broker; not 0.
  std::string lessee;          // Human-readable name of the lessee.
  std::string terms;           // TOML, as in Admin.

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("endpoint", endpoint, 1);
    const std::uint32_t lessee_bytes = f.Length("lessee_bytes", lessee, kNameBytes);
    const std::uint32_t terms_bytes = f.Length("terms_bytes", terms, kLeaseTermsBytesMax);
    f.Reserved<std::uint32_t>();
    f.Tail(lessee, lessee_bytes);
    f.Tail(terms, terms_bytes);
  }
};
struct Kept {
  static constexpr ChannelType kType = ChannelType::kKept;
  static constexpr char kName[] = "Kept";
  Keep lease;

  void Visit(Fields& f) { lease.Visit(f); }
};

struct Forget {
  static constexpr ChannelType kType = ChannelType::kForget;
  static constexpr char kName[] = "Forget";
  std::uint32_t endpoint = 0;

  void Visit(Fields& f) {
    f.Number("endpoint", endpoint, 1);
    f.Reserved<std::uint32_t>();
  }
};

struct Watch {
  static constexpr ChannelType kType = ChannelType::kWatch;
  static constexpr char kName[] = "Watch";
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::uint32_t request = 0;  // Request number of the admin frame, repeated in the answer.
  bool is_operator = false;   // Whether the client has the right to operate, not only to observe.

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("uid", uid);
    f.Number("pid", pid);
    f.Number("request", request);
    f.Flag("is_operator", is_operator);
    f.Reserved<std::uint8_t, 3>();
  }
};

struct MoveOut {
  static constexpr ChannelType kType = ChannelType::kMoveOut;
  static constexpr char kName[] = "MoveOut";
  std::uint64_t session = 0;

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("session", session, 1);
  }
};

// What the broker knows of the session. The worker accepts no other facts from the other worker.
struct MoveIn {
  static constexpr ChannelType kType = ChannelType::kMoveIn;
  static constexpr char kName[] = "MoveIn";
  RegistrySession row;
  SchedulingClass allowed_class = SchedulingClass::kNormal;  // See Attach.
  bool is_trusted = false;

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Struct("row", row);
    f.Number("allowed_class", allowed_class, 0, kClassMax);
    f.Flag("is_trusted", is_trusted);
    f.Reserved<std::uint8_t, 6>();
  }
};

enum class MoveEnd : std::uint8_t {
  kLeft = 1,     // The session belongs to the other worker, or died with it.
  kArrived = 2,  // The session belongs to this worker. Follows its RegistrySession.
  kDropped = 3,  // This worker did not get the session.
};
struct MoveEnded {
  static constexpr ChannelType kType = ChannelType::kMoveEnded;
  static constexpr char kName[] = "MoveEnded";
  std::uint64_t session = 0;
  MoveEnd end = MoveEnd::kLeft;
  // For kArrived: time for which none of the client's commands ran, and the memory that was moved.
  std::uint64_t stopped_ns = 0;
  std::uint64_t bytes = 0;

  void Visit(Fields& f) {
    f.Number("session", session, 1);
    f.Number("stopped_ns", stopped_ns);
    f.Number("bytes", bytes);
    f.Number("end", end, 1, 3);
    f.Reserved<std::uint8_t, 7>();
  }
};

// Descriptors: doorbell, command segment, completion segment, worker page, a file with the state,
// and a file with the device memory (Space::Save).
inline constexpr std::uint32_t kMovedSessionFds = 6;
inline constexpr std::uint32_t kMovedStateBytesMax = 4u << 20;
struct MovedSession {
  static constexpr ChannelType kType = ChannelType::kMovedSession;
  static constexpr char kName[] = "MovedSession";
  // Sizes of the two messages at the beginning of the state's file.
  std::uint32_t session_bytes = 0, client_bytes = 0;

  void Visit(Fields& f) {
    f.Descriptors(kMovedSessionFds);
    f.Number("session_bytes", session_bytes, 1, kMovedStateBytesMax);
    f.Number("client_bytes", client_bytes, 1, kMovedStateBytesMax);
  }
};

struct MovedBuffer {
  static constexpr ChannelType kType = ChannelType::kMovedBuffer;
  static constexpr char kName[] = "MovedBuffer";
  std::uint64_t bytes = 0;

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("bytes", bytes, kStagingBytesStep, kStagingBufferBytesMax);
    f.Multiple("bytes", bytes, kStagingBytesStep);
  }
};

struct MoveCommit {
  static constexpr ChannelType kType = ChannelType::kMoveCommit;
  static constexpr char kName[] = "MoveCommit";

  void Visit(Fields&) {}
};

using ToWorkerMessages = MessageList<Attach, AdminRequest, Drain, Resume, TerminateSession,
                                     SetSession, TakeOver, Keep, Forget, Watch, MoveOut, MoveIn>;
using ToBrokerMessages = MessageList<Ready, SessionStarted, SessionEnded, ChannelReply, Registry,
                                     RegistrySession, RegistryEnd, Kept, MoveEnded>;
// Between the workers of a move.
using MoveMessages = MessageList<Attach, MovedSession, MovedBuffer, MoveCommit>;
using MoveAnswers = MessageList<ChannelReply>;

std::optional<FrameRule> ChannelToWorkerRules(std::uint16_t type);
std::optional<FrameRule> ChannelToBrokerRules(std::uint16_t type);
std::optional<FrameRule> MoveRules(std::uint16_t type);
std::optional<FrameRule> MoveAnswerRules(std::uint16_t type);
std::string_view ChannelTypeName(std::uint16_t type);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_CHANNEL_H_
