// SPDX-License-Identifier: Apache-2.0
// CUDA arrays: texels in device memory with a handle.
#include <string>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/current.h"
#include "client_lib/drop_in/device_attributes.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

// Checks the device's limits for arrays of these dimensions. All limits are 0 if the device has no
// textures.
bool FitsDevice(const DeviceProperties& device, const ArrayShape3d& shape) {
  const auto within = [&](std::size_t texels, Attribute limit) {
    return texels <= static_cast<std::size_t>(AttributeFor(device, limit));
  };
  if (shape.depth != 0) {
    return within(shape.width, Attribute::kTexture3dWidthMax) &&
           within(shape.height, Attribute::kTexture3dHeightMax) &&
           within(shape.depth, Attribute::kTexture3dDepthMax);
  }
  if (shape.height != 0) {
    return within(shape.width, Attribute::kTexture2dWidthMax) &&
           within(shape.height, Attribute::kTexture2dHeightMax);
  }
  return within(shape.width, Attribute::kTexture1dWidthMax);
}

Code CheckArrayShape(const DeviceProperties& device, const ArrayShape3d& shape) {
  if (AttributeFor(device, Attribute::kTexture1dWidthMax) == 0) {
    return Reject(Code::kNotSupported, "array rejected: device " + device.id + " has no textures");
  }
  if (shape.width == 0 || (shape.depth != 0 && shape.height == 0)) return Code::kInvalidValue;
  if ((shape.flags & ~kArrayFlags) != 0) return Code::kInvalidValue;
  if ((shape.flags & ~kArrayForSurfaces) != 0) {
    return Reject(Code::kNotSupported, "array rejected: its flags are " +
                                           std::to_string(shape.flags) + ", supported are " +
                                           std::to_string(kArrayForSurfaces));
  }
  return FitsDevice(device, shape) ? Code::kSuccess : Code::kInvalidValue;
}

}  // namespace

Code ArrayCreate(ArrayHandle* array, const ArrayShape* shape) {
  if (AnyNull(shape)) return Code::kInvalidValue;
  const ArrayShape3d flat = {.width = shape->width,
                             .height = shape->height,
                             .depth = 0,
                             .format = shape->format,
                             .channels = shape->channels,
                             .flags = 0};
  return Array3dCreate(array, &flat);
}

Code Array3dCreate(ArrayHandle* array, const ArrayShape3d* shape) {
  if (AnyNull(array, shape)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const DeviceProperties& device = Driver::Get().DeviceAt(current->ordinal())->properties();
  if (const Code code = CheckArrayShape(device, *shape); code != Code::kSuccess) return code;
  const std::optional<TexelType> texel = GetTexelType(shape->format, shape->channels);
  if (!texel) {
    return Reject(Code::kInvalidValue, "array rejected: format " + std::to_string(shape->format) +
                                           " with " + std::to_string(shape->channels) +
                                           " channels is not supported");
  }
  auto made = std::make_shared<CudaArray>();
  made->context = current.shared();
  made->shape = *shape;
  made->texel = *texel;
  Result<DeviceBuffer> memory = current->session().client().AllocateDevice(made->bytes());
  if (!memory.ok()) return current.GetCode(memory.status());
  made->memory = std::move(*memory);
  const ArrayHandle handle = Driver::Get().arrays.Insert(std::move(made));
  if (handle == nullptr) return Code::kOutOfMemory;
  *array = handle;
  return Code::kSuccess;
}

Code Array3dGetDescriptor(ArrayShape3d* shape, ArrayHandle array) {
  if (AnyNull(shape)) return Code::kInvalidValue;
  const Current current;
  if (!current.ok()) return current.code();
  const std::shared_ptr<CudaArray> found = Driver::Get().arrays.Find(array);
  if (found == nullptr) return Code::kInvalidHandle;
  *shape = found->shape;
  return Code::kSuccess;
}

Code ArrayGetDescriptor(ArrayShape* shape, ArrayHandle array) {
  if (AnyNull(shape)) return Code::kInvalidValue;
  ArrayShape3d of = {};
  const Code code = Array3dGetDescriptor(&of, array);
  if (code != Code::kSuccess) return code;
  *shape = {.width = of.width, .height = of.height, .format = of.format, .channels = of.channels};
  return Code::kSuccess;
}

// Commands that use the array may still be queued; the library reuses its memory only after them.
Code ArrayDestroy(ArrayHandle array) {
  const Current current;
  if (!current.ok()) return current.code();
  return Driver::Get().arrays.Remove(array) == nullptr ? Code::kInvalidHandle : Code::kSuccess;
}

}  // namespace gpushared::drop_in
