// SPDX-License-Identifier: Apache-2.0
// tex, tld4, suld and sust. The handle is the address of a record in the client's memory
// (gpushared/texture_record.h), which a kernel may forge or change at any time. Therefore each
// operation copies the record, validates the copy, and checks each texel access like a load.
//
// Sampling follows the CUDA C++ Programming Guide, appendix "Texture Fetching": linear filtering
// weighs texels in steps of 1/256. Sums are computed in double and rounded once.
#include "gpushared/texture_record.h"

#include "server/device/cpu/executor/ops/half_float.h"
#include "server/device/cpu/executor/ops/memory.h"
#include "server/device/cpu/executor/surface_access.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// Cost of a sample, which takes 1 to 8 us, as a number of rounds of a short loop (Charged).
constexpr s32 kSampleBranches = 32;
constexpr u32 kAxes = 3, kChannels = 4;
// Limit for positions, which is outside of every texture.
constexpr double kFar = static_cast<double>(u64{1} << 50);

u32 ChannelBytes(TexelFormat format) {
  switch (format) {
    case TexelFormat::kUint8:
    case TexelFormat::kInt8:
      return 1;
    case TexelFormat::kUint16:
    case TexelFormat::kInt16:
    case TexelFormat::kFloat16:
      return 2;
    case TexelFormat::kUint32:
    case TexelFormat::kInt32:
    case TexelFormat::kFloat32:
      return 4;
  }
  return 0;
}
u32 TexelBytes(const TextureRecord& record) {
  return ChannelBytes(record.format) * record.channels;
}

bool IsValid(const TextureRecord& record) {
  const u32 channel_bytes = ChannelBytes(record.format);
  const bool is_float =
      record.format == TexelFormat::kFloat16 || record.format == TexelFormat::kFloat32;
  bool fits = record.magic == TextureRecord::kMagic && channel_bytes != 0 &&
              (record.channels == 1 || record.channels == 2 || record.channels == 4) &&
              record.filter <= TextureFilter::kLinear && record.normalised_coordinates <= 1 &&
              record.normalised_values <= 1;
  for (const u32 extent : record.extents) fits &= extent >= 1;
  for (const TextureAddressMode mode : record.address_modes) {
    fits &= mode <= TextureAddressMode::kBorder;
  }
  if (record.normalised_values != 0) fits &= !is_float && channel_bytes < 4;
  if (record.filter == TextureFilter::kLinear) fits &= is_float || record.normalised_values != 0;
  return fits;
}

// The records that one operation uses. Keeps a copy of the last one, because most lanes have the
// same handle.
class Records {
 public:
  // Returns the record of the handle in the lane's register; null after raising a fault.
  const TextureRecord* Of(Warp& w, const MicroOp* op, u32 lane) {
    const u64 handle = Get<u64>(w.frame + op->a, lane);
    if (is_read_ && handle == handle_) return &record_;
    const std::byte* const from = Checked<Space::kGlobal>(w, op, lane, handle, sizeof record_);
    if (from == nullptr) return nullptr;
    // Each word is read exactly once, so that the values that are used are those that were
    // validated.
    alignas(TextureRecord) std::byte copy[sizeof record_];
    for (u32 at = 0; at < sizeof record_; at += 8) LoadWhole<8>(copy + at, from + at);
    __builtin_memcpy(&record_, copy, sizeof record_);
    handle_ = handle;
    is_read_ = IsValid(record_);
    if (is_read_) return &record_;
    RaiseFault(w, op, Fault::Kind::kTextureRecord, lane, handle, sizeof record_);
    return nullptr;
  }

 private:
  TextureRecord record_;
  u64 handle_ = 0;
  bool is_read_ = false;
};

// Texels that a sample reads along one axis.
struct Taps {
  static constexpr s64 kBorder = -1;
  s64 texels[2] = {};
  u32 weight = 0;  // Weight of the second texel in 1/256; the first texel has the rest.
};

// Maps index `at` to a texel.
s64 Addressed(TextureAddressMode mode, s64 at, s64 extent) {
  if (at >= 0 && at < extent) return at;
  if (mode == TextureAddressMode::kBorder) return Taps::kBorder;
  if (mode == TextureAddressMode::kWrap) return (at % extent + extent) % extent;
  return at < 0 ? 0 : extent - 1;  // Mirrored coordinates were already folded.
}

