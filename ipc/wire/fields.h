// SPDX-License-Identifier: Apache-2.0
// The fields of every ring record and control message, as data. The tables cover each struct
// without a gap, which the compiler checks: so no padding carries old memory to a peer, and a
// new field cannot be forgotten by the tests that go through the tables.

#ifndef GPUSHARED_IPC_WIRE_FIELDS_H_
#define GPUSHARED_IPC_WIRE_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "ipc/wire/channel.h"
#include "ipc/wire/command.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/control.h"
#include "ipc/wire/frame.h"

namespace gpushared::ipc {

struct Field {
  std::string_view name;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::size_t element_bytes = 0;  // Smaller than `bytes` for arrays.
};

// WireFields<T>::kAll lists the fields of T in the order of their offsets.
template <typename Wire>
struct WireFields;

template <typename Wire>
constexpr bool FieldsTile() {
  std::size_t next = 0;
  for (const Field& field : WireFields<Wire>::kAll) {
    if (field.offset != next || field.bytes == 0) return false;
    next += field.bytes;
  }
  return next == sizeof(Wire);
}

static_assert(offsetof(RecordHeader, tag) == 0 && offsetof(RecordHeader, op) == 4 &&
              offsetof(RecordHeader, flags) == 5 && offsetof(RecordHeader, continuations) == 6 &&
              offsetof(RecordHeader, sequence) == 8);

// clang-format off
// offsetof and sizeof of a member cannot be had without a macro.
#define GPUSHARED_FIELD(Wire, member)                         \
  Field{#member, offsetof(Wire, member), sizeof(Wire::member), \
        sizeof(std::remove_all_extents_t<decltype(Wire::member)>)}
#define GPUSHARED_HEADER_FIELDS                                          \
  Field{"tag", 0, 4, 4}, Field{"op", 4, 1, 1}, Field{"flags", 5, 1, 1}, \
  Field{"continuations", 6, 2, 2}, Field{"sequence", 8, 8, 8}

template <>
struct WireFields<LaunchRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(LaunchRecord, stream),
      GPUSHARED_FIELD(LaunchRecord, module),
      GPUSHARED_FIELD(LaunchRecord, kernel),
      GPUSHARED_FIELD(LaunchRecord, grid),
      GPUSHARED_FIELD(LaunchRecord, block),
      GPUSHARED_FIELD(LaunchRecord, parameter_bytes),
      GPUSHARED_FIELD(LaunchRecord, dynamic_shared_bytes),
      GPUSHARED_FIELD(LaunchRecord, arena),
      GPUSHARED_FIELD(LaunchRecord, arena_offset),
      GPUSHARED_FIELD(LaunchRecord, cluster),
      GPUSHARED_FIELD(LaunchRecord, reserved),
  };
};
static_assert(FieldsTile<LaunchRecord>());

template <>
struct WireFields<CopyRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(CopyRecord, stream),
      GPUSHARED_FIELD(CopyRecord, arena),
      GPUSHARED_FIELD(CopyRecord, device_address),
      GPUSHARED_FIELD(CopyRecord, device_pitch_bytes),
      GPUSHARED_FIELD(CopyRecord, arena_offset),
      GPUSHARED_FIELD(CopyRecord, arena_pitch_bytes),
      GPUSHARED_FIELD(CopyRecord, width_bytes),
      GPUSHARED_FIELD(CopyRecord, height),
      GPUSHARED_FIELD(CopyRecord, reserved),
  };
};
static_assert(FieldsTile<CopyRecord>());

template <>
struct WireFields<CopyOnDeviceRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(CopyOnDeviceRecord, stream),
      GPUSHARED_FIELD(CopyOnDeviceRecord, height),
      GPUSHARED_FIELD(CopyOnDeviceRecord, destination),
      GPUSHARED_FIELD(CopyOnDeviceRecord, destination_pitch_bytes),
      GPUSHARED_FIELD(CopyOnDeviceRecord, source),
      GPUSHARED_FIELD(CopyOnDeviceRecord, source_pitch_bytes),
      GPUSHARED_FIELD(CopyOnDeviceRecord, width_bytes),
  };
};
static_assert(FieldsTile<CopyOnDeviceRecord>());

template <>
struct WireFields<FillRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(FillRecord, stream),
      GPUSHARED_FIELD(FillRecord, height),
      GPUSHARED_FIELD(FillRecord, destination),
      GPUSHARED_FIELD(FillRecord, pitch_bytes),
      GPUSHARED_FIELD(FillRecord, width_bytes),
      GPUSHARED_FIELD(FillRecord, value),
      GPUSHARED_FIELD(FillRecord, element_bytes),
      GPUSHARED_FIELD(FillRecord, reserved),
  };
};
static_assert(FieldsTile<FillRecord>());

