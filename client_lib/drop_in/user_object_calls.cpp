// SPDX-License-Identifier: Apache-2.0
// Objects of the program that graphs keep alive.
#include <memory>
#include <utility>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/graph_book.h"

namespace gpushared::drop_in {
namespace {

constexpr unsigned kNoDestructorSync = 1;
constexpr unsigned kMove = 1;

// Calls `use` with the program's own references and the object. The handle remains the same while
// any reference to the object exists.
template <typename Use>
Code WithObject(UserObjectHandle handle, unsigned count, const Use& use) {
  if (count == 0) return Code::kInvalidValue;
  GraphBook book;
  if (!book.ok()) return book.code();
  Driver& driver = Driver::Get();
  const std::shared_ptr<UserReferences> own = driver.user_objects.Find(handle);
  if (own == nullptr) return Code::kInvalidValue;
  const std::shared_ptr<UserObject> object = own->known.lock();
  if (object == nullptr) return Code::kInvalidValue;
  const Code code = use(book, *own, object);
  own->object = own->count == 0 ? nullptr : object;
  return code;
}

Code Drop(UserReferences& references, unsigned count) {
  if (count > references.count) return Code::kInvalidValue;
  references.count -= count;
  return Code::kSuccess;
}

}  // namespace

Code UserObjectCreate(UserObjectHandle* handle, void* data, HostFunction destroy, unsigned count,
                      unsigned flags) {
  if (AnyNull(handle) || destroy == nullptr || count == 0 || flags != kNoDestructorSync) {
    return Code::kInvalidValue;
  }
  GraphBook book;
  if (!book.ok()) return book.code();
  Driver::Get().user_objects.RemoveIf(
      [](const UserReferences& references) { return references.known.expired(); });
  auto made = std::make_shared<UserReferences>();
  made->count = count;
  *handle = Driver::Get().user_objects.Insert(made);
  if (*handle == nullptr) return Code::kOutOfMemory;
  made->object = std::make_shared<UserObject>(destroy, data);
  made->known = made->object;
  return Code::kSuccess;
}

Code UserObjectRetain(UserObjectHandle handle, unsigned count) {
  return WithObject(handle, count, [&](GraphBook&, UserReferences& own, const auto&) {
    own.count += count;
    return Code::kSuccess;
  });
}

Code UserObjectRelease(UserObjectHandle handle, unsigned count) {
  return WithObject(handle, count,
                    [&](GraphBook&, UserReferences& own, const auto&) { return Drop(own, count); });
}

Code GraphRetainUserObject(GraphHandle graph_handle, UserObjectHandle handle, unsigned count,
                           unsigned flags) {
  if (flags != 0 && flags != kMove) return Code::kInvalidValue;
  return WithObject(handle, count, [&](GraphBook& book, UserReferences& own, const auto& object) {
    const std::shared_ptr<Graph> graph = book.Find(graph_handle);
    if (graph == nullptr) return Code::kInvalidValue;
    if (flags == kMove) {
      if (const Code code = Drop(own, count); code != Code::kSuccess) return code;
    }
    UserReferences& of_graph = graph->user_objects[object.get()];
    of_graph.object = object;
    of_graph.count += count;
    return Code::kSuccess;
  });
}

Code GraphReleaseUserObject(GraphHandle graph_handle, UserObjectHandle handle, unsigned count) {
  return WithObject(handle, count, [&](GraphBook& book, const UserReferences&, const auto& object) {
    const std::shared_ptr<Graph> graph = book.Find(graph_handle);
    if (graph == nullptr) return Code::kInvalidValue;
    const auto found = graph->user_objects.find(object.get());
    if (found == graph->user_objects.end()) return Code::kInvalidValue;
    const Code code = Drop(found->second, count);
    if (found->second.count == 0) graph->user_objects.erase(found);
    return code;
  });
}

}  // namespace gpushared::drop_in