TextureAddressMode UnnormalisedMode(TextureAddressMode mode) {
  return mode == TextureAddressMode::kBorder ? mode : TextureAddressMode::kClamp;
}

// Clamps the value; NaN is treated as `least`.
double Between(double least, double value, double most) {
  return value >= least ? (value <= most ? value : most) : least;
}

// Selects the texels for a floating-point coordinate: one texel, or the two next to the position.
Taps TapsBy(TextureFilter filter, const TextureRecord& record, u32 axis, float coordinate) {
  const s64 extent = record.extents[axis];
  TextureAddressMode mode = record.address_modes[axis];
  double at = Between(-kFar, coordinate, kFar);
  if (record.normalised_coordinates != 0) {
    const double whole = __builtin_floor(at);
    if (mode == TextureAddressMode::kWrap || mode == TextureAddressMode::kMirror) at -= whole;
    const bool is_odd = (static_cast<s64>(whole) & 1) != 0;
    if (mode == TextureAddressMode::kMirror && is_odd) at = 1 - at;
    at = Between(-kFar, at * static_cast<double>(extent), kFar);
  } else {
    mode = UnnormalisedMode(mode);
  }
  if (filter == TextureFilter::kPoint) {
    return {.texels = {Addressed(mode, static_cast<s64>(__builtin_floor(at)), extent)}};
  }
  const s64 fixed = static_cast<s64>(__builtin_floor((at - 0.5) * 256 + 0.5));
  const s64 first = fixed >> 8;
  return {.texels = {Addressed(mode, first, extent), Addressed(mode, first + 1, extent)},
          .weight = static_cast<u32>(fixed & 255)};
}

Taps TapsAt(const TextureRecord& record, u32 axis, float coordinate) {
  return TapsBy(record.filter, record, axis, coordinate);
}

// Selects the texel for an integer coordinate, regardless of the filter and of normalized
// coordinates.
Taps TapsAt(const TextureRecord& record, u32 axis, s32 coordinate) {
  const TextureAddressMode mode = UnnormalisedMode(record.address_modes[axis]);
  return {.texels = {Addressed(mode, coordinate, record.extents[axis])}};
}

// Converts a channel to register format. `one` is the integer that represents 1.
template <typename T>
u32 IntegerBits(T value, float one, bool is_normalised) {
  if (!is_normalised) return static_cast<u32>(value);  // The cast sign-extends signed types.
  const float fraction = static_cast<float>(value) / one;
  return Bits<u32>(fraction < -1.0f ? -1.0f : fraction);
}

// Returns a channel in register format.
u32 ChannelBits(const std::byte* from, const TextureRecord& record) {
  const bool is_normalised = record.normalised_values != 0;
  switch (record.format) {
    case TexelFormat::kUint8:
      return IntegerBits(Read<u8>(from), 255, is_normalised);
    case TexelFormat::kInt8:
      return IntegerBits(Read<s8>(from), 127, is_normalised);
    case TexelFormat::kUint16:
      return IntegerBits(Read<u16>(from), 65535, is_normalised);
    case TexelFormat::kInt16:
      return IntegerBits(Read<s16>(from), 32767, is_normalised);
    case TexelFormat::kFloat16:
      return Bits<u32>(ToFloat(Read<_Float16>(from)));
    default:
      return Read<u32>(from);
  }
}

struct Texel {
  u32 channels[kChannels] = {};
};

// Reads one texel; a negative index selects the border. Returns false after raising a fault.
bool ReadTexel(Warp& w, const MicroOp* op, u32 lane, const TextureRecord& record,
               const s64 (&at)[kAxes], Texel& texel) {
  if (at[0] < 0 || at[1] < 0 || at[2] < 0) {
    for (u32 i = 0; i < record.channels; ++i) texel.channels[i] = record.border[i];
    return true;
  }
  const u32 bytes = TexelBytes(record);
  // The result is validated, because extents and pitches may be forged.
  const u64 address = record.address + static_cast<u64>(at[2]) * record.slice_bytes +
                      static_cast<u64>(at[1]) * record.row_bytes + static_cast<u64>(at[0]) * bytes;
  const std::byte* const from = Checked<Space::kGlobal>(w, op, lane, address, bytes);
  if (from == nullptr) return false;
  for (u32 i = 0; i < record.channels; ++i) {
    texel.channels[i] = ChannelBits(from + u64{i} * ChannelBytes(record.format), record);
  }
  return true;
}

