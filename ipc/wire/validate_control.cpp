// SPDX-License-Identifier: Apache-2.0
// Where bytes of control messages become values.
#include <algorithm>

#include "ipc/wire/bytes.h"
#include "ipc/wire/control.h"
#include "ipc/wire/convert.h"

namespace gpushared::ipc {

void MessageChecks::Version(std::span<const std::byte> payload) {
  std::uint32_t version = 0;
  if (!ByteReader(payload).Get(version)) return Refuse("it is too short");
  if (version != kProtocolVersion && ok()) {
    status_ = Status(StatusCode::kVersionMismatch,
                     std::string(message_) + " refused: it speaks protocol version " +
                         std::to_string(version) + ", this side speaks version " +
                         std::to_string(kProtocolVersion) +
                         "; client library and server must come from matching releases");
  }
}

void MessageChecks::Range(const char* field, std::uint64_t value, std::uint64_t minimum,
                          std::uint64_t maximum) {
  if (value >= minimum && value <= maximum) return;
  Refuse(std::string(field) + " is " + std::to_string(value) + ", allowed " +
         std::to_string(minimum) +
         (maximum > minimum ? " to " + std::to_string(maximum) : std::string()));
}

void MessageChecks::PrintableText(const char* field, std::span<const char> value,
                                  std::string& text) {
  if (!GetFixedText(value, text)) {
    Refuse(std::string(field) + " is not filled up with zeros after at most " +
           std::to_string(value.size() - 1) + " bytes");
  } else if (!IsPrintableText(text)) {
    Refuse(std::string(field) + " is not printable UTF-8");
  }
}

void MessageChecks::End(const ByteReader& reader) {
  if (reader.failed()) Refuse("it is too short");
  if (reader.left() > 0) Refuse("it has " + std::to_string(reader.left()) + " bytes too many");
}

void MessageChecks::Refuse(const std::string& reason) {
  if (!ok()) return;
  status_ = Status(StatusCode::kProtocolViolation, std::string(message_) + " refused: " + reason);
}

Hello FromWire(const HelloWire& wire, MessageChecks& checks) {
  Hello hello;
  checks.Range("version", wire.version, kProtocolVersion, kProtocolVersion);
  if (wire.client_class != kClassNotSaid) {
    checks.Range("class", wire.client_class, 0, kClassMax);
    hello.client_class = static_cast<ClientClass>(wire.client_class);
  }
  checks.Range("takes printed", wire.takes_printed, 0, 1);
  checks.Zero("reserved", wire.reserved0);
  checks.Range("weight", wire.weight, 0, kWeightMax);
  if (wire.weight != 0) hello.weight = wire.weight;
  checks.Range("max_share", wire.max_share, 0, kSharePerMilleMax);
  if (wire.max_share != 0) hello.max_share = wire.max_share;
  checks.Range("latency promise", wire.latency_promise_ns, 0, kLatencyPromiseNsMax);
  checks.PrintableText("name", wire.name, hello.name);
  checks.PrintableText("device", wire.device, hello.device);
  hello.takes_printed = wire.takes_printed == 1;
  hello.memory_bytes = wire.memory_bytes;
  hello.latency_promise_ns = wire.latency_promise_ns;
  return hello;
}

std::uint32_t AdminTextBytesMax(AdminVerb verb) {
  if (verb == AdminVerb::kLease || verb == AdminVerb::kSet) return kLeaseTermsBytesMax;
  const bool names_device =
      verb == AdminVerb::kDrain || verb == AdminVerb::kResume || verb == AdminVerb::kTrace;
  return names_device ? sizeof(HelloWire::device) : 0;
}

Admin FromWire(const AdminWire& wire, MessageChecks& checks) {
  Admin admin;
  checks.Range("version", wire.version, kProtocolVersion, kProtocolVersion);
  checks.Range("verb", wire.verb, 1, kAdminVerbMax);
  admin.verb = static_cast<AdminVerb>(wire.verb);
  const bool sets = admin.verb == AdminVerb::kSet;
  const bool explains = admin.verb == AdminVerb::kExplain;
  const bool is_of_new_clients = sets && wire.text_bytes > 0;
  const bool names_client =
      (sets && !is_of_new_clients) || explains || admin.verb == AdminVerb::kTerminate;
  if (wire.client_class != kKeepClass) {
    checks.Range("class", wire.client_class, 0, kClassMax);
    if (!sets) checks.Refuse("class is given with a verb that takes none");
    admin.client_class = static_cast<ClientClass>(wire.client_class);
  }
  checks.Range("max_share", wire.max_share, 0, sets ? kSharePerMilleMax : 0);
  if (wire.max_share != 0) admin.max_share = wire.max_share;
  checks.Range("weight", wire.weight, 0, sets ? kWeightMax : 0);
  if (wire.weight != 0) admin.weight = wire.weight;
  const bool needs_text = admin.verb == AdminVerb::kTrace;
  checks.Range("text bytes", wire.text_bytes, needs_text ? 1 : 0, AdminTextBytesMax(admin.verb));
  checks.Range("client", wire.client, names_client ? 1 : 0, names_client ? ~std::uint64_t{0} : 0);
  admin.client = wire.client;
  checks.Range("request", wire.request, 0, explains ? ~std::uint64_t{0} : 0);
  admin.request = wire.request;
  const bool has_values = admin.client_class || admin.weight || admin.max_share;
  if (sets && !is_of_new_clients && !has_values) checks.Refuse("nothing is to be set");
  if (is_of_new_clients && has_values) checks.Refuse("terms of new clients stand beside values");
  return admin;
}

DeviceDescription FromWire(const DeviceWire& wire, MessageChecks& checks) {
  DeviceDescription device;
  checks.Range("threads per block", wire.threads_per_block_max, 1, kThreadsPerBlockMax);
  const std::uint32_t block_limits[3] = {kBlockXyMax, kBlockXyMax, kBlockZMax};
  const std::uint32_t grid_limits[3] = {kGridXMax, kGridYzMax, kGridYzMax};
  for (std::size_t i = 0; i < 3; ++i) {
    checks.Range("block limit", wire.block_max[i], 1, block_limits[i]);
    checks.Range("grid limit", wire.grid_max[i], 1, grid_limits[i]);
    device.block_max[i] = wire.block_max[i];
    device.grid_max[i] = wire.grid_max[i];
  }
  checks.Range("shared bytes per block", wire.shared_bytes_per_block_max, 0,
               kDynamicSharedBytesMax);
  checks.Range("preemption", wire.preemption, 0, 1);
  checks.Range("spinning pays", wire.spinning_pays, 0, 1);
  checks.Zero("reserved", wire.reserved);
  checks.PrintableText("device name", wire.name, device.name);
  checks.PrintableText("device id", wire.id, device.id);
  checks.PrintableText("device kind", wire.kind, device.kind);
  checks.Range("attributes", wire.attributes, 0, kDeviceAttributesMax);
  checks.Range("reserved", wire.reserved1, 0, 0);
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; checks.ok() && i < kDeviceAttributesMax; ++i) {
    const DeviceAttribute& attribute = wire.table[i];
    if (i >= wire.attributes) {
      checks.Range("attribute behind the last", attribute.id, 0, 0);
      checks.Range("attribute behind the last", static_cast<std::uint32_t>(attribute.value), 0, 0);
      continue;
    }
    checks.Range("attribute id", attribute.id, before + 1, kDeviceAttributeIdMax);
    before = attribute.id;
    device.attributes.push_back(attribute);
  }
  std::ranges::copy(wire.uuid, device.uuid.begin());
  device.memory_bytes = wire.memory_bytes;
  device.multiprocessors = wire.multiprocessors;
  device.threads_per_block_max = wire.threads_per_block_max;
  device.shared_bytes_per_block_max = wire.shared_bytes_per_block_max;
  device.preempts_within_command = wire.preemption == 1;
  device.spinning_pays = wire.spinning_pays == 1;
  return device;
}