template <>
struct WireFields<WaitForRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(WaitForRecord, stream),
      GPUSHARED_FIELD(WaitForRecord, wait_stream),
      GPUSHARED_FIELD(WaitForRecord, wait_sequence),
      GPUSHARED_FIELD(WaitForRecord, reserved),
  };
};
static_assert(FieldsTile<WaitForRecord>());

template <>
struct WireFields<RequestRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(RequestRecord, stream),
      GPUSHARED_FIELD(RequestRecord, reserved0),
      GPUSHARED_FIELD(RequestRecord, time_ns),
      GPUSHARED_FIELD(RequestRecord, reserved),
  };
};
static_assert(FieldsTile<RequestRecord>());

template <>
struct WireFields<GraphRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(GraphRecord, stream),
      GPUSHARED_FIELD(GraphRecord, graph),
      GPUSHARED_FIELD(GraphRecord, node),
      GPUSHARED_FIELD(GraphRecord, content_bytes),
      GPUSHARED_FIELD(GraphRecord, reserved),
  };
};
static_assert(FieldsTile<GraphRecord>());

template <>
struct WireFields<BufferRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(BufferRecord, stream),
      GPUSHARED_FIELD(BufferRecord, reserved0),
      GPUSHARED_FIELD(BufferRecord, address),
      GPUSHARED_FIELD(BufferRecord, bytes),
      GPUSHARED_FIELD(BufferRecord, reserved),
  };
};
static_assert(FieldsTile<BufferRecord>());

template <>
struct WireFields<PlainRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(PlainRecord, stream),
      GPUSHARED_FIELD(PlainRecord, reserved0),
      GPUSHARED_FIELD(PlainRecord, reserved),
  };
};
static_assert(FieldsTile<PlainRecord>());

template <>
struct WireFields<CompletionRecord> {
  static constexpr Field kAll[] = {
      GPUSHARED_HEADER_FIELDS,
      GPUSHARED_FIELD(CompletionRecord, stream),
      GPUSHARED_FIELD(CompletionRecord, code),
      GPUSHARED_FIELD(CompletionRecord, started_ns),
      GPUSHARED_FIELD(CompletionRecord, ended_ns),
      GPUSHARED_FIELD(CompletionRecord, fault),
      GPUSHARED_FIELD(CompletionRecord, reserved0),
      GPUSHARED_FIELD(CompletionRecord, reserved),
  };
};
static_assert(FieldsTile<CompletionRecord>());

template <>
struct WireFields<FrameHeader> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(FrameHeader, magic),
      GPUSHARED_FIELD(FrameHeader, type),
      GPUSHARED_FIELD(FrameHeader, reserved),
      GPUSHARED_FIELD(FrameHeader, request),
      GPUSHARED_FIELD(FrameHeader, payload_bytes),
  };
};
static_assert(FieldsTile<FrameHeader>());

template <>
struct WireFields<HelloWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(HelloWire, version),
      GPUSHARED_FIELD(HelloWire, client_class),
      GPUSHARED_FIELD(HelloWire, takes_printed),
      GPUSHARED_FIELD(HelloWire, reserved0),
      GPUSHARED_FIELD(HelloWire, weight),
      GPUSHARED_FIELD(HelloWire, max_share),
      GPUSHARED_FIELD(HelloWire, latency_promise_ns),
      GPUSHARED_FIELD(HelloWire, memory_bytes),
      GPUSHARED_FIELD(HelloWire, name),
      GPUSHARED_FIELD(HelloWire, device),
  };
};
static_assert(FieldsTile<HelloWire>());

template <>
struct WireFields<AdminWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(AdminWire, version),
      GPUSHARED_FIELD(AdminWire, verb),
      GPUSHARED_FIELD(AdminWire, client_class),
      GPUSHARED_FIELD(AdminWire, max_share),
      GPUSHARED_FIELD(AdminWire, weight),
      GPUSHARED_FIELD(AdminWire, text_bytes),
      GPUSHARED_FIELD(AdminWire, client),
      GPUSHARED_FIELD(AdminWire, request),
  };
};
static_assert(FieldsTile<AdminWire>());

template <>
struct WireFields<WhyWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(WhyWire, version),
      GPUSHARED_FIELD(WhyWire, reserved),
      GPUSHARED_FIELD(WhyWire, session),
  };
};
static_assert(FieldsTile<WhyWire>());