// Returns the weighted mean of up to eight texels. Texels with weight zero are not read. Returns
// false after raising a fault.
bool Mix(Warp& w, const MicroOp* op, u32 lane, const TextureRecord& record,
         const Taps (&taps)[kAxes], Texel& mixed) {
  double sums[kChannels] = {};
  for (u32 corner = 0; corner < 8; ++corner) {
    s64 at[kAxes];
    double weight = 1;
    for (u32 axis = 0; axis < kAxes; ++axis) {
      const bool is_second = (corner >> axis & 1) != 0;
      const u32 parts = is_second ? taps[axis].weight : 256 - taps[axis].weight;
      at[axis] = taps[axis].texels[is_second ? 1 : 0];
      weight *= parts / 256.0;
    }
    if (weight == 0) continue;
    Texel texel;
    if (!ReadTexel(w, op, lane, record, at, texel)) return false;
    for (u32 i = 0; i < kChannels; ++i) {
      sums[i] += weight * static_cast<double>(Bits<float>(texel.channels[i]));
    }
  }
  for (u32 i = 0; i < kChannels; ++i) mixed.channels[i] = Bits<u32>(static_cast<float>(sums[i]));
  return true;
}

template <u32 kDimensions, typename Coordinate>
const MicroOp* Sample(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  const u32 rows[kAxes] = {op->b, op->c, op->extra};
  Records records;
  Texel texels[kLanes];
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    const TextureRecord* const record = records.Of(w, op, l);
    if (record == nullptr) return nullptr;
    Taps taps[kAxes];
    for (u32 axis = 0; axis < kDimensions; ++axis) {
      taps[axis] = TapsAt(*record, axis, Get<Coordinate>(w.frame + rows[axis], l));
    }
    const bool mixes =
        std::is_same_v<Coordinate, float> && record->filter == TextureFilter::kLinear;
    const s64 at[kAxes] = {taps[0].texels[0], taps[1].texels[0], taps[2].texels[0]};
    const bool is_read = mixes ? Mix(w, op, l, *record, taps, texels[l])
                               : ReadTexel(w, op, l, *record, at, texels[l]);
    if (!is_read) return nullptr;
  }
  // Results are written last, because a destination may be a row of coordinates.
  for (u32 i = 0; i < kChannels; ++i) {
    StoreEachLane<u32>(w.frame + op->rows[i], lanes, [&](u32 l) { return texels[l].channels[i]; });
  }
  return Charged(w, op, kSampleBranches);
}

// Reads one channel, selected by the immediate, of the four texels that a linear filter would use:
// counterclockwise from the lower left, which has the first column and the second row.
const MicroOp* Gather(Warp& w, const MicroOp* op) {
  constexpr u32 kX[4] = {0, 1, 1, 0}, kY[4] = {1, 1, 0, 0};
  const u32 lanes = Lanes(w, op);
  const u32 channel = static_cast<u32>(op->immediate) % kChannels;
  Records records;
  Texel gathered[kLanes];
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    const TextureRecord* const record = records.Of(w, op, l);
    if (record == nullptr) return nullptr;
    const Taps x = TapsBy(TextureFilter::kLinear, *record, 0, Get<float>(w.frame + op->b, l));
    const Taps y = TapsBy(TextureFilter::kLinear, *record, 1, Get<float>(w.frame + op->c, l));
    for (u32 i = 0; i < 4; ++i) {
      const s64 at[kAxes] = {x.texels[kX[i]], y.texels[kY[i]], 0};
      Texel texel;
      if (!ReadTexel(w, op, l, *record, at, texel)) return nullptr;
      gathered[l].channels[i] = texel.channels[channel];
    }
  }
  for (u32 i = 0; i < 4; ++i) {
    StoreEachLane<u32>(w.frame + op->rows[i], lanes,
                       [&](u32 l) { return gathered[l].channels[i]; });
  }
  return Charged(w, op, kSampleBranches);
}

