// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces. An object is a record in device memory, which the device reads when a
// kernel samples (gpushared/texture_record.h).
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/device_attributes.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

std::size_t Limit(const Current& current, Attribute id) {
  const DeviceProperties& device = Driver::Get().DeviceAt(current->ordinal())->properties();
  return static_cast<std::size_t>(AttributeFor(device, id));
}

Code CheckDevice(const Current& current) {
  if (!current.ok()) return current.code();
  if (Limit(current, Attribute::kTexture1dWidthMax) != 0) return Code::kSuccess;
  return Reject(Code::kNotSupported, "texture rejected: this device does not support textures");
}

bool IsDeviceMemory(const Current& current, DevicePointer address, std::size_t bytes) {
  return current->session().addresses().IsDevice(address, bytes);
}

// PlaceLinear, PlacePitched and PlaceArray write the location and the extents of the texels to the
// record.
Code PlaceLinear(const Current& current, const TextureResource::Linear& linear,
                 TextureRecord& record, TexelType& texel) {
  const std::optional<TexelType> type = GetTexelType(linear.format, linear.channels);
  if (!type || linear.address % type->bytes() != 0) return Code::kInvalidValue;
  const std::size_t texels = linear.bytes / type->bytes();
  if (texels == 0 || texels > Limit(current, Attribute::kTexture1dLinearWidthMax)) {
    return Code::kInvalidValue;
  }
  if (!IsDeviceMemory(current, linear.address, linear.bytes)) return Code::kInvalidValue;
  texel = *type;
  record.address = linear.address;
  record.extents[0] = static_cast<std::uint32_t>(texels);
  return Code::kSuccess;
}

Code PlacePitched(const Current& current, const TextureResource::Pitched& pitched,
                  TextureRecord& record, TexelType& texel) {
  const std::optional<TexelType> type = GetTexelType(pitched.format, pitched.channels);
  if (!type || pitched.address % type->bytes() != 0) return Code::kInvalidValue;
  const auto within = [](std::size_t value, std::size_t most) {
    return value >= 1 && value <= most;
  };
  if (!within(pitched.width, Limit(current, Attribute::kTexture2dLinearWidthMax)) ||
      !within(pitched.height, Limit(current, Attribute::kTexture2dLinearHeightMax)) ||
      !within(pitched.pitch_bytes, Limit(current, Attribute::kTexture2dLinearPitchBytesMax))) {
    return Code::kInvalidValue;
  }
  const std::size_t row_bytes = pitched.width * type->bytes();
  if (pitched.pitch_bytes < row_bytes || pitched.pitch_bytes % type->bytes() != 0 ||
      !IsDeviceMemory(current, pitched.address,
                      (pitched.height - 1) * pitched.pitch_bytes + row_bytes)) {
    return Code::kInvalidValue;
  }
  texel = *type;
  record.address = pitched.address;
  record.extents[0] = static_cast<std::uint32_t>(pitched.width);
  record.extents[1] = static_cast<std::uint32_t>(pitched.height);
  record.row_bytes = static_cast<std::uint32_t>(pitched.pitch_bytes);
  return Code::kSuccess;
}

void PlaceArray(const CudaArray& array, TextureRecord& record) {
  record.address = array.memory.address();
  for (int axis = 0; axis < 3; ++axis) {
    record.extents[axis] = static_cast<std::uint32_t>(array.Extent(axis));
  }
  record.row_bytes = static_cast<std::uint32_t>(array.row_bytes());
  record.slice_bytes = array.slice_bytes();
}

Code Place(const Current& current, const TextureResource& resource, TextureRecord& record,
           TexelType& texel) {
  if (resource.flags != 0) return Code::kInvalidValue;
  for (std::uint32_t& extent : record.extents) extent = 1;
  switch (resource.type) {
    case TextureResource::kArray: {
      const std::shared_ptr<CudaArray> array = FindArray(current, resource.in.array);
      if (array == nullptr) return Code::kInvalidHandle;
      PlaceArray(*array, record);
      texel = array->texel;
      return Code::kSuccess;
    }
    case TextureResource::kMipmappedArray:
      return Reject(Code::kNotSupported, "texture rejected: mipmaps are not supported");
    case TextureResource::kLinear:
      return PlaceLinear(current, resource.in.linear, record, texel);
    case TextureResource::kPitched:
      return PlacePitched(current, resource.in.pitched, record, texel);
    default:
      return Code::kInvalidValue;
  }
}

// Linear memory is fetched by index; fetches outside the memory return zero, regardless of the
// modes.
void SampleByIndex(TextureRecord& record) {
  for (TextureAddressMode& mode : record.address_modes) mode = TextureAddressMode::kBorder;
}