template <>
struct WireFields<DeviceWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(DeviceWire, memory_bytes),
      GPUSHARED_FIELD(DeviceWire, multiprocessors),
      GPUSHARED_FIELD(DeviceWire, threads_per_block_max),
      GPUSHARED_FIELD(DeviceWire, block_max),
      GPUSHARED_FIELD(DeviceWire, grid_max),
      GPUSHARED_FIELD(DeviceWire, shared_bytes_per_block_max),
      GPUSHARED_FIELD(DeviceWire, preemption),
      GPUSHARED_FIELD(DeviceWire, spinning_pays),
      GPUSHARED_FIELD(DeviceWire, reserved),
      GPUSHARED_FIELD(DeviceWire, name),
      GPUSHARED_FIELD(DeviceWire, id),
      GPUSHARED_FIELD(DeviceWire, kind),
      GPUSHARED_FIELD(DeviceWire, uuid),
      GPUSHARED_FIELD(DeviceWire, attributes),
      GPUSHARED_FIELD(DeviceWire, reserved1),
      GPUSHARED_FIELD(DeviceWire, table),
  };
};
static_assert(FieldsTile<DeviceWire>());

template <>
struct WireFields<ListDevicesWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ListDevicesWire, version),
      GPUSHARED_FIELD(ListDevicesWire, reserved),
  };
};
static_assert(FieldsTile<ListDevicesWire>());

template <>
struct WireFields<DeviceListWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(DeviceListWire, devices),
      GPUSHARED_FIELD(DeviceListWire, reserved),
  };
};
static_assert(FieldsTile<DeviceListWire>());

template <>
struct WireFields<WelcomeWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(WelcomeWire, version),
      GPUSHARED_FIELD(WelcomeWire, generation),
      GPUSHARED_FIELD(WelcomeWire, session),
      GPUSHARED_FIELD(WelcomeWire, spin_ns),
      GPUSHARED_FIELD(WelcomeWire, quota_bytes),
      GPUSHARED_FIELD(WelcomeWire, space_base),
      GPUSHARED_FIELD(WelcomeWire, space_bytes),
      GPUSHARED_FIELD(WelcomeWire, command_granules),
      GPUSHARED_FIELD(WelcomeWire, completion_granules),
      GPUSHARED_FIELD(WelcomeWire, streams_max),
      GPUSHARED_FIELD(WelcomeWire, modules_max),
      GPUSHARED_FIELD(WelcomeWire, arenas_max),
      GPUSHARED_FIELD(WelcomeWire, arena_bytes_default),
      GPUSHARED_FIELD(WelcomeWire, arena_bytes_total_max),
      GPUSHARED_FIELD(WelcomeWire, mapping_base),
      GPUSHARED_FIELD(WelcomeWire, mapping_bytes),
      GPUSHARED_FIELD(WelcomeWire, device),
  };
};
static_assert(FieldsTile<WelcomeWire>());

template <>
struct WireFields<TextWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(TextWire, code),
      GPUSHARED_FIELD(TextWire, text_bytes),
  };
};
static_assert(FieldsTile<TextWire>());

template <>
struct WireFields<PageWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(PageWire, code),
      GPUSHARED_FIELD(PageWire, text_bytes),
      GPUSHARED_FIELD(PageWire, is_last),
      GPUSHARED_FIELD(PageWire, reserved),
  };
};
static_assert(FieldsTile<PageWire>());

template <>
struct WireFields<MakeImageWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(MakeImageWire, bytes),
  };
};
static_assert(FieldsTile<MakeImageWire>());

template <>
struct WireFields<ImageMadeWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ImageMadeWire, bytes),
  };
};
static_assert(FieldsTile<ImageMadeWire>());

template <>
struct WireFields<LoadModuleWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(LoadModuleWire, module),
      GPUSHARED_FIELD(LoadModuleWire, reserved),
      GPUSHARED_FIELD(LoadModuleWire, bytes),
  };
};
static_assert(FieldsTile<LoadModuleWire>());

template <>
struct WireFields<ModuleLoadedWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ModuleLoadedWire, module),
      GPUSHARED_FIELD(ModuleLoadedWire, kernels),
      GPUSHARED_FIELD(ModuleLoadedWire, variables),
      GPUSHARED_FIELD(ModuleLoadedWire, reserved),
  };
};
static_assert(FieldsTile<ModuleLoadedWire>());

template <>
struct WireFields<UnloadModuleWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(UnloadModuleWire, module),
      GPUSHARED_FIELD(UnloadModuleWire, reserved),
  };
};
static_assert(FieldsTile<UnloadModuleWire>());

