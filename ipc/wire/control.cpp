// SPDX-License-Identifier: Apache-2.0
// Messages with rules beyond the limits of their fields, and the frames of client sockets.
#include "ipc/wire/control.h"

#include <algorithm>
#include <iterator>

#include "ipc/wire/bytes.h"

namespace gpushared::ipc {
namespace {

constexpr std::uint64_t kAddressMax = (std::uint64_t{1} << 63) - 1;

// Indexed by the number of the verb.
constexpr AdminVerbFacts kVerbFacts[] = {
    {.name = "unknown"},
    {.name = "status", .is_read_only = true},
    {.name = "ps", .is_read_only = true},
    {.name = "devices", .is_read_only = true},
    {.name = "client terminate", .names_client = true},
    {.name = "client set", .names_client = true, .text_bytes_max = kLeaseTermsBytesMax},
    {.name = "drain", .text_bytes_max = kNameBytes},
    {.name = "explain", .is_read_only = true, .names_client = true},
    {.name = "endpoints", .is_read_only = true},
    {.name = "endpoint lease", .text_bytes_max = kLeaseTermsBytesMax},
    {.name = "reload"},
    {.name = "upgrade"},
    {.name = "resume", .text_bytes_max = kNameBytes},
    {.name = "trace", .is_read_only = true, .text_bytes_max = kNameBytes, .text_bytes_min = 1},
    {.name = "park", .names_client = true},
    {.name = "wake", .names_client = true},
    {.name = "move", .names_client = true, .text_bytes_max = kNameBytes, .text_bytes_min = 1},
};
static_assert(std::size(kVerbFacts) == kAdminVerbMax + 1);

}  // namespace

void Admin::Visit(Fields& f) {
  f.Version();
  f.Number("verb", verb, 1, kAdminVerbMax);
  f.Optional("client_class", client_class, kNoClass, kClassMax);
  f.Optional("max_share", max_share, std::uint16_t{0}, kSharePerMilleMax);
  f.Optional("weight", weight, 0u, kWeightMax);
  const std::uint32_t text_bytes = f.Length("text_bytes", terms, kLeaseTermsBytesMax);
  f.Number("client", client);
  f.Number("request", request);
  const AdminVerbFacts& facts = GetFacts(verb);
  const bool sets = verb == AdminVerb::kSet;
  const bool is_of_new_clients = sets && text_bytes > 0;
  const bool names_client = facts.names_client && !is_of_new_clients;
  const bool has_values = client_class || weight || max_share;
  f.Require(sets || !client_class, "class is given with a verb that takes none");
  if (!sets) f.Zero("max_share", max_share.value_or(0));
  if (!sets) f.Zero("weight", weight.value_or(0));
  f.Range("text_bytes", text_bytes, facts.text_bytes_min, facts.text_bytes_max);
  f.Range("client", client, names_client ? 1 : 0, names_client ? Fields::kAny : 0);
  const std::uint64_t request_max = verb == AdminVerb::kPark ? 1 : 0;
  f.Range("request", request, 0, verb == AdminVerb::kExplain ? Fields::kAny : request_max);
  f.Require(!sets || is_of_new_clients || has_values, "the change sets no value");
  f.Require(!is_of_new_clients || !has_values,
            "a change for new clients has both terms and values");
  f.Tail(terms, text_bytes);
}

void DeviceDescription::Visit(Fields& f) {
  f.Number("memory_bytes", memory_bytes);
  f.Number("multiprocessors", multiprocessors);
  f.Number("threads_per_block_max", threads_per_block_max, 1, kThreadsPerBlockMax);
  f.Each("block_max", block_max, 1, {kBlockXyMax, kBlockXyMax, kBlockZMax});
  f.Each("grid_max", grid_max, 1, {kGridXMax, kGridYzMax, kGridYzMax});
  f.Number("shared_bytes_per_block_max", shared_bytes_per_block_max, 0, kDynamicSharedBytesMax);
  f.Flag("preempts_within_command", preempts_within_command);
  f.Flag("spinning_pays", spinning_pays);
  f.Reserved<std::uint16_t>();
  f.Text("name", name, kDeviceNameBytes);
  f.Text("id", id, kNameBytes);
  f.Text("kind", kind, kNameBytes);
  f.Plain("uuid", uuid);
  // A table of full size, padded with zeros after the last attribute.
  std::array<DeviceAttribute, kDeviceAttributesMax> table = {};
  auto count = static_cast<std::uint32_t>(std::min(attributes.size(), table.size()));
  std::copy_n(attributes.begin(), count, table.begin());
  f.Number("attributes", count, 0, kDeviceAttributesMax);
  f.Reserved<std::uint32_t>("reserved1");
  f.Plain("table", table);
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < kDeviceAttributesMax; ++i) {
    if (i < count) {
      f.Range("attribute id", table[i].id, before + 1, kDeviceAttributeIdMax);
      before = table[i].id;
    } else {
      f.Zero("attribute after the last", table[i].id);
      f.Zero("attribute after the last", static_cast<std::uint32_t>(table[i].value));
    }
  }
  if (f.ok()) attributes.assign(table.begin(), table.begin() + count);
}