Status TextFromWire(const TextWire& wire, StatusCode code_minimum, std::size_t bytes_max,
                    ByteReader& reader, MessageChecks& checks) {
  std::string text;
  checks.Range("code", wire.code, static_cast<std::uint64_t>(code_minimum), kStatusCodeMax);
  checks.Range("text bytes", wire.text_bytes, 0, bytes_max);
  if (checks.ok()) reader.GetRaw(text, wire.text_bytes);
  return Status(static_cast<StatusCode>(wire.code), std::move(text));
}

namespace {

// A message that is one fixed struct and nothing else.
template <typename T, typename Wire, typename Convert>
Result<T> DecodeFixed(const char* message, std::span<const std::byte> payload, Convert convert) {
  MessageChecks checks(message);
  ByteReader reader(payload);
  Wire wire;
  checks.Fixed(reader, wire);
  checks.End(reader);
  T value = convert(wire, checks);
  if (!checks.ok()) return checks.status();
  return value;
}

template <typename T, typename Wire, typename Convert>
Result<T> DecodeVersioned(const char* message, std::span<const std::byte> payload,
                          Convert convert) {
  MessageChecks checks(message);
  checks.Version(payload);
  if (!checks.ok()) return checks.status();
  return DecodeFixed<T, Wire>(message, payload, convert);
}

// A message that is a code and a text.
struct CodeAndText {
  StatusCode code = StatusCode::kOk;
  std::string text;
};
Result<CodeAndText> DecodeCodeAndText(const char* message, std::span<const std::byte> payload) {
  MessageChecks checks(message);
  ByteReader reader(payload);
  TextWire wire;
  checks.Fixed(reader, wire);
  const Status status =
      TextFromWire(wire, StatusCode::kInvalidArgument, kTextBytesMax, reader, checks);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return CodeAndText{status.code(), status.message()};
}

// One kernel of a ModuleLoaded. The client writes arguments by this layout, so every parameter
// must lie inside the buffer it describes.
KernelDescription ReadKernel(ByteReader& reader, MessageChecks& checks) {
  KernelDescription kernel;
  std::uint32_t parameters = 0;
  reader.GetText(kernel.name, kSymbolNameBytesMax);
  reader.GetText(kernel.unsupported, kTextBytesMax);
  reader.Get(kernel.parameter_bytes);
  reader.Get(kernel.static_shared_bytes);
  reader.Get(kernel.threads_per_block_max);
  reader.Get(kernel.required_block);
  reader.Get(kernel.required_cluster);
  reader.Get(kernel.attributes);
  if (!reader.Get(parameters)) {
    checks.Refuse("a kernel's description is cut off or has a text that is too long");
    return kernel;
  }
  for (const auto& required : {kernel.required_block, kernel.required_cluster}) {
    const auto zeros = std::ranges::count(required, 0u);
    if (zeros != 0 && zeros != 3) checks.Refuse("a kernel requires an extent of 0");
  }
  checks.Range("parameter bytes", kernel.parameter_bytes, 0, kParameterBytesMax);
  checks.Range("parameters", parameters, 0, kParametersPerKernelMax);
  // Checked against the bytes that are there before memory is taken for them.
  checks.Range("parameters", parameters, 0, reader.left() / sizeof(ParameterDescription));
  if (!checks.ok()) return kernel;
  kernel.parameters.resize(parameters);
  for (ParameterDescription& parameter : kernel.parameters) {
    reader.Get(parameter.offset);
    reader.Get(parameter.bytes);
    checks.Range("parameter offset", parameter.offset, 0, kernel.parameter_bytes);
    checks.Range("bytes of a parameter", parameter.bytes, 0,
                 kernel.parameter_bytes - std::min(parameter.offset, kernel.parameter_bytes));
  }
  return kernel;
}

VariableDescription ReadVariable(ByteReader& reader, MessageChecks& checks) {
  VariableDescription variable;
  std::uint32_t space = 0;
  reader.GetText(variable.name, kSymbolNameBytesMax);
  reader.Get(variable.address);
  reader.Get(variable.bytes);
  if (!reader.Get(space)) {
    checks.Refuse("a variable's description is cut off or has a name that is too long");
    return variable;
  }
  checks.Range("bytes of a variable", variable.bytes, 0, ~variable.address);
  checks.Range("space of a variable", space, 0,
               static_cast<std::uint32_t>(VariableSpace::kConstant));
  variable.space = static_cast<VariableSpace>(space);
  return variable;
}

}  // namespace