template <>
struct WireFields<ResizeMemoryWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ResizeMemoryWire, bytes),
  };
};
static_assert(FieldsTile<ResizeMemoryWire>());

template <>
struct WireFields<MemoryResizedWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(MemoryResizedWire, mapped_bytes),
  };
};
static_assert(FieldsTile<MemoryResizedWire>());

template <>
struct WireFields<ChangeChunkWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ChangeChunkWire, action),
      GPUSHARED_FIELD(ChangeChunkWire, chunk),
      GPUSHARED_FIELD(ChangeChunkWire, bytes),
      GPUSHARED_FIELD(ChangeChunkWire, address),
  };
};
static_assert(FieldsTile<ChangeChunkWire>());

template <>
struct WireFields<SetKernelMemoryWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(SetKernelMemoryWire, stack_bytes),
      GPUSHARED_FIELD(SetKernelMemoryWire, printed_bytes),
      GPUSHARED_FIELD(SetKernelMemoryWire, heap_bytes),
  };
};
static_assert(FieldsTile<SetKernelMemoryWire>());

template <>
struct WireFields<AddArenaWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(AddArenaWire, bytes),
  };
};
static_assert(FieldsTile<AddArenaWire>());

template <>
struct WireFields<TraceOpenedWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(TraceOpenedWire, layout),
      GPUSHARED_FIELD(TraceOpenedWire, generation),
      GPUSHARED_FIELD(TraceOpenedWire, reserved),
  };
};
static_assert(FieldsTile<TraceOpenedWire>());

template <>
struct WireFields<ArenaAddedWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ArenaAddedWire, arena),
      GPUSHARED_FIELD(ArenaAddedWire, reserved),
      GPUSHARED_FIELD(ArenaAddedWire, bytes),
  };
};
static_assert(FieldsTile<ArenaAddedWire>());

template <>
struct WireFields<DescribeErrorWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(DescribeErrorWire, stream),
      GPUSHARED_FIELD(DescribeErrorWire, reserved),
  };
};
static_assert(FieldsTile<DescribeErrorWire>());

template <>
struct WireFields<PrintedWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(PrintedWire, end),
      GPUSHARED_FIELD(PrintedWire, dropped),
      GPUSHARED_FIELD(PrintedWire, text_bytes),
      GPUSHARED_FIELD(PrintedWire, reserved),
  };
};
static_assert(FieldsTile<PrintedWire>());

template <>
struct WireFields<ErrorTextWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ErrorTextWire, stream),
      GPUSHARED_FIELD(ErrorTextWire, code),
      GPUSHARED_FIELD(ErrorTextWire, sequence),
      GPUSHARED_FIELD(ErrorTextWire, text_bytes),
      GPUSHARED_FIELD(ErrorTextWire, reserved),
  };
};
static_assert(FieldsTile<ErrorTextWire>());

template <>
struct WireFields<ReadyWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ReadyWire, version),
      GPUSHARED_FIELD(ReadyWire, generation),
      GPUSHARED_FIELD(ReadyWire, device),
  };
};
static_assert(FieldsTile<ReadyWire>());

template <>
struct WireFields<AttachWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(AttachWire, session),
      GPUSHARED_FIELD(AttachWire, pid),
      GPUSHARED_FIELD(AttachWire, uid),
      GPUSHARED_FIELD(AttachWire, gid),
      GPUSHARED_FIELD(AttachWire, request),
      GPUSHARED_FIELD(AttachWire, quota_bytes),
      GPUSHARED_FIELD(AttachWire, share_group),
      GPUSHARED_FIELD(AttachWire, rule_cap),
      GPUSHARED_FIELD(AttachWire, rule_share),
      GPUSHARED_FIELD(AttachWire, max_share),
      GPUSHARED_FIELD(AttachWire, weight_max),
      GPUSHARED_FIELD(AttachWire, weight),
      GPUSHARED_FIELD(AttachWire, allowed_class),
      GPUSHARED_FIELD(AttachWire, client_class),
      GPUSHARED_FIELD(AttachWire, isolation),
      GPUSHARED_FIELD(AttachWire, is_trusted),
      GPUSHARED_FIELD(AttachWire, entrance),
      GPUSHARED_FIELD(AttachWire, entrance_name),
      GPUSHARED_FIELD(AttachWire, guaranteed_bytes),
      GPUSHARED_FIELD(AttachWire, hello),
  };
};
static_assert(FieldsTile<AttachWire>());

