// SPDX-License-Identifier: Apache-2.0
// The message types that each receiver allows, with their bytes and descriptors.
#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"

namespace gpushared::ipc {
namespace {

template <typename Wire>
constexpr FrameRule Exactly(std::uint32_t fds = 0) {
  return {sizeof(Wire), sizeof(Wire), fds};
}
template <typename Wire>
constexpr FrameRule WithTail(std::uint32_t tail_bytes_max) {
  return {sizeof(Wire), static_cast<std::uint32_t>(sizeof(Wire)) + tail_bytes_max, 0};
}
constexpr FrameRule kEmpty = {0, 0, 0};
constexpr FrameRule KeepRule() {
  FrameRule rule = WithTail<KeepWire>(kNameBytes + kLeaseTermsBytesMax);
  rule.fds = 1;
  return rule;
}
// Whatever version it is, so that the answer can name it.
constexpr FrameRule kAnyVersion = {sizeof(std::uint32_t), kFirstFrameBytesMax, 0};

}  // namespace

std::optional<FrameRule> FirstFrameRules(std::uint16_t type) {
  switch (static_cast<MessageType>(type)) {
    case MessageType::kHello:
    case MessageType::kAdmin:
    case MessageType::kWhy:
    case MessageType::kListDevices:
      return kAnyVersion;
    default:
      return std::nullopt;
  }
}

std::optional<FrameRule> ClientFrameRules(std::uint16_t type) {
  switch (static_cast<MessageType>(type)) {
    case MessageType::kLoadModule:
      return Exactly<LoadModuleWire>();
    case MessageType::kMakeImage:
      return Exactly<MakeImageWire>();
    case MessageType::kUnloadModule:
      return Exactly<UnloadModuleWire>();
    case MessageType::kResizeMemory:
      return Exactly<ResizeMemoryWire>();
    case MessageType::kChangeChunk:
      return Exactly<ChangeChunkWire>();
    case MessageType::kSetKernelMemory:
      return Exactly<SetKernelMemoryWire>();
    case MessageType::kAddArena:
      return Exactly<AddArenaWire>();
    case MessageType::kDescribeError:
      return Exactly<DescribeErrorWire>();
    case MessageType::kTakePrinted:
      return kEmpty;
    default:
      return std::nullopt;
  }
}

std::optional<FrameRule> ServerFrameRules(std::uint16_t type) {
  switch (static_cast<MessageType>(type)) {
    case MessageType::kWelcome:
      return Exactly<WelcomeWire>(kWelcomeFds);
    case MessageType::kRefused:
    case MessageType::kEnded:
      return WithTail<TextWire>(kTextBytesMax);
    case MessageType::kAdminReply:
      return WithTail<PageWire>(kPageTextBytesMax);
    case MessageType::kTraceOpened:
      return Exactly<TraceOpenedWire>(1);
    case MessageType::kDeviceList:
      return WithTail<DeviceListWire>(kDevicesListedMax * sizeof(DeviceWire));
    case MessageType::kModuleLoaded:
      return WithTail<ModuleLoadedWire>(kModuleReplyBytesMax);
    case MessageType::kDone:
      return kEmpty;
    case MessageType::kMemoryResized:
      return Exactly<MemoryResizedWire>();
    case MessageType::kArenaAdded:
      return Exactly<ArenaAddedWire>(1);
    case MessageType::kImageMade:
      return Exactly<ImageMadeWire>(1);
    case MessageType::kPrinted:
      return WithTail<PrintedWire>(kPrintedTextBytesMax);
    case MessageType::kErrorText:
      return WithTail<ErrorTextWire>(kTextBytesMax);
    default:
      return std::nullopt;
  }
}

std::optional<FrameRule> ChannelToWorkerRules(std::uint16_t type) {
  switch (static_cast<ChannelType>(type)) {
    case ChannelType::kAttach:
      return Exactly<AttachWire>(kAttachFds);
    case ChannelType::kAdminRequest:
      return Exactly<AdminWire>();
    case ChannelType::kDrain:
    case ChannelType::kResume:
      return kEmpty;
    case ChannelType::kTerminateSession:
      return WithTail<TerminateSessionWire>(kTextBytesMax);
    case ChannelType::kSetSession:
      return Exactly<SetSessionWire>();
    case ChannelType::kTakeOver:
      return Exactly<TakeOverWire>();
    case ChannelType::kKeep:
      return KeepRule();
    case ChannelType::kForget:
      return Exactly<ForgetWire>();
    case ChannelType::kWatch:
      return Exactly<WatchWire>(1);
    default:
      return std::nullopt;
  }
}

std::optional<FrameRule> ChannelToBrokerRules(std::uint16_t type) {
  switch (static_cast<ChannelType>(type)) {
    case ChannelType::kReady:
      return Exactly<ReadyWire>();
    case ChannelType::kSessionStarted:
      return Exactly<SessionWire>();
    case ChannelType::kSessionEnded:
      return WithTail<SessionEndedWire>(kTextBytesMax);
    case ChannelType::kChannelReply:
      return WithTail<PageWire>(kPageTextBytesMax);
    case ChannelType::kRoster:
      return Exactly<RosterWire>();
    case ChannelType::kRosterSession:
      return Exactly<RosterSessionWire>();
    case ChannelType::kRosterEnd:
      return WithTail<RosterEndWire>(kTextBytesMax);
    case ChannelType::kKept:
      return KeepRule();
    default:
      return std::nullopt;
  }
}

std::string_view MessageTypeName(std::uint16_t type) {
  switch (static_cast<MessageType>(type)) {
    case MessageType::kHello:
      return "Hello";
    case MessageType::kAdmin:
      return "Admin";
    case MessageType::kWhy:
      return "Why";
    case MessageType::kListDevices:
      return "ListDevices";
    case MessageType::kDeviceList:
      return "DeviceList";
    case MessageType::kWelcome:
      return "Welcome";
    case MessageType::kRefused:
      return "Refused";
    case MessageType::kEnded:
      return "Ended";
    case MessageType::kAdminReply:
      return "AdminReply";
    case MessageType::kLoadModule:
      return "LoadModule";
    case MessageType::kModuleLoaded:
      return "ModuleLoaded";
    case MessageType::kUnloadModule:
      return "UnloadModule";
    case MessageType::kDone:
      return "Done";
    case MessageType::kResizeMemory:
      return "ResizeMemory";
    case MessageType::kMemoryResized:
      return "MemoryResized";
    case MessageType::kChangeChunk:
      return "ChangeChunk";
    case MessageType::kSetKernelMemory:
      return "SetKernelMemory";
    case MessageType::kAddArena:
      return "AddArena";
    case MessageType::kArenaAdded:
      return "ArenaAdded";
    case MessageType::kDescribeError:
      return "DescribeError";
    case MessageType::kErrorText:
      return "ErrorText";
    case MessageType::kTakePrinted:
      return "TakePrinted";
    case MessageType::kPrinted:
      return "Printed";
    case MessageType::kMakeImage:
      return "MakeImage";
    case MessageType::kImageMade:
      return "ImageMade";
    case MessageType::kTraceOpened:
      return "TraceOpened";
  }
  return "unknown";
}

std::string_view AdminVerbName(AdminVerb verb) {
  switch (verb) {
    case AdminVerb::kStatus:
      return "status";
    case AdminVerb::kClients:
      return "ps";
    case AdminVerb::kDevices:
      return "devices";
    case AdminVerb::kTerminate:
      return "client terminate";
    case AdminVerb::kSet:
      return "client set";
    case AdminVerb::kDrain:
      return "drain";
    case AdminVerb::kExplain:
      return "explain";
    case AdminVerb::kEntrances:
      return "entrances";
    case AdminVerb::kLease:
      return "entrance lease";
    case AdminVerb::kReload:
      return "reload";
    case AdminVerb::kUpgrade:
      return "upgrade";
    case AdminVerb::kResume:
      return "resume";
    case AdminVerb::kTrace:
      return "trace";
  }
  return "unknown";
}

std::string_view ChannelTypeName(std::uint16_t type) {
  switch (static_cast<ChannelType>(type)) {
    case ChannelType::kReady:
      return "Ready";
    case ChannelType::kAttach:
      return "Attach";
    case ChannelType::kSessionStarted:
      return "SessionStarted";
    case ChannelType::kSessionEnded:
      return "SessionEnded";
    case ChannelType::kAdminRequest:
      return "AdminRequest";
    case ChannelType::kChannelReply:
      return "ChannelReply";
    case ChannelType::kDrain:
      return "Drain";
    case ChannelType::kTerminateSession:
      return "TerminateSession";
    case ChannelType::kSetSession:
      return "SetSession";
    case ChannelType::kTakeOver:
      return "TakeOver";
    case ChannelType::kRoster:
      return "Roster";
    case ChannelType::kRosterSession:
      return "RosterSession";
    case ChannelType::kRosterEnd:
      return "RosterEnd";
    case ChannelType::kKept:
      return "Kept";
    case ChannelType::kKeep:
      return "Keep";
    case ChannelType::kForget:
      return "Forget";
    case ChannelType::kWatch:
      return "Watch";
    case ChannelType::kResume:
      return "Resume";
  }
  return "unknown";
}

}  // namespace gpushared::ipc
