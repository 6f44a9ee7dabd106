// SPDX-License-Identifier: Apache-2.0
// Linking. The result of a link is an image from which modules are loaded; programs pass it on
// without inspecting it.
#include <memory>
#include <string>
#include <string_view>

#include "client_lib/drop_in/calls.h"
#include "client_lib/drop_in/driver.h"
#include "client_lib/drop_in/jit_options.h"
#include "client_lib/drop_in/log.h"
#include "common/ptx/text/target.h"

namespace gpushared::drop_in {
namespace {

// CUjitInputType.
constexpr int kPtx = 1;
constexpr int kFatbin = 2;
constexpr int kObject = 3;
constexpr int kLibrary = 4;
constexpr int kLastType = 6;

// Calls `use` with the link of the handle.
template <typename Use>
Code WithLink(LinkHandle handle, const Use& use) {
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  const std::shared_ptr<CudaLink> link = driver.links.Find(handle);
  if (link == nullptr) return Code::kInvalidHandle;
  const MutexLock lock(link->mutex);
  return use(link->parts);
}

// Writes the message to the program's error log as well.
Code RejectInLog(CudaLink::Parts& link, Code code, const std::string& message) {
  link.log.WriteError(message);
  return Reject(code, message);
}

Code Add(CudaLink::Parts& link, int type, const char* given_name, std::string_view data) {
  if (type < 0 || type > kLastType) return Code::kInvalidValue;
  const std::string name = given_name == nullptr ? "an input without a name" : given_name;
  Status added;
  if (const std::string_view version = ptx::GetVersion(data);
      type == kPtx && !version.empty() && !ptx::IsKnownVersion(version)) {
    return RejectInLog(link, Code::kUnsupportedPtxVersion,
                       "link input rejected: '" + name + "' has .version " + std::string(version) +
                           ", the newest is " + std::string(ptx::kNewestVersion));
  }
  if (type == kPtx) {
    added = link.link.AddPtx(name, data);
  } else if (type == kFatbin) {
    added = link.link.AddFatbin(name, data);
  } else if (type == kObject) {
    added = link.link.AddObject(name, data);
  } else if (type == kLibrary) {
    added = link.link.AddLibrary(name, data);
  } else {
    added =
        Status(StatusCode::kUnsupported,
               "link input rejected: '" + name + "' has type " + std::to_string(type) +
                   " of CUjitInputType; only PTX, fatbins, objects and libcudadevrt.a are linked");
  }
  switch (added.code()) {
    case StatusCode::kOk:
      return Code::kSuccess;
    case StatusCode::kUnsupported:
      return RejectInLog(link, Code::kNotSupported, added.message());
    case StatusCode::kLimitExceeded:
      return RejectInLog(link, Code::kInvalidPtx, added.message());
    default:
      return RejectInLog(link, Code::kInvalidValue, added.message());
  }
}

Code Complete(CudaLink::Parts& link) {
  const Status completed = link.link.Complete();
  link.log.WriteTime();
  switch (completed.code()) {
    case StatusCode::kOk:
      return Code::kSuccess;
    case StatusCode::kUnsupported:
      return RejectInLog(link, Code::kNoBinaryForGpu, completed.message());
    default:
      return RejectInLog(link, Code::kInvalidPtx, completed.message());
  }
}

Code CheckLinkOptions(unsigned count, const JitOption* options, void* const* values) {
  if (count != 0 && AnyNull(options, values)) return Code::kInvalidValue;
  return CheckJitOptions(JitUse::kLink, count, options, values);
}

}  // namespace

Code LinkCreate(unsigned option_count, JitOption* options, void** values, LinkHandle* handle) {
  if (AnyNull(handle)) return Code::kInvalidValue;
  if (const Code code = CheckLinkOptions(option_count, options, values); code != Code::kSuccess) {
    return code;
  }
  Driver& driver = Driver::Get();
  if (const Code code = driver.Ready(); code != Code::kSuccess) return code;
  auto link = std::make_shared<CudaLink>();
  {
    const MutexLock lock(link->mutex);
    link->parts.log = JitLog(option_count, options, values);
    link->parts.link.LimitRegisters(RegistersMost(option_count, options, values));
  }
  *handle = driver.links.Insert(std::move(link));
  return *handle == nullptr ? Code::kOutOfMemory : Code::kSuccess;
}

Code LinkAddData(LinkHandle handle, int type, void* data, std::size_t bytes, const char* name,
                 unsigned option_count, JitOption* options, void** values) {
  if (AnyNull(data) || bytes == 0) return Code::kInvalidValue;
  if (const Code code = CheckLinkOptions(option_count, options, values); code != Code::kSuccess) {
    return code;
  }
  return WithLink(handle, [&](CudaLink::Parts& link) {
    return Add(link, type, name, {static_cast<const char*>(data), bytes});
  });
}

Code LinkAddFile(LinkHandle handle, int type, const char* path, unsigned option_count,
                 JitOption* options, void** values) {
  if (AnyNull(path)) return Code::kInvalidValue;
  if (const Code code = CheckLinkOptions(option_count, options, values); code != Code::kSuccess) {
    return code;
  }
  return WithLink(handle, [&](CudaLink::Parts& link) {
    const Result<std::string> bytes = ReadLinkInput(path);
    if (bytes.ok()) return Add(link, type, path, *bytes);
    const bool is_missing = bytes.status().code() == StatusCode::kNotFound;
    return RejectInLog(link, is_missing ? Code::kFileNotFound : Code::kInvalidPtx,
                       bytes.status().message());
  });
}

// The image belongs to the link and exists until the link is destroyed.
Code LinkComplete(LinkHandle handle, void** image, std::size_t* bytes) {
  if (AnyNull(image)) return Code::kInvalidValue;
  return WithLink(handle, [&](CudaLink::Parts& link) {
    if (const Code code = Complete(link); code != Code::kSuccess) return code;
    *image = link.link.image().data();
    if (bytes != nullptr) *bytes = link.link.image().size();
    return Code::kSuccess;
  });
}

Code LinkDestroy(LinkHandle handle) {
  if (const Code code = Driver::Get().Ready(); code != Code::kSuccess) return code;
  return Driver::Get().links.Remove(handle) == nullptr ? Code::kInvalidHandle : Code::kSuccess;
}

}  // namespace gpushared::drop_in
