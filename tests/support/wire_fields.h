// SPDX-License-Identifier: Apache-2.0
// The fields of every message, ring record and frame header, for tests that iterate over them.

#ifndef GPUSHARED_TESTS_SUPPORT_WIRE_FIELDS_H_
#define GPUSHARED_TESTS_SUPPORT_WIRE_FIELDS_H_

#include <cstddef>
#include <type_traits>
#include <vector>

#include "gpushared/check.h"

#include "ipc/wire/channel.h"
#include "ipc/wire/command.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/control.h"
#include "ipc/wire/fields.h"
#include "ipc/wire/frame.h"

namespace gpushared::testing {

// Lists the members of a struct that is sent in its memory layout, in order, each with its name.
// They must cover the struct completely, so that a new member cannot be forgotten.
template <typename Struct>
class MemberList {
 public:
  MemberList& Add() { return *this; }
  template <typename Member, typename... More>
  MemberList& Add(const char* name, const Member& member, const More&... more) {
    const auto* at = reinterpret_cast<const std::byte*>(&member);
    const auto* start = reinterpret_cast<const std::byte*>(&struct_);
    Check(at == start + bytes_, "members are listed in order, all of them");
    fields_.push_back({name, bytes_, sizeof member, sizeof(std::remove_all_extents_t<Member>), ""});
    bytes_ += sizeof member;
    return Add(more...);
  }
  MemberList& AddHeader() {
    const ipc::RecordHeader& header = struct_.header;
    return Add("tag", header.tag, "op", header.op, "flags", header.flags, "continuations",
               header.continuations, "sequence", header.sequence, "stream", struct_.stream);
  }
  const Struct& members() const { return struct_; }
  std::vector<ipc::Field> Take() && {
    Check(bytes_ == sizeof(Struct), "all members are listed");
    return std::move(fields_);
  }

 private:
  Struct struct_;
  std::size_t bytes_ = 0;
  std::vector<ipc::Field> fields_;
};

inline void List(MemberList<ipc::LaunchRecord>& list) {
  const ipc::LaunchRecord& r = list.members();
  list.AddHeader().Add("module", r.module, "kernel", r.kernel, "grid", r.grid, "block", r.block,
                       "parameter_bytes", r.parameter_bytes, "dynamic_shared_bytes",
                       r.dynamic_shared_bytes, "staging_buffer", r.staging_buffer, "staging_offset",
                       r.staging_offset, "cluster", r.cluster, "reserved", r.reserved);
}
inline void List(MemberList<ipc::CopyRecord>& list) {
  const ipc::CopyRecord& r = list.members();
  list.AddHeader().Add("staging_buffer", r.staging_buffer, "device_address", r.device_address,
                       "device_pitch_bytes", r.device_pitch_bytes, "staging_offset",
                       r.staging_offset, "staging_pitch_bytes", r.staging_pitch_bytes,
                       "width_bytes", r.width_bytes, "height", r.height, "reserved", r.reserved);
}
inline void List(MemberList<ipc::CopyOnDeviceRecord>& list) {
  const ipc::CopyOnDeviceRecord& r = list.members();
  list.AddHeader().Add("height", r.height, "destination", r.destination, "destination_pitch_bytes",
                       r.destination_pitch_bytes, "source", r.source, "source_pitch_bytes",
                       r.source_pitch_bytes, "width_bytes", r.width_bytes);
}
inline void List(MemberList<ipc::FillRecord>& list) {
  const ipc::FillRecord& r = list.members();
  list.AddHeader().Add("height", r.height, "destination", r.destination, "pitch_bytes",
                       r.pitch_bytes, "width_bytes", r.width_bytes, "value", r.value,
                       "element_bytes", r.element_bytes, "reserved", r.reserved);
}
inline void List(MemberList<ipc::WaitForRecord>& list) {
  const ipc::WaitForRecord& r = list.members();
  list.AddHeader().Add("wait_stream", r.wait_stream, "wait_sequence", r.wait_sequence, "reserved",
                       r.reserved);
}
inline void List(MemberList<ipc::RequestRecord>& list) {
  const ipc::RequestRecord& r = list.members();
  list.AddHeader().Add("reserved0", r.reserved0, "time_ns", r.time_ns, "reserved", r.reserved);
}
inline void List(MemberList<ipc::GraphRecord>& list) {
  const ipc::GraphRecord& r = list.members();
  list.AddHeader().Add("graph", r.graph, "node", r.node, "content_bytes", r.content_bytes,
                       "reserved", r.reserved);
}
inline void List(MemberList<ipc::BufferRecord>& list) {
  const ipc::BufferRecord& r = list.members();
  list.AddHeader().Add("reserved0", r.reserved0, "address", r.address, "bytes", r.bytes, "reserved",
                       r.reserved);
}
inline void List(MemberList<ipc::PlainRecord>& list) {
  const ipc::PlainRecord& r = list.members();
  list.AddHeader().Add("reserved0", r.reserved0, "reserved", r.reserved);
}
inline void List(MemberList<ipc::CompletionRecord>& list) {
  const ipc::CompletionRecord& r = list.members();
  list.AddHeader().Add("code", r.code, "started_ns", r.started_ns, "ended_ns", r.ended_ns, "fault",
                       r.fault, "reserved0", r.reserved0, "reserved", r.reserved);
}
inline void List(MemberList<ipc::FrameHeader>& list) {
  const ipc::FrameHeader& h = list.members();
  list.Add("magic", h.magic, "type", h.type, "reserved", h.reserved, "request", h.request,
           "payload_bytes", h.payload_bytes);
}

// Returns the fields of T in the order of their offsets.
template <typename T>
const std::vector<ipc::Field>& GetFields() {
  if constexpr (requires(T value, ipc::Fields & fields) { value.Visit(fields); }) {
    return ipc::GetLayout<T>().fields;
  } else {
    static const std::vector<ipc::Field> fields = [] {
      MemberList<T> list;
      List(list);
      return std::move(list).Take();
    }();
    return fields;
  }
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_WIRE_FIELDS_H_