template <>
Result<Hello> Decode(std::span<const std::byte> payload) {
  return DecodeVersioned<Hello, HelloWire>(
      "hello", payload,
      [](const HelloWire& wire, MessageChecks& checks) { return FromWire(wire, checks); });
}

template <>
Result<Admin> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("admin request");
  checks.Version(payload);
  if (!checks.ok()) return checks.status();
  ByteReader reader(payload);
  AdminWire wire;
  checks.Fixed(reader, wire);
  Admin admin = FromWire(wire, checks);
  if (checks.ok()) reader.GetRaw(admin.terms, wire.text_bytes);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return admin;
}

template <>
Result<Why> Decode(std::span<const std::byte> payload) {
  return DecodeVersioned<Why, WhyWire>(
      "why", payload, [](const WhyWire& wire, MessageChecks& checks) {
        checks.Zero("reserved", wire.reserved);
        checks.Range("session", wire.session, 1, ~std::uint64_t{0});
        return Why{wire.session};
      });
}

template <>
Result<ListDevices> Decode(std::span<const std::byte> payload) {
  return DecodeVersioned<ListDevices, ListDevicesWire>(
      "device list request", payload, [](const ListDevicesWire& wire, MessageChecks& checks) {
        checks.Zero("reserved", wire.reserved);
        return ListDevices{};
      });
}