Code SampleAsAsked(const TextureMode& mode, const TexelType& texel, TextureRecord& record) {
  for (int axis = 0; axis < 3; ++axis) {
    const bool is_used = axis == 0 || record.extents[axis] > 1;
    const int asked = is_used ? mode.address_modes[axis] : 1;
    if (asked < 0 || asked > static_cast<int>(TextureAddressMode::kBorder)) {
      return Code::kInvalidValue;
    }
    record.address_modes[axis] = static_cast<TextureAddressMode>(asked);
  }
  if (mode.filter != 0 && mode.filter != 1) return Code::kInvalidValue;
  record.filter = static_cast<TextureFilter>(mode.filter);
  // Only values that are read as floats are interpolated. A request to interpolate integers is
  // ignored and not rejected, because some programs, such as ffmpeg's filters, make it.
  if (!texel.is_float() && record.normalised_values == 0) record.filter = TextureFilter::kPoint;
  record.normalised_coordinates = (mode.flags & kNormalisedCoordinates) != 0 ? 1 : 0;
  std::memcpy(record.border, mode.border, sizeof record.border);
  return Code::kSuccess;
}

Code CheckMode(const TextureMode& mode) {
  if ((mode.flags & ~kTextureFlags) != 0) return Code::kInvalidValue;
  constexpr unsigned kHere = kReadAsInteger | kNormalisedCoordinates | kNoTrilinearShortcut;
  if ((mode.flags & ~kHere) != 0) {
    return Reject(Code::kNotSupported, "texture rejected: sRGB and cubemaps are not supported");
  }
  if (mode.anisotropy_max > 1) {
    return Reject(Code::kNotSupported, "texture rejected: anisotropic filtering is not supported");
  }
  return Code::kSuccess;
}

// Returns the CUresourceViewFormat of one channel; those of two and four channels follow it.
int GetViewFormat(const TexelType& texel) {
  switch (texel.format) {
    case TexelFormat::kUint8:
      return 0x01;
    case TexelFormat::kInt8:
      return 0x04;
    case TexelFormat::kUint16:
      return 0x07;
    case TexelFormat::kInt16:
      return 0x0a;
    case TexelFormat::kUint32:
      return 0x0d;
    case TexelFormat::kInt32:
      return 0x10;
    case TexelFormat::kFloat16:
      return 0x13;
    case TexelFormat::kFloat32:
      return 0x16;
  }
  return 0;
}

// Accepts a view that matches its array. Format 0 means the format of the array.
Code CheckView(const TextureView& view, const TextureResource& resource,
               const TextureRecord& record, const TexelType& texel) {
  if (resource.type != TextureResource::kArray) return Code::kInvalidValue;
  const int format = GetViewFormat(texel) + static_cast<int>(texel.channels / 2);
  const std::size_t extents[] = {view.width, view.height, view.depth};
  bool is_same = view.format == 0 || view.format == format;
  for (int axis = 0; axis < 3; ++axis) {
    is_same &= std::max<std::size_t>(extents[axis], 1) == record.extents[axis];
  }
  is_same &= view.level_first == 0 && view.level_last == 0;
  is_same &= view.layer_first == 0 && view.layer_last == 0;
  if (is_same) return Code::kSuccess;
  return Reject(Code::kNotSupported,
                "texture rejected: a view must have the format and the extents of its array");
}

// Writes the record to the device before any kernel can receive its address.
Code Make(const Current& current, const TextureRecord& record, TextureObject object,
          TextureHandle& handle) {
  const Client& client = current->session().client();
  Result<DeviceBuffer> memory = client.AllocateDevice(sizeof record);
  if (!memory.ok()) return current.GetCode(memory.status());
  const Stream stream = client.default_stream();
  Status status = stream.CopyToDevice(memory->address(), &record, sizeof record);
  if (status.ok()) status = stream.Synchronize();
  if (!status.ok()) return current.GetCode(status);
  object.context_id = current->id();
  object.record = std::move(*memory);
  handle = current->session().textures().Insert(
      std::make_shared<const TextureObject>(std::move(object)));
  return Code::kSuccess;
}

// Returns the object, and kSuccess in `code`. Otherwise returns null, and the reason in `code`.
std::shared_ptr<const TextureObject> Find(TextureHandle handle, TextureKind kind, Code& code) {
  const Current current;
  code = current.code();
  if (!current.ok()) return nullptr;
  std::shared_ptr<const TextureObject> found = current->session().textures().Find(handle, kind);
  if (found == nullptr) code = Code::kInvalidValue;
  return found;
}

