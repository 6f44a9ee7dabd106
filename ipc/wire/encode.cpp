// SPDX-License-Identifier: Apache-2.0
// Values to bytes. The way back is in validate_control.cpp and validate_channel.cpp.
#include <algorithm>

#include "ipc/wire/bytes.h"
#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"
#include "ipc/wire/convert.h"

namespace gpushared::ipc {
namespace {

using Bytes = std::vector<std::byte>;

template <typename Wire>
Bytes Fixed(const Wire& wire) {
  ByteWriter writer;
  writer.Put(wire);
  return std::move(writer).Take();
}

Bytes Text(StatusCode code, std::string_view text, std::size_t bytes_max) {
  text = CutText(text, bytes_max);
  TextWire wire;
  wire.code = static_cast<std::uint32_t>(code);
  wire.text_bytes = static_cast<std::uint32_t>(text.size());
  ByteWriter writer;
  writer.Put(wire);
  writer.PutRaw(text);
  return std::move(writer).Take();
}

Bytes Page(StatusCode code, std::string_view text, bool is_last) {
  text = CutText(text, kPageTextBytesMax);
  PageWire wire;
  wire.code = static_cast<std::uint32_t>(code);
  wire.text_bytes = static_cast<std::uint32_t>(text.size());
  wire.is_last = is_last ? 1 : 0;
  ByteWriter writer;
  writer.Put(wire);
  writer.PutRaw(text);
  return std::move(writer).Take();
}

static_assert(kKeepClass == kClassNotSaid);
std::uint8_t ClassByte(const std::optional<ClientClass>& client_class) {
  return client_class ? static_cast<std::uint8_t>(*client_class) : kKeepClass;
}

}  // namespace

HelloWire ToWire(const Hello& hello) {
  HelloWire wire;
  wire.client_class = ClassByte(hello.client_class);
  wire.takes_printed = hello.takes_printed ? 1 : 0;
  wire.weight = hello.weight.value_or(0);
  wire.max_share = hello.max_share.value_or(0);
  wire.latency_promise_ns = hello.latency_promise_ns;
  wire.memory_bytes = hello.memory_bytes;
  PutFixedText(wire.name, hello.name);
  PutFixedText(wire.device, hello.device);
  return wire;
}

AdminWire ToWire(const Admin& admin) {
  AdminWire wire;
  wire.verb = static_cast<std::uint8_t>(admin.verb);
  wire.client_class = ClassByte(admin.client_class);
  wire.weight = admin.weight.value_or(0);
  wire.max_share = static_cast<std::uint16_t>(admin.max_share.value_or(0));
  wire.text_bytes = static_cast<std::uint32_t>(CutText(admin.terms, kLeaseTermsBytesMax).size());
  wire.client = admin.client;
  wire.request = admin.request;
  return wire;
}

DeviceWire ToWire(const DeviceDescription& device) {
  DeviceWire wire;
  wire.memory_bytes = device.memory_bytes;
  wire.multiprocessors = device.multiprocessors;
  wire.threads_per_block_max = device.threads_per_block_max;
  for (std::size_t i = 0; i < 3; ++i) {
    wire.block_max[i] = device.block_max[i];
    wire.grid_max[i] = device.grid_max[i];
  }
  wire.shared_bytes_per_block_max = device.shared_bytes_per_block_max;
  wire.preemption = device.preempts_within_command ? 1 : 0;
  wire.spinning_pays = device.spinning_pays ? 1 : 0;
  PutFixedText(wire.name, device.name);
  PutFixedText(wire.id, device.id);
  PutFixedText(wire.kind, device.kind);
  std::ranges::copy(device.uuid, wire.uuid);
  const std::size_t count = std::min<std::size_t>(device.attributes.size(), kDeviceAttributesMax);
  wire.attributes = static_cast<std::uint32_t>(count);
  std::copy_n(device.attributes.begin(), count, wire.table);
  return wire;
}

Bytes Encode(const Hello& hello) { return Fixed(ToWire(hello)); }

Bytes Encode(const Admin& admin) {
  ByteWriter writer;
  writer.Put(ToWire(admin));
  writer.PutRaw(CutText(admin.terms, kLeaseTermsBytesMax));
  return std::move(writer).Take();
}

Bytes Encode(const Why& why) {
  WhyWire wire;
  wire.session = why.session;
  return Fixed(wire);
}

Bytes Encode(const ListDevices&) { return Fixed(ListDevicesWire{}); }

Bytes Encode(const DeviceList& list) {
  const std::size_t count = std::min<std::size_t>(list.devices.size(), kDevicesListedMax);
  ByteWriter writer;
  writer.Put(DeviceListWire{static_cast<std::uint32_t>(count), 0});
  for (std::size_t i = 0; i < count; ++i) writer.Put(ToWire(list.devices[i]));
  return std::move(writer).Take();
}

Bytes Encode(const Welcome& welcome) {
  WelcomeWire wire;
  wire.generation = welcome.generation;
  wire.session = welcome.session;
  wire.spin_ns = welcome.spin_ns;
  wire.quota_bytes = welcome.quota_bytes;
  wire.space_base = welcome.space_base;
  wire.space_bytes = welcome.space_bytes;
  wire.arena_bytes_total_max = welcome.arena_bytes_total_max;
  wire.mapping_base = welcome.mapping_base;
  wire.mapping_bytes = welcome.mapping_bytes;
  wire.device = ToWire(welcome.device);
  return Fixed(wire);
}

Bytes Encode(const Refused& refused) {
  return Text(refused.status.code(), refused.status.message(), kTextBytesMax);
}
Bytes Encode(const Ended& ended) {
  return Text(ended.status.code(), ended.status.message(), kTextBytesMax);
}
Bytes Encode(const AdminReply& reply) { return Page(reply.code, reply.text, reply.is_last); }

std::string_view TakePage(std::string_view& rest) {
  std::string_view page = CutText(rest, kPageTextBytesMax);
  if (page.empty()) page = rest.substr(0, kPageTextBytesMax);
  rest.remove_prefix(page.size());
  return page;
}

Bytes Encode(const MakeImage& make) { return Fixed(MakeImageWire{make.bytes}); }
Bytes Encode(const ImageMade& made) { return Fixed(ImageMadeWire{made.bytes}); }

Bytes Encode(const LoadModule& load) {
  LoadModuleWire wire;
  wire.module = load.module;
  wire.bytes = load.bytes;
  return Fixed(wire);
}

Result<Bytes> Encode(const ModuleLoaded& loaded) {
  const auto over = [&](const std::string& what, std::size_t asked, std::size_t allowed) {
    return Status(StatusCode::kLimitExceeded, "module refused: " + what + " " +
                                                  std::to_string(asked) + ", allowed " +
                                                  std::to_string(allowed));
  };
  if (loaded.kernels.size() > kKernelsPerModuleMax) {
    return over("number of kernels is", loaded.kernels.size(), kKernelsPerModuleMax);
  }
  if (loaded.variables.size() > kVariablesPerModuleMax) {
    return over("number of variables is", loaded.variables.size(), kVariablesPerModuleMax);
  }
  ByteWriter writer;
  writer.Put(ModuleLoadedWire{loaded.module, static_cast<std::uint32_t>(loaded.kernels.size()),
                              static_cast<std::uint32_t>(loaded.variables.size()), 0});
  for (const KernelDescription& kernel : loaded.kernels) {
    if (kernel.name.size() > kSymbolNameBytesMax) {
      return over("bytes of a kernel's name are", kernel.name.size(), kSymbolNameBytesMax);
    }
    const std::string who = " of kernel '" + kernel.name + "' ";
    if (kernel.parameters.size() > kParametersPerKernelMax) {
      return over("number of parameters" + who + "is", kernel.parameters.size(),
                  kParametersPerKernelMax);
    }
    if (kernel.parameter_bytes > kParameterBytesMax) {
      return over("bytes of parameters" + who + "are", kernel.parameter_bytes, kParameterBytesMax);
    }
    writer.PutText(kernel.name, kSymbolNameBytesMax);
    writer.PutText(kernel.unsupported, kTextBytesMax);
    writer.Put(kernel.parameter_bytes);
    writer.Put(kernel.static_shared_bytes);
    writer.Put(kernel.threads_per_block_max);
    writer.Put(kernel.required_block);
    writer.Put(kernel.required_cluster);
    writer.Put(kernel.attributes);
    writer.Put(static_cast<std::uint32_t>(kernel.parameters.size()));
    for (const ParameterDescription& parameter : kernel.parameters) {
      writer.Put(parameter.offset);
      writer.Put(parameter.bytes);
    }
    if (writer.size() > kModuleReplyBytesMax) break;
  }
  for (const VariableDescription& variable : loaded.variables) {
    if (variable.name.size() > kSymbolNameBytesMax) {
      return over("bytes of a variable's name are", variable.name.size(), kSymbolNameBytesMax);
    }
    if (writer.size() > kModuleReplyBytesMax) break;
    writer.PutText(variable.name, kSymbolNameBytesMax);
    writer.Put(variable.address);
    writer.Put(variable.bytes);
    writer.Put(variable.space);
  }
  if (writer.size() > kModuleReplyBytesMax) {
    return over("bytes that describe its kernels and variables are at least", writer.size(),
                kModuleReplyBytesMax);
  }
  return std::move(writer).Take();
}

Bytes Encode(const UnloadModule& unload) { return Fixed(UnloadModuleWire{unload.module, 0}); }
Bytes Encode(const Done&) { return {}; }
Bytes Encode(const ResizeMemory& resize) { return Fixed(ResizeMemoryWire{resize.bytes}); }
Bytes Encode(const MemoryResized& resized) {
  return Fixed(MemoryResizedWire{resized.mapped_bytes});
}
Bytes Encode(const ChangeChunk& change) {
  return Fixed(ChangeChunkWire{.action = static_cast<std::uint32_t>(change.action),
                               .chunk = change.chunk,
                               .bytes = change.bytes,
                               .address = change.address});
}
Bytes Encode(const SetKernelMemory& set) {
  return Fixed(SetKernelMemoryWire{set.stack_bytes, set.printed_bytes, set.heap_bytes});
}
Bytes Encode(const AddArena& add) { return Fixed(AddArenaWire{add.bytes}); }
Bytes Encode(const TraceOpened& opened) {
  return Fixed(TraceOpenedWire{opened.layout, opened.generation, 0});
}
Bytes Encode(const ArenaAdded& added) { return Fixed(ArenaAddedWire{added.arena, 0, added.bytes}); }
Bytes Encode(const DescribeError& describe) { return Fixed(DescribeErrorWire{describe.stream, 0}); }

Bytes Encode(const ErrorText& error) {
  const std::string_view text = CutText(error.status.message(), kTextBytesMax);
  ErrorTextWire wire;
  wire.stream = error.stream;
  wire.code = static_cast<std::uint32_t>(error.status.code());
  wire.sequence = error.sequence;
  wire.text_bytes = static_cast<std::uint32_t>(text.size());
  ByteWriter writer;
  writer.Put(wire);
  writer.PutRaw(text);
  return std::move(writer).Take();
}

Bytes Encode(const TakePrinted&) { return {}; }

Bytes Encode(const Printed& printed) {
  const std::string_view text = std::string_view(printed.text).substr(0, kPrintedTextBytesMax);
  ByteWriter writer;
  writer.Put(PrintedWire{printed.end, printed.dropped, static_cast<std::uint32_t>(text.size()), 0});
  writer.PutRaw(text);
  return std::move(writer).Take();
}

Bytes Encode(const Ready& ready) {
  ReadyWire wire;
  wire.generation = ready.generation;
  wire.device = ToWire(ready.device);
  return Fixed(wire);
}

Bytes Encode(const Attach& attach) {
  AttachWire wire;
  wire.session = attach.session;
  wire.pid = attach.peer.pid;
  wire.uid = attach.peer.uid;
  wire.gid = attach.peer.gid;
  wire.request = attach.request;
  wire.quota_bytes = attach.quota_bytes;
  wire.guaranteed_bytes = attach.guaranteed_bytes;
  wire.share_group = attach.share_group;
  wire.rule_cap = attach.rule_cap;
  wire.rule_share = attach.rule_share;
  wire.max_share = attach.max_share;
  wire.weight_max = attach.weight_max;
  wire.weight = attach.weight;
  wire.allowed_class = static_cast<std::uint8_t>(attach.allowed_class);
  wire.client_class = static_cast<std::uint8_t>(attach.client_class);
  wire.isolation = attach.isolation;
  wire.is_trusted = attach.is_trusted ? 1 : 0;
  wire.entrance = attach.entrance;
  PutFixedText(wire.entrance_name, attach.entrance_name);
  wire.hello = ToWire(attach.hello);
  return Fixed(wire);
}

Bytes Encode(const SessionStarted& started) { return Fixed(SessionWire{started.session}); }

Bytes Encode(const TerminateSession& terminate) {
  const std::string_view text = CutText(terminate.why, kTextBytesMax);
  TerminateSessionWire wire;
  wire.session = terminate.session;
  wire.text_bytes = static_cast<std::uint32_t>(text.size());
  ByteWriter writer;
  writer.Put(wire);
  writer.PutRaw(text);
  return std::move(writer).Take();
}

Bytes Encode(const SessionEnded& ended) {
  const std::string_view text = CutText(ended.status.message(), kTextBytesMax);
  SessionEndedWire wire;
  wire.session = ended.session;
  wire.code = static_cast<std::uint32_t>(ended.status.code());
  wire.text_bytes = static_cast<std::uint32_t>(text.size());
  ByteWriter writer;
  writer.Put(wire);
  writer.PutRaw(text);
  return std::move(writer).Take();
}

Bytes Encode(const AdminRequest& request) { return Encode(request.admin); }
Bytes Encode(const ChannelReply& reply) { return Page(reply.code, reply.text, reply.is_last); }
Bytes Encode(const Drain&) { return {}; }
Bytes Encode(const Resume&) { return {}; }

Bytes Encode(const SetSession& set) {
  SetSessionWire wire;
  wire.session = set.session;
  wire.weight = set.weight.value_or(0);
  wire.max_share = static_cast<std::uint16_t>(set.max_share.value_or(0));
  wire.client_class = ClassByte(set.client_class);
  return Fixed(wire);
}

Bytes Encode(const TakeOver& take) { return Fixed(TakeOverWire{take.version, 0}); }

Bytes Encode(const Roster& roster) {
  RosterWire wire;
  wire.generation = roster.generation;
  wire.made_by = roster.made_by;
  wire.last_session = roster.last_session;
  wire.sessions = roster.sessions;
  wire.ends = roster.ends;
  wire.keeps = roster.keeps;
  return Fixed(wire);
}

Bytes Encode(const RosterSession& session) {
  RosterSessionWire wire;
  wire.session = session.session;
  wire.quota_bytes = session.quota_bytes;
  wire.guaranteed_bytes = session.guaranteed_bytes;
  wire.age_ns = session.age_ns;
  wire.pid = session.peer.pid;
  wire.uid = session.peer.uid;
  wire.gid = session.peer.gid;
  wire.entrance = session.entrance;
  wire.weight = session.weight;
  wire.client_class = static_cast<std::uint8_t>(session.client_class);
  wire.isolation = session.isolation;
  wire.has_started = session.has_started ? 1 : 0;
  PutFixedText(wire.entrance_name, session.entrance_name);
  PutFixedText(wire.name, session.name);
  return Fixed(wire);
}

Bytes Encode(const RosterEnd& end) {
  const std::string_view text = CutText(end.status.message(), kTextBytesMax);
  RosterEndWire wire;
  wire.session = end.session;
  wire.pid = end.pid;
  wire.uid = end.uid;
  wire.code = static_cast<std::uint32_t>(end.status.code());
  wire.text_bytes = static_cast<std::uint32_t>(text.size());
  ByteWriter writer;
  writer.Put(wire);
  writer.PutRaw(text);
  return std::move(writer).Take();
}

Bytes Encode(const Keep& keep) {
  const std::string_view lessee = CutText(keep.lessee, kNameBytes);
  const std::string_view terms = CutText(keep.terms, kLeaseTermsBytesMax);
  ByteWriter writer;
  writer.Put(KeepWire{keep.entrance, static_cast<std::uint32_t>(lessee.size()),
                      static_cast<std::uint32_t>(terms.size()), 0});
  writer.PutRaw(lessee);
  writer.PutRaw(terms);
  return std::move(writer).Take();
}

Bytes Encode(const Kept& kept) { return Encode(kept.lease); }

Bytes Encode(const Forget& forget) { return Fixed(ForgetWire{forget.entrance, 0}); }

Bytes Encode(const Watch& watch) {
  WatchWire wire;
  wire.uid = watch.uid;
  wire.pid = watch.pid;
  wire.request = watch.request;
  wire.is_operator = watch.is_operator ? 1 : 0;
  return Fixed(wire);
}

}  // namespace gpushared::ipc
