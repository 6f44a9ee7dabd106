// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_TEXTURE_BOOK_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_TEXTURE_BOOK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "gpushared/client.h"
#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

enum class TextureKind : std::uint8_t { kTexture, kSurface };

// Texture or surface of the program. Immutable.
struct TextureObject {
  TextureKind kind = TextureKind::kTexture;
  std::uint64_t context_id = 0;  // Context with which the object ends.
  TextureResource resource = {};
  TextureMode mode = {};  // Textures only.
  std::optional<TextureView> view;
  DeviceBuffer record;  // TextureRecord whose address kernels receive.
};

// Textures and surfaces of a session. Their handles are the addresses of their records.
//
// Thread-safe.
class TextureBook {
 public:
  TextureHandle Insert(std::shared_ptr<const TextureObject> object);
  // Returns null if there is none of this kind.
  std::shared_ptr<const TextureObject> Find(TextureHandle handle, TextureKind kind) const;
  bool Remove(TextureHandle handle, TextureKind kind);
  void RemoveContext(std::uint64_t context_id);

 private:
  mutable Mutex mutex_;
  std::map<TextureHandle, std::shared_ptr<const TextureObject>> objects_
      GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_TEXTURE_BOOK_H_