void DeviceList::Visit(Fields& f) {
  devices.resize(std::min<std::size_t>(devices.size(), kDevicesListedMax));
  const std::uint32_t count = f.Count("devices", devices.size(), kDevicesListedMax);
  f.Reserved<std::uint32_t>();
  f.TailAtMost(kDevicesListedMax * GetLayout<DeviceDescription>().bytes);
  f.Elements("devices", devices, count);
}

void Welcome::Visit(Fields& f) {
  f.Descriptors(kWelcomeFds);
  f.Version();
  f.Number("generation", generation);
  f.Number("session", session, 1);
  f.Number("spin_ns", spin_ns, 0, kSpinNsMax);
  f.Number("quota_bytes", quota_bytes);
  f.Number("space_base", space_base, 0, kAddressMax);
  f.Number("space_bytes", space_bytes, 1, std::uint64_t{1} << 62);
  // The geometry is part of the protocol version. The message repeats it, so that a mismatch is
  // detected here instead of corrupting the rings.
  f.Constant("command_granules", kCommandGranules);
  f.Constant("completion_granules", kCompletionGranules);
  f.Constant("streams_max", kStreamsMax);
  f.Constant("modules_max", kModulesMax);
  f.Constant("staging_buffers_max", kStagingBuffersMax);
  f.Constant("staging_bytes_default", kStagingBufferBytesDefault);
  f.Number("staging_bytes_total_max", staging_bytes_total_max);
  f.Number("mapping_base", mapping_base);
  f.Number("mapping_bytes", mapping_bytes);
  f.Struct("device", device);
  if (mapping_bytes == 0) return;
  // Wraps to a large number if mapping_base is below space_base.
  const std::uint64_t mapping = mapping_base - space_base;
  f.Range("mapping area", mapping, 0, space_bytes);
  f.Range("mapping_bytes", mapping_bytes, 0, space_bytes - std::min(mapping, space_bytes));
}

void VisitStatus(Fields& f, Status& status, StatusCode minimum) {
  StatusCode code = status.code();
  std::string text = status.message();
  f.Number("code", code, static_cast<std::uint64_t>(minimum), kStatusCodeMax);
  const std::uint32_t bytes = f.Length("text_bytes", text, kTextBytesMax);
  f.Tail(text, bytes);
  status = Status(code, std::move(text));
}

void VisitPage(Fields& f, StatusCode& code, std::string& text, bool& is_last) {
  f.Number("code", code, 0, kStatusCodeMax);
  const std::uint32_t bytes = f.Length("text_bytes", text, kPageTextBytesMax);
  f.Flag("is_last", is_last);
  f.Reserved<std::uint8_t, 7>();
  f.Tail(text, bytes);
}

std::string_view TakePage(std::string_view& rest) {
  std::string_view page = CutText(rest, kPageTextBytesMax);
  if (page.empty()) page = rest.substr(0, kPageTextBytesMax);
  rest.remove_prefix(page.size());
  return page;
}

void KernelDescription::Visit(Fields& f) {
  unsupported.resize(CutText(unsupported, kTextBytesMax).size());
  f.String("name_bytes", name, kSymbolNameBytesMax);
  f.String("unsupported_bytes", unsupported, kTextBytesMax);
  f.Plain("parameter_bytes", parameter_bytes);
  f.Limit("parameter_bytes", parameter_bytes, kParameterBytesMax);
  f.Number("static_shared_bytes", static_shared_bytes);
  f.Number("threads_per_block_max", threads_per_block_max);
  f.Plain("required_block", required_block);
  f.Plain("required_cluster", required_cluster);
  f.Plain("attributes", attributes);
  const std::uint32_t count = f.Count("parameters", parameters.size(), kParametersPerKernelMax);
  f.Elements("parameters", parameters, count);
  for (const auto& required : {required_block, required_cluster}) {
    const auto zeros = std::ranges::count(required, 0u);
    f.Require(zeros == 0 || zeros == 3, "a kernel requires an extent of 0");
  }
  // The client writes arguments by this layout, so each parameter must be inside the buffer.
  for (const ParameterDescription& parameter : parameters) {
    f.Range("parameter offset", parameter.offset, 0, parameter_bytes);
    f.Range("bytes of a parameter", parameter.bytes, 0,
            parameter_bytes - std::min(parameter.offset, parameter_bytes));
  }
}