template <>
struct WireFields<SessionWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(SessionWire, session),
  };
};
static_assert(FieldsTile<SessionWire>());

template <>
struct WireFields<TerminateSessionWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(TerminateSessionWire, session),
      GPUSHARED_FIELD(TerminateSessionWire, text_bytes),
      GPUSHARED_FIELD(TerminateSessionWire, reserved),
  };
};
static_assert(FieldsTile<TerminateSessionWire>());

template <>
struct WireFields<SessionEndedWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(SessionEndedWire, session),
      GPUSHARED_FIELD(SessionEndedWire, code),
      GPUSHARED_FIELD(SessionEndedWire, text_bytes),
  };
};
static_assert(FieldsTile<SessionEndedWire>());

template <>
struct WireFields<SetSessionWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(SetSessionWire, session),
      GPUSHARED_FIELD(SetSessionWire, weight),
      GPUSHARED_FIELD(SetSessionWire, client_class),
      GPUSHARED_FIELD(SetSessionWire, reserved),
      GPUSHARED_FIELD(SetSessionWire, max_share),
  };
};
static_assert(FieldsTile<SetSessionWire>());

template <>
struct WireFields<TakeOverWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(TakeOverWire, version),
      GPUSHARED_FIELD(TakeOverWire, reserved),
  };
};
static_assert(FieldsTile<TakeOverWire>());

template <>
struct WireFields<RosterWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(RosterWire, version),
      GPUSHARED_FIELD(RosterWire, generation),
      GPUSHARED_FIELD(RosterWire, made_by),
      GPUSHARED_FIELD(RosterWire, last_session),
      GPUSHARED_FIELD(RosterWire, sessions),
      GPUSHARED_FIELD(RosterWire, ends),
      GPUSHARED_FIELD(RosterWire, keeps),
      GPUSHARED_FIELD(RosterWire, reserved),
  };
};
static_assert(FieldsTile<RosterWire>());

template <>
struct WireFields<RosterSessionWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(RosterSessionWire, session),
      GPUSHARED_FIELD(RosterSessionWire, quota_bytes),
      GPUSHARED_FIELD(RosterSessionWire, age_ns),
      GPUSHARED_FIELD(RosterSessionWire, pid),
      GPUSHARED_FIELD(RosterSessionWire, uid),
      GPUSHARED_FIELD(RosterSessionWire, gid),
      GPUSHARED_FIELD(RosterSessionWire, entrance),
      GPUSHARED_FIELD(RosterSessionWire, weight),
      GPUSHARED_FIELD(RosterSessionWire, client_class),
      GPUSHARED_FIELD(RosterSessionWire, isolation),
      GPUSHARED_FIELD(RosterSessionWire, has_started),
      GPUSHARED_FIELD(RosterSessionWire, reserved),
      GPUSHARED_FIELD(RosterSessionWire, entrance_name),
      GPUSHARED_FIELD(RosterSessionWire, name),
      GPUSHARED_FIELD(RosterSessionWire, guaranteed_bytes),
  };
};
static_assert(FieldsTile<RosterSessionWire>());

template <>
struct WireFields<RosterEndWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(RosterEndWire, session),
      GPUSHARED_FIELD(RosterEndWire, pid),
      GPUSHARED_FIELD(RosterEndWire, uid),
      GPUSHARED_FIELD(RosterEndWire, code),
      GPUSHARED_FIELD(RosterEndWire, text_bytes),
  };
};
static_assert(FieldsTile<RosterEndWire>());

template <>
struct WireFields<KeepWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(KeepWire, entrance),
      GPUSHARED_FIELD(KeepWire, lessee_bytes),
      GPUSHARED_FIELD(KeepWire, terms_bytes),
      GPUSHARED_FIELD(KeepWire, reserved),
  };
};
static_assert(FieldsTile<KeepWire>());

template <>
struct WireFields<ForgetWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(ForgetWire, entrance),
      GPUSHARED_FIELD(ForgetWire, reserved),
  };
};
static_assert(FieldsTile<ForgetWire>());

template <>
struct WireFields<WatchWire> {
  static constexpr Field kAll[] = {
      GPUSHARED_FIELD(WatchWire, uid),
      GPUSHARED_FIELD(WatchWire, pid),
      GPUSHARED_FIELD(WatchWire, request),
      GPUSHARED_FIELD(WatchWire, is_operator),
      GPUSHARED_FIELD(WatchWire, reserved),
  };
};
static_assert(FieldsTile<WatchWire>());

// clang-format on

#undef GPUSHARED_FIELD
#undef GPUSHARED_HEADER_FIELDS

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_FIELDS_H_