template <>
Result<DeviceList> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("device list");
  ByteReader reader(payload);
  DeviceListWire wire;
  checks.Fixed(reader, wire);
  checks.Range("devices", wire.devices, 0, kDevicesListedMax);
  checks.Zero("reserved", wire.reserved);
  DeviceList list;
  for (std::uint32_t i = 0; checks.ok() && i < wire.devices; ++i) {
    DeviceWire device;
    checks.Fixed(reader, device);
    list.devices.push_back(FromWire(device, checks));
  }
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return list;
}

template <>
Result<Welcome> Decode(std::span<const std::byte> payload) {
  return DecodeVersioned<Welcome, WelcomeWire>(
      "welcome", payload, [](const WelcomeWire& wire, MessageChecks& checks) {
        Welcome welcome;
        checks.Range("session", wire.session, 1, ~std::uint64_t{0});
        checks.Range("spin", wire.spin_ns, 0, kSpinNsMax);
        checks.Range("space", wire.space_bytes, 1, std::uint64_t{1} << 62);
        checks.Range("space base", wire.space_base, 0, (std::uint64_t{1} << 63) - 1);
        // The geometry is part of the version; it is sent so that a mismatch is seen here and
        // not as noise in the rings.
        checks.Range("command granules", wire.command_granules, kCommandGranules, kCommandGranules);
        checks.Range("completion granules", wire.completion_granules, kCompletionGranules,
                     kCompletionGranules);
        checks.Range("streams", wire.streams_max, kStreamsMax, kStreamsMax);
        checks.Range("modules", wire.modules_max, kModulesMax, kModulesMax);
        checks.Range("arenas", wire.arenas_max, kArenasMax, kArenasMax);
        checks.Range("arena bytes", wire.arena_bytes_default, kArenaBytesDefault,
                     kArenaBytesDefault);
        const std::uint64_t mapping = wire.mapping_base - wire.space_base;  // Wraps when below.
        if (wire.mapping_bytes != 0) {
          checks.Range("mapping area", mapping, 0, wire.space_bytes);
          checks.Range("mapping bytes", wire.mapping_bytes, 0,
                       wire.space_bytes - std::min(mapping, wire.space_bytes));
        }
        welcome.device = FromWire(wire.device, checks);
        welcome.generation = wire.generation;
        welcome.session = wire.session;
        welcome.spin_ns = wire.spin_ns;
        welcome.quota_bytes = wire.quota_bytes;
        welcome.space_base = wire.space_base;
        welcome.space_bytes = wire.space_bytes;
        welcome.arena_bytes_total_max = wire.arena_bytes_total_max;
        welcome.mapping_base = wire.mapping_base;
        welcome.mapping_bytes = wire.mapping_bytes;
        return welcome;
      });
}

template <>
Result<Refused> Decode(std::span<const std::byte> payload) {
  Result<CodeAndText> said = DecodeCodeAndText("refusal", payload);
  if (!said.ok()) return said.status();
  return Refused{Status(said->code, said->text)};
}

template <>
Result<Ended> Decode(std::span<const std::byte> payload) {
  Result<CodeAndText> said = DecodeCodeAndText("end of session", payload);
  if (!said.ok()) return said.status();
  return Ended{Status(said->code, said->text)};
}

template <>
Result<AdminReply> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("admin reply");
  ByteReader reader(payload);
  PageWire wire;
  checks.Fixed(reader, wire);
  checks.Range("is last", wire.is_last, 0, 1);
  checks.Zero("reserved", wire.reserved);
  const TextWire text{wire.code, wire.text_bytes};
  const Status said = TextFromWire(text, StatusCode::kOk, kPageTextBytesMax, reader, checks);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return AdminReply{said.code(), said.message(), wire.is_last == 1};
}