void VariableDescription::Visit(Fields& f) {
  f.String("name_bytes", name, kSymbolNameBytesMax);
  f.Number("address", address);
  // Clients compute the end of the variable, which must not wrap.
  f.Number("bytes", bytes, 0, ~address);
  f.Number("space", space, 0, static_cast<std::uint64_t>(VariableSpace::kConstant));
}

void ModuleLoaded::Visit(Fields& f) {
  f.Number("module", module, 0, kModulesMax - 1);
  const std::uint32_t kernel_count = f.Count("kernels", kernels.size(), kKernelsPerModuleMax);
  const std::uint32_t variable_count =
      f.Count("variables", variables.size(), kVariablesPerModuleMax);
  f.Reserved<std::uint32_t>();
  f.TailAtMost(kModuleReplyBytesMax);
  f.Elements("kernels", kernels, kernel_count);
  f.Elements("variables", variables, variable_count);
}

Result<std::vector<std::byte>> Encode(const ModuleLoaded& loaded) {
  Fields fields(ModuleLoaded::kName);
  ModuleLoaded copy = loaded;
  copy.Visit(fields);
  if (!fields.ok()) return fields.status();
  return std::move(fields).TakePayload();
}

void ChangeChunk::Visit(Fields& f) {
  f.Number("action", action, 1, static_cast<std::uint64_t>(ChunkAction::kUnmap));
  f.Number("chunk", chunk, 0, kChunksMax - 1);
  f.Number("bytes", bytes, 0, kChunkBytesMax);
  f.Number("address", address, 0, kAddressMax);
  const bool is_make = action == ChunkAction::kMake;
  const bool has_place = action == ChunkAction::kMap || action == ChunkAction::kUnmap;
  if (action == ChunkAction::kUnmap) f.Zero("chunk", chunk);
  f.Range("bytes", bytes, is_make ? kChunkBytesStep : 0, is_make ? kChunkBytesMax : 0);
  f.Multiple("bytes", bytes, kChunkBytesStep);
  if (!has_place) f.Zero("address", address);
  f.Multiple("address", address, kChunkBytesStep);
}

void ErrorText::Visit(Fields& f) {
  StatusCode code = status.code();
  std::string text = status.message();
  f.Number("stream", stream, 0, kStreamsMax - 1);
  f.Number("code", code, 0, kStatusCodeMax);
  f.Number("sequence", sequence);
  const std::uint32_t bytes = f.Length("text_bytes", text, kTextBytesMax);
  f.Reserved<std::uint32_t>();
  f.Tail(text, bytes);
  status = Status(code, std::move(text));
}

void Printed::Visit(Fields& f) {
  text.resize(std::min<std::size_t>(text.size(), kPrintedTextBytesMax));
  f.Number("end", end);
  f.Number("dropped", dropped);
  f.Range("dropped", dropped, 0, end);
  const std::uint32_t bytes = f.Length("text_bytes", text, kPrintedTextBytesMax);
  f.Range("text_bytes", bytes, 0, end - std::min(dropped, end));
  f.Reserved<std::uint32_t>();
  f.Tail(text, bytes);
}

std::optional<FrameRule> FirstFrameRules(std::uint16_t type) {
  if (NameIn(FirstMessages(), type).empty()) return std::nullopt;
  // Accepts frames of any protocol version, so that the rejection can name the peer's version.
  return FrameRule{sizeof(std::uint32_t), kFirstFrameBytesMax, 0};
}
std::optional<FrameRule> ClientFrameRules(std::uint16_t type) {
  return RuleIn(ClientMessages(), type);
}
std::optional<FrameRule> ServerFrameRules(std::uint16_t type) {
  return RuleIn(ServerMessages(), type);
}

std::string_view MessageTypeName(std::uint16_t type) {
  for (const std::string_view name : {NameIn(FirstMessages(), type), NameIn(ClientMessages(), type),
                                      NameIn(ServerMessages(), type)}) {
    if (!name.empty()) return name;
  }
  return "unknown";
}

const AdminVerbFacts& GetFacts(AdminVerb verb) {
  const auto number = static_cast<std::size_t>(verb);
  return kVerbFacts[number <= kAdminVerbMax ? number : 0];
}

Status UnexpectedReply(const Frame& frame, MessageType wanted) {
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kRejected: {
      Result<Rejected> rejected = Decode<Rejected>(frame.payload);
      return rejected.ok() ? rejected->status : rejected.status();
    }
    case MessageType::kEnded: {
      Result<Ended> ended = Decode<Ended>(frame.payload);
      return ended.ok() ? ended->status : ended.status();
    }
    default:
      break;
  }
  return Status(StatusCode::kProtocolViolation,
                "reply rejected: it is " + std::string(MessageTypeName(frame.type)) +
                    ", expected " +
                    std::string(MessageTypeName(static_cast<std::uint16_t>(wanted))));
}

}  // namespace gpushared::ipc
