// SPDX-License-Identifier: Apache-2.0
// Linking. The result of a link is an image that modules are loaded from; programs hand it back
// unread. One input is its own result, as PTX or fatbin. Several become one PTX text.
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/device_runtime_archive.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/log.h"
#include "server/ptx/link/linker.h"
#include "server/ptx/text/fatbin.h"

namespace gpushared::drop_in {
namespace {

// CUjitInputType.
constexpr int kPtx = 1;
constexpr int kFatbin = 2;
constexpr int kLibrary = 4;
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

// The program finds the sentence in its error log, too.
Code RefuseInLog(CudaLink& link, Code code, const std::string& sentence) {
  link.log.WriteError(sentence);
  return Refuse(code, sentence);
}

Code AddLibrary(CudaLink& link, const std::string& name, std::string_view archive) {
  if (!IsDeviceRuntimeArchive(archive)) {
    return RefuseInLog(link, Code::kNotSupported,
                       "link input refused: '" + name +
                           "' is a library, and of those only libcudadevrt.a is linked; as PTX "
                           "(nvcc -rdc=true -ptx) it would be");
  }
  link.has_device_runtime = true;
  return Code::kSuccess;
}

Code AddImage(CudaLink& link, int type, const std::string& name, std::string_view data) {
  if (link.inputs.size() == kInputsMax || data.size() > kInputBytesMax - link.input_bytes) {
    return RefuseInLog(link, Code::kOutOfMemory,
                       "link input refused: '" + name + "' has " + std::to_string(data.size()) +
                           " bytes; a link takes " + std::to_string(kInputsMax) + " inputs of " +
                           std::to_string(kInputBytesMax) + " bytes together");
  }
  // A text may come with its NUL or without it.
  if (type == kPtx) data = data.substr(0, data.find('\0'));
  link.input_bytes += data.size();
  link.inputs.push_back({name, std::string(data)});
  return Code::kSuccess;
}

Code Add(CudaLink& link, int type, const char* given_name, std::string_view data) {
  if (type < 0 || type > kLastType) return Code::kInvalidValue;
  const std::string name =
      given_name == nullptr ? "input " + std::to_string(link.inputs.size() + 1) : given_name;
  if (!link.image.empty()) {
    return RefuseInLog(link, Code::kInvalidValue,
                       "link input refused: '" + name + "' comes after the link was completed");
  }
  if (type == kLibrary) return AddLibrary(link, name, data);
  if (type == kPtx || type == kFatbin) return AddImage(link, type, name, data);
  return RefuseInLog(link, Code::kNotSupported,
                     "link input refused: '" + name + "' has type " + std::to_string(type) +
                         " of CUjitInputType; only PTX, fatbins and libcudadevrt.a are linked");
}

Code LinkCode(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnsupported:
      return Code::kNoBinaryForGpu;
    case StatusCode::kLimitExceeded:
      return Code::kOutOfMemory;
    default:
      return Code::kInvalidPtx;
  }
}

// The PTX of all inputs as one text.
Result<std::string> LinkTexts(const CudaLink& link) {
  std::vector<std::string> texts;
  std::vector<ptx::LinkInput> inputs;
  texts.reserve(link.inputs.size());  // The inputs point into it.
  for (const CudaLink::Input& input : link.inputs) {
    Result<std::string> text = ptx::ExtractPtx(std::as_bytes(std::span(input.bytes)));
    if (!text) {
      return Status(text.status().code(),
                    "link refused: " + input.name + ": " + text.status().message());
    }
    texts.push_back(*std::move(text));
    inputs.push_back({input.name, texts.back()});
  }
  return ptx::Link(inputs);
}

Code Complete(CudaLink& link) {
  if (link.inputs.empty()) {
    return RefuseInLog(link, Code::kInvalidValue, "link refused: it has no inputs");
  }
  if (link.inputs.size() == 1 && !link.has_device_runtime) {
    link.image = link.inputs.front().bytes;
  } else {
    Result<std::string> linked = LinkTexts(link);
    if (!linked) return RefuseInLog(link, LinkCode(linked.status()), linked.status().message());
    link.image = *std::move(linked);
  }
  link.image.push_back('\0');
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

Code LinkAddData(LinkHandle handle, int type, void* data, std::size_t bytes, const char* name,
                 unsigned, JitOption*, void**) {
  if (AnyNull(data) || bytes == 0) return Code::kInvalidValue;
  return WithLink(handle, [&](CudaLink& link) {
    return Add(link, type, name, {static_cast<const char*>(data), bytes});
  });
}

Code LinkAddFile(LinkHandle handle, int type, const char* path, unsigned, JitOption*, void**) {
  if (AnyNull(path)) return Code::kInvalidValue;
  return WithLink(handle, [&](CudaLink& link) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return RefuseInLog(link, kFileNotFound, std::string("cannot read ") + path);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    return Add(link, type, path, bytes);
  });
}

// The image belongs to the link, until it is destroyed.
Code LinkComplete(LinkHandle handle, void** image, std::size_t* bytes) {
  if (AnyNull(image)) return Code::kInvalidValue;
  return WithLink(handle, [&](CudaLink& link) {
    if (link.image.empty()) {
      if (const Code code = Complete(link); code != Code::kSuccess) return code;
    }
    *image = link.image.data();
    if (bytes != nullptr) *bytes = link.image.size();
    return Code::kSuccess;
  });
}

Code LinkDestroy(LinkHandle handle) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  return Driver::Get().links.Remove(handle) == nullptr ? Code::kInvalidHandle : Code::kSuccess;
}

}  // namespace gpushared::drop_in