Code GetResource(TextureResource* resource, TextureHandle handle, TextureKind kind) {
  if (AnyNull(resource)) return Code::kInvalidValue;
  Code code = Code::kSuccess;
  if (const auto found = Find(handle, kind, code)) *resource = found->resource;
  return code;
}

Code Destroy(TextureHandle handle, TextureKind kind) {
  const Current current;
  if (!current.ok()) return current.code();
  return current->session().textures().Remove(handle, kind) ? Code::kSuccess : Code::kInvalidValue;
}

}  // namespace

Code TexObjectCreate(TextureHandle* texture, const TextureResource* resource,
                     const TextureMode* mode, const TextureView* view) {
  if (AnyNull(texture, resource, mode)) return Code::kInvalidValue;
  const Current current;
  if (const Code code = CheckDevice(current); code != Code::kSuccess) return code;
  if (const Code code = CheckMode(*mode); code != Code::kSuccess) return code;
  TextureRecord record;
  TexelType texel;
  if (const Code code = Place(current, *resource, record, texel); code != Code::kSuccess) {
    return code;
  }
  if (view != nullptr) {
    const Code code = CheckView(*view, *resource, record, texel);
    if (code != Code::kSuccess) return code;
  }
  record.format = texel.format;
  record.channels = static_cast<std::uint8_t>(texel.channels);
  const bool can_be_fraction = !texel.is_float() && texel.channel_bytes < 4;
  record.normalised_values = can_be_fraction && (mode->flags & kReadAsInteger) == 0 ? 1 : 0;
  if (resource->type == TextureResource::kLinear) {
    SampleByIndex(record);
  } else if (const Code code = SampleAsAsked(*mode, texel, record); code != Code::kSuccess) {
    return code;
  }
  TextureObject object;
  object.resource = *resource;
  object.mode = *mode;
  if (view != nullptr) object.view = *view;
  return Make(current, record, std::move(object), *texture);
}

Code TexObjectDestroy(TextureHandle texture) { return Destroy(texture, TextureKind::kTexture); }

Code TexObjectGetResourceDesc(TextureResource* resource, TextureHandle texture) {
  return GetResource(resource, texture, TextureKind::kTexture);
}

Code TexObjectGetTextureDesc(TextureMode* mode, TextureHandle texture) {
  if (AnyNull(mode)) return Code::kInvalidValue;
  Code code = Code::kSuccess;
  if (const auto found = Find(texture, TextureKind::kTexture, code)) *mode = found->mode;
  return code;
}

Code TexObjectGetResourceViewDesc(TextureView* view, TextureHandle texture) {
  if (AnyNull(view)) return Code::kInvalidValue;
  Code code = Code::kSuccess;
  const auto found = Find(texture, TextureKind::kTexture, code);
  if (found == nullptr || !found->view) return Code::kInvalidValue;
  *view = *found->view;
  return Code::kSuccess;
}

Code SurfObjectCreate(TextureHandle* surface, const TextureResource* resource) {
  if (AnyNull(surface, resource)) return Code::kInvalidValue;
  const Current current;
  if (const Code code = CheckDevice(current); code != Code::kSuccess) return code;
  if (resource->type != TextureResource::kArray || resource->flags != 0) return Code::kInvalidValue;
  const std::shared_ptr<CudaArray> array = FindArray(current, resource->in.array);
  if (array == nullptr) return Code::kInvalidHandle;
  if ((array->shape.flags & kArrayForSurfaces) == 0) return Code::kInvalidValue;
  TextureRecord record;
  PlaceArray(*array, record);
  record.format = array->texel.format;
  record.channels = static_cast<std::uint8_t>(array->texel.channels);
  TextureObject object;
  object.kind = TextureKind::kSurface;
  object.resource = *resource;
  return Make(current, record, std::move(object), *surface);
}

Code SurfObjectDestroy(TextureHandle surface) { return Destroy(surface, TextureKind::kSurface); }

Code SurfObjectGetResourceDesc(TextureResource* resource, TextureHandle surface) {
  return GetResource(resource, surface, TextureKind::kSurface);
}

Code DeviceGetTexture1dLinearMaxWidth(std::size_t* texels, int format, unsigned channels,
                                      int device) {
  if (AnyNull(texels) || !GetTexelType(format, channels)) return Code::kInvalidValue;
  int most = 0;
  const Code code =
      DeviceGetAttribute(&most, static_cast<int>(Attribute::kTexture1dLinearWidthMax), device);
  if (code == Code::kSuccess) *texels = static_cast<std::size_t>(most);
  return code;
}

}  // namespace gpushared::drop_in