template <>
Result<MakeImage> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<MakeImage, MakeImageWire>(
      "image request", payload, [](const MakeImageWire& wire, MessageChecks& checks) {
        checks.Range("bytes", wire.bytes, 1, kModuleImageBytesMax);
        return MakeImage{wire.bytes};
      });
}

template <>
Result<ImageMade> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<ImageMade, ImageMadeWire>(
      "image", payload, [](const ImageMadeWire& wire, MessageChecks& checks) {
        checks.Range("bytes", wire.bytes, 1, kModuleImageBytesMax);
        return ImageMade{wire.bytes};
      });
}

template <>
Result<LoadModule> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<LoadModule, LoadModuleWire>(
      "module load", payload, [](const LoadModuleWire& wire, MessageChecks& checks) {
        checks.Range("module", wire.module, 0, kModulesMax - 1);
        checks.Zero("reserved", wire.reserved);
        checks.Range("bytes", wire.bytes, 1, kModuleImageBytesMax);
        return LoadModule{wire.module, wire.bytes};
      });
}

template <>
Result<ModuleLoaded> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("module description");
  ByteReader reader(payload);
  ModuleLoadedWire wire;
  checks.Fixed(reader, wire);
  checks.Range("module", wire.module, 0, kModulesMax - 1);
  checks.Range("kernels", wire.kernels, 0, kKernelsPerModuleMax);
  checks.Range("variables", wire.variables, 0, kVariablesPerModuleMax);
  checks.Zero("reserved", wire.reserved);
  ModuleLoaded loaded;
  loaded.module = wire.module;
  for (std::uint32_t i = 0; checks.ok() && i < wire.kernels; ++i) {
    loaded.kernels.push_back(ReadKernel(reader, checks));
  }
  for (std::uint32_t i = 0; checks.ok() && i < wire.variables; ++i) {
    loaded.variables.push_back(ReadVariable(reader, checks));
  }
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return loaded;
}

template <>
Result<UnloadModule> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<UnloadModule, UnloadModuleWire>(
      "module unload", payload, [](const UnloadModuleWire& wire, MessageChecks& checks) {
        checks.Range("module", wire.module, 0, kModulesMax - 1);
        checks.Zero("reserved", wire.reserved);
        return UnloadModule{wire.module};
      });
}

template <>
Result<Done> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("done");
  checks.End(ByteReader(payload));
  if (!checks.ok()) return checks.status();
  return Done{};
}

template <>
Result<ResizeMemory> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<ResizeMemory, ResizeMemoryWire>(
      "memory resize", payload, [](const ResizeMemoryWire& wire, MessageChecks& checks) {
        checks.Range("bytes", wire.bytes, 0, kResizeBytesMax);
        return ResizeMemory{wire.bytes};
      });
}

template <>
Result<MemoryResized> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<MemoryResized, MemoryResizedWire>(
      "memory size", payload, [](const MemoryResizedWire& wire, MessageChecks& checks) {
        checks.Range("mapped bytes", wire.mapped_bytes, 0, kResizeBytesMax);
        return MemoryResized{wire.mapped_bytes};
      });
}

template <>
Result<ChangeChunk> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<ChangeChunk, ChangeChunkWire>(
      "chunk change", payload, [](const ChangeChunkWire& wire, MessageChecks& checks) {
        checks.Range("action", wire.action, 1, 4);
        const auto action = static_cast<ChunkAction>(wire.action);
        const bool is_make = action == ChunkAction::kMake;
        const bool has_place = action == ChunkAction::kMap || action == ChunkAction::kUnmap;
        checks.Range("chunk", wire.chunk, 0, action == ChunkAction::kUnmap ? 0 : kChunksMax - 1);
        checks.Range("bytes", wire.bytes, is_make ? kChunkBytesStep : 0,
                     is_make ? kChunkBytesMax : 0);
        checks.Zero("odd bytes", wire.bytes % kChunkBytesStep);
        checks.Range("address", wire.address, 0, has_place ? (std::uint64_t{1} << 63) - 1 : 0);
        checks.Zero("odd address", wire.address % kChunkBytesStep);
        return ChangeChunk{action, wire.chunk, wire.bytes, wire.address};
      });
}