// Finds the part of a surface that a lane accesses: no part if its coordinates are outside with
// SurfaceBounds::kZero. Returns false after raising a fault.
template <u32 kDimensions>
bool FindOnSurface(Warp& w, const MicroOp* op, u32 lane, Records& records,
                   const SurfaceAccess& access, std::byte*& found) {
  found = nullptr;
  const TextureRecord* const record = records.Of(w, op, lane);
  if (record == nullptr) return false;
  const u32 rows[kAxes] = {op->b, op->c, op->extra};
  const u32 bytes = access.element_bytes * access.elements;
  const u64 pitches[kAxes] = {1, record->row_bytes, record->slice_bytes};
  u64 address = record->address;
  for (u32 axis = 0; axis < kDimensions; ++axis) {
    // x counts bytes.
    const s64 last = axis == 0 ? s64{record->extents[0]} * TexelBytes(*record) - bytes
                               : s64{record->extents[axis]} - 1;
    s64 at = Get<s32>(w.frame + rows[axis], lane);
    const bool is_outside = at < 0 || at > last;
    if (is_outside && access.bounds == SurfaceBounds::kZero) return true;
    if (is_outside && (access.bounds == SurfaceBounds::kTrap || last < 0)) {
      RaiseFault(w, op, Fault::Kind::kSurfaceCoordinate, lane, static_cast<u64>(at), axis);
      return false;
    }
    if (is_outside) at = at < 0 ? 0 : last;
    address += static_cast<u64>(at) * pitches[axis];
  }
  found = Checked<Space::kGlobal>(w, op, lane, address, bytes);
  return found != nullptr;
}

// Calls visit(T{}, row, offset) for each element of the access.
template <typename Visit>
void VisitElements(const MicroOp* op, const SurfaceAccess& access, Visit visit) {
  for (u32 i = 0; i < access.elements; ++i) {
    const u32 row = op->rows[i], offset = i * access.element_bytes;
    if (access.element_bytes == 1) visit(u8{}, row, offset);
    if (access.element_bytes == 2) visit(u16{}, row, offset);
    if (access.element_bytes == 4) visit(u32{}, row, offset);
    if (access.element_bytes == 8) visit(u64{}, row, offset);
  }
}

template <u32 kDimensions, bool kLoads>
const MicroOp* ReachSurface(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  const SurfaceAccess access = SurfaceAccess::Of(op->immediate);
  Records records;
  std::byte* host[kLanes] = {};
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    if (!FindOnSurface<kDimensions>(w, op, l, records, access, host[l])) return nullptr;
  }
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    VisitElements(op, access, [&](auto zero, u32 row, u32 offset) {
      using T = decltype(zero);
      if constexpr (kLoads) {
        Put<T>(w.frame + row, l, host[l] == nullptr ? zero : Read<T>(host[l] + offset));
      } else if (host[l] != nullptr) {
        Write<T>(host[l] + offset, Get<T>(w.frame + row, l));
      }
    });
  }
  return Charged(w, op, kSampleBranches);
}

template <u32 kDimensions>
void AddDimensions(const OpSink& sink, const char* dimensions) {
  AddOp(sink, kFifthRow, Sample<kDimensions, float>, "tex", dimensions, "f32");
  AddOp(sink, kFifthRow, Sample<kDimensions, s32>, "tex", dimensions, "s32");
  AddOp(sink, OpRule(OpRule::kSurface), ReachSurface<kDimensions, true>, "suld", dimensions);
  AddOp(sink, OpRule(OpRule::kSurface), ReachSurface<kDimensions, false>, "sust", dimensions);
}

}  // namespace

void AddTextureOps(const OpSink& sink) {
  AddDimensions<1>(sink, "1d");
  AddDimensions<2>(sink, "2d");
  AddDimensions<3>(sink, "3d");
  AddOp(sink, kRows, Gather, "tld4.2d");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
