// SPDX-License-Identifier: Apache-2.0
// Copies between rows: mov, packing and unpacking of vectors, changes of row width.
#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

template <typename T>
T Same(T a) {
  return a;
}
template <typename D, typename A>
D Resize(A a) {
  return static_cast<D>(a);
}

// Combines {a, b, ...} into one value, with the first part in the lowest bits.
template <typename Whole, typename Part, u32 N>
const MicroOp* Pack(Warp& w, const MicroOp* op) {
  StoreLanes<Whole>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    u64 whole = 0;
    for (u32 i = 0; i < N; ++i) {
      whole |= static_cast<u64>(Get<Part>(w.frame + op->rows[i], l)) << (i * sizeof(Part) * 8);
    }
    return static_cast<Whole>(whole);
  });
  return op + 1;
}

template <typename Whole, typename Part, u32 N>
const MicroOp* Unpack(Warp& w, const MicroOp* op) {
  // The source is copied first, because a part may have the same row as the whole.
  alignas(64) Whole whole[kLanes];
  __builtin_memcpy(whole, w.frame + op->a, sizeof(whole));
  for (u32 i = 0; i < N; ++i) {
    StoreLanes<Part>(w.frame + op->rows[i], Lanes(w, op),
                     [&](u32 l) { return static_cast<Part>(whole[l] >> (i * sizeof(Part) * 8)); });
  }
  return op + 1;
}

const MicroOp* LocalAddress(Warp& w, const MicroOp* op) {
  const u64 address = w.local_base + static_cast<u64>(op->immediate);
  StoreLanes<u64>(w.frame + op->destination, Lanes(w, op), [&](u32) { return address; });
  return op + 1;
}

}  // namespace

void AddMoveOps(const OpSink& sink) {
  AddOp(sink, kRows, Unary<u16, u16, Same<u16>>, "mov.b16");
  AddOp(sink, kRows, Unary<u32, u32, Same<u32>>, "mov.b32");
  AddOp(sink, kRows, Unary<u64, u64, Same<u64>>, "mov.b64");
  AddOp(sink, kRows, Unary<u32, u64, Resize<u32, u64>>, "resize.b32.b64");
  AddOp(sink, kRows, Unary<u64, u32, Resize<u64, u32>>, "resize.u64.u32");
  AddOp(sink, kRows, Unary<s64, s32, Resize<s64, s32>>, "resize.s64.s32");
  AddOp(sink, kRows, Pack<u32, u16, 2>, "pack.b32.2");
  AddOp(sink, kRows, Pack<u32, u8, 4>, "pack.b32.4");
  AddOp(sink, kRows, Pack<u64, u32, 2>, "pack.b64.2");
  AddOp(sink, kRows, Pack<u64, u16, 4>, "pack.b64.4");
  AddOp(sink, kRows, Pack<u16, u8, 2>, "pack.b16.2");
  AddOp(sink, kRows, Unpack<u32, u16, 2>, "unpack.b32.2");
  AddOp(sink, kRows, Unpack<u32, u8, 4>, "unpack.b32.4");
  AddOp(sink, kRows, Unpack<u64, u32, 2>, "unpack.b64.2");
  AddOp(sink, kRows, Unpack<u64, u16, 4>, "unpack.b64.4");
  AddOp(sink, kRows, Unpack<u32, u8, 2>, "unpack.b16.2");
  AddOp(sink, kRows, LocalAddress, "local_address");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