template <>
Result<SetKernelMemory> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<SetKernelMemory, SetKernelMemoryWire>(
      "kernel memory", payload, [](const SetKernelMemoryWire& wire, MessageChecks& checks) {
        checks.Range("stack bytes", wire.stack_bytes, 0, kStackBytesMax);
        checks.Range("printed bytes", wire.printed_bytes, 0, kPrintedBytesMax);
        checks.Range("heap bytes", wire.heap_bytes, 0, kResizeBytesMax);
        return SetKernelMemory{wire.stack_bytes, wire.printed_bytes, wire.heap_bytes};
      });
}

template <>
Result<AddArena> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<AddArena, AddArenaWire>(
      "arena request", payload, [](const AddArenaWire& wire, MessageChecks& checks) {
        checks.Range("bytes", wire.bytes, kArenaBytesStep, kArenaBytesMax);
        checks.Zero("bytes modulo the arena step", wire.bytes % kArenaBytesStep);
        return AddArena{wire.bytes};
      });
}

template <>
Result<TraceOpened> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<TraceOpened, TraceOpenedWire>(
      "trace", payload, [](const TraceOpenedWire& wire, MessageChecks& checks) {
        checks.Zero("reserved", wire.reserved);
        return TraceOpened{wire.layout, wire.generation};
      });
}

template <>
Result<ArenaAdded> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<ArenaAdded, ArenaAddedWire>(
      "arena", payload, [](const ArenaAddedWire& wire, MessageChecks& checks) {
        checks.Range("number", wire.arena, 0, kArenasMax - 1);
        checks.Zero("reserved", wire.reserved);
        checks.Range("bytes", wire.bytes, kArenaBytesStep, kArenaBytesMax);
        checks.Zero("bytes modulo the arena step", wire.bytes % kArenaBytesStep);
        return ArenaAdded{wire.arena, wire.bytes};
      });
}

template <>
Result<DescribeError> Decode(std::span<const std::byte> payload) {
  return DecodeFixed<DescribeError, DescribeErrorWire>(
      "error query", payload, [](const DescribeErrorWire& wire, MessageChecks& checks) {
        checks.Range("stream", wire.stream, 0, kStreamsMax - 1);
        checks.Zero("reserved", wire.reserved);
        return DescribeError{wire.stream};
      });
}

template <>
Result<ErrorText> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("error text");
  ByteReader reader(payload);
  ErrorTextWire wire;
  checks.Fixed(reader, wire);
  checks.Range("stream", wire.stream, 0, kStreamsMax - 1);
  checks.Zero("reserved", wire.reserved);
  const TextWire text{wire.code, wire.text_bytes};
  Status status = TextFromWire(text, StatusCode::kOk, kTextBytesMax, reader, checks);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return ErrorText{wire.stream, wire.sequence, std::move(status)};
}

template <>
Result<TakePrinted> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("request for printed text");
  checks.End(ByteReader(payload));
  if (!checks.ok()) return checks.status();
  return TakePrinted{};
}

template <>
Result<Printed> Decode(std::span<const std::byte> payload) {
  MessageChecks checks("printed text");
  ByteReader reader(payload);
  PrintedWire wire;
  checks.Fixed(reader, wire);
  checks.Range("dropped", wire.dropped, 0, wire.end);
  checks.Range(
      "text bytes", wire.text_bytes, 0,
      std::min<std::uint64_t>(wire.end - std::min(wire.dropped, wire.end), kPrintedTextBytesMax));
  checks.Zero("reserved", wire.reserved);
  Printed printed{.end = wire.end, .dropped = wire.dropped, .text = {}};
  if (checks.ok()) reader.GetRaw(printed.text, wire.text_bytes);
  checks.End(reader);
  if (!checks.ok()) return checks.status();
  return printed;
}

Status UnexpectedReply(const Frame& frame, MessageType wanted) {
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kRefused: {
      Result<Refused> refused = Decode<Refused>(frame.payload);
      return refused.ok() ? refused->status : refused.status();
    }
    case MessageType::kEnded: {
      Result<Ended> ended = Decode<Ended>(frame.payload);
      return ended.ok() ? ended->status : ended.status();
    }
    default:
      break;
  }
  return Status(StatusCode::kProtocolViolation,
                "reply refused: it is " + std::string(MessageTypeName(frame.type)) + ", expected " +
                    std::string(MessageTypeName(static_cast<std::uint16_t>(wanted))));
}

}  // namespace gpushared::ipc
