// SPDX-License-Identifier: Apache-2.0
// Linking. The result of a link is an image that modules are loaded from; programs hand it back
// unread. One input is its own result, as PTX or fatbin. Several inputs are not linked yet.
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

// CUjitInputType.
constexpr int kPtx = 1;
constexpr int kFatbin = 2;
constexpr int kLastType = 6;
// What one link takes together.
constexpr std::size_t kInputsMax = 1024;
constexpr std::size_t kInputBytesMax = 256u << 20;

// Runs `use` with the link behind the handle.
template <typename Use>
Code WithLink(LinkHandle handle, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<CudaLink> link = driver.links.Find(handle);
  if (link == nullptr) return Code::kInvalidHandle;
  const std::lock_guard lock(link->mutex);
  return use(*link);
}

Code Add(CudaLink& link, int type, const char* data, std::size_t bytes) {
  if (type < 0 || type > kLastType) return Code::kInvalidValue;
  if (type != kPtx && type != kFatbin) {
    const std::string sentence = "link input refused: only PTX and fatbins are linked, not type " +
                                 std::to_string(type) + " of CUjitInputType";
    link.log.WriteError(sentence);
    return Refuse(Code::kNotSupported, sentence);
  }
  if (bytes > kInputBytesMax || link.inputs.size() == kInputsMax) return Code::kOutOfMemory;
  // A text may come with its NUL or without it.
  if (type == kPtx) bytes = ::strnlen(data, bytes);
  const auto* const first = reinterpret_cast<const std::byte*>(data);
  link.inputs.emplace_back(first, first + bytes).push_back(std::byte{0});
  return Code::kSuccess;
}

}  // namespace

Code LinkCreate(unsigned option_count, JitOption* options, void** values, LinkHandle* handle) {
  if (AnyNull(handle) || (option_count != 0 && AnyNull(options, values))) {
    return Code::kInvalidValue;
  }
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  auto link = std::make_shared<CudaLink>();
  link->log = JitLog(option_count, options, values);
  *handle = driver.links.Insert(std::move(link));
  return *handle == nullptr ? Code::kOutOfMemory : Code::kSuccess;
}

Code LinkAddData(LinkHandle handle, int type, void* data, std::size_t bytes, const char*, unsigned,
                 JitOption*, void**) {
  if (AnyNull(data) || bytes == 0) return Code::kInvalidValue;
  return WithLink(handle, [&](CudaLink& link) {
    return Add(link, type, static_cast<const char*>(data), bytes);
  });
}

Code LinkAddFile(LinkHandle handle, int type, const char* path, unsigned, JitOption*, void**) {
  if (AnyNull(path)) return Code::kInvalidValue;
  return WithLink(handle, [&](CudaLink& link) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return Refuse(kFileNotFound, std::string("cannot read ") + path);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    return Add(link, type, bytes.data(), bytes.size());
  });
}

// The image belongs to the link, until it is destroyed.
Code LinkComplete(LinkHandle handle, void** image, std::size_t* bytes) {
  if (AnyNull(image)) return Code::kInvalidValue;
  return WithLink(handle, [&](CudaLink& link) {
    if (link.inputs.size() != 1) {
      const std::string sentence = "link refused: it has " + std::to_string(link.inputs.size()) +
                                   " inputs, this library links one";
      link.log.WriteError(sentence);
      return Refuse(link.inputs.empty() ? Code::kInvalidValue : Code::kNotSupported, sentence);
    }
    *image = link.inputs.front().data();
    if (bytes != nullptr) *bytes = link.inputs.front().size();
    return Code::kSuccess;
  });
}

Code LinkDestroy(LinkHandle handle) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  return Driver::Get().links.Remove(handle) == nullptr ? Code::kInvalidHandle : Code::kSuccess;
}

}  // namespace gpushared::drop_in
