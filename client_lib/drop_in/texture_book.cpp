// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/texture_book.h"

#include <utility>

namespace gpushared::drop_in {

TextureHandle TextureBook::Insert(std::shared_ptr<const TextureObject> object) {
  const TextureHandle handle = object->record.address();
  const MutexLock lock(mutex_);
  objects_[handle] = std::move(object);
  return handle;
}

std::shared_ptr<const TextureObject> TextureBook::Find(TextureHandle handle,
                                                       TextureKind kind) const {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(handle);
  return found == objects_.end() || found->second->kind != kind ? nullptr : found->second;
}

bool TextureBook::Remove(TextureHandle handle, TextureKind kind) {
  const MutexLock lock(mutex_);
  const auto found = objects_.find(handle);
  if (found == objects_.end() || found->second->kind != kind) return false;
  objects_.erase(found);
  return true;
}

void TextureBook::RemoveContext(std::uint64_t context_id) {
  const MutexLock lock(mutex_);
  std::erase_if(objects_, [&](const auto& it) { return it.second->context_id == context_id; });
}

}  // namespace gpushared::drop_in
