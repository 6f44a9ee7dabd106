// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/interposers/nvjitlink.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"

#include "client_lib/drop_in/device_runtime_archive.h"
#include "client_lib/drop_in/image_link.h"
#include "client_lib/drop_in/interposers/forwarder.h"
#include "client_lib/drop_in/interposers/lto_anchor.h"
#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {

// Inputs passed to the real library.
struct RealInput {
  int type;
  std::string bytes, name;
};

struct LinkState {
  LinkState() = default;
  LinkState(const LinkState&) = delete;
  LinkState& operator=(const LinkState&) = delete;
  ~LinkState() {
    if (real != nullptr) CallReal("nvJitLinkDestroy", &real);
  }

  void* real = nullptr;  // Link in the real library; null without the option -lto.
  std::vector<std::string> real_options;
  std::vector<RealInput> real_inputs;
  LtoAnchor anchor;
  ImageLink images;
  std::string error;
};

struct JitLink {
  Mutex mutex;
  LinkState state GPUSHARED_GUARDED_BY(mutex);
};

namespace {

// nvJitLinkInputType.
constexpr int kPtx = 2;
constexpr int kLtoIr = 3;
constexpr int kFatbin = 4;
constexpr int kObject = 5;
constexpr int kLibrary = 6;
constexpr int kAny = 10;

int Reject(LinkState& link, int code, std::string message) {
  LogLine("nvJitLink: " + message);
  link.error = std::move(message);
  return code;
}

int Answer(LinkState& link, const Status& status) {
  if (status.ok()) return kSucceeded;
  return Reject(link, status.code() == StatusCode::kUnsupported ? kUnrecognizedInput : kPtxRejected,
                status.message());
}

// Returns the type of an input for which the program specifies none.
int GetType(std::string_view data) {
  if (data.starts_with("\x50\xed\x55\xba")) return kFatbin;
  if (data.starts_with("!<arch>\n")) return kLibrary;
  const bool is_text = std::ranges::none_of(
      data.substr(0, 64), [](char c) { return c != '\0' && static_cast<unsigned char>(c) < '\t'; });
  return is_text ? kPtx : kAny;
}

int AddReal(void* real, const RealInput& input) {
  return CallReal("nvJitLinkAddData", real, input.type,
                  static_cast<const void*>(input.bytes.data()), input.bytes.size(),
                  input.name.c_str());
}

int Add(LinkState& link, int type, std::string_view data, const std::string& name) {
  if (type == kAny) type = GetType(data);
  if (type == kPtx) {
    if (link.real != nullptr) link.anchor.RecordPtx(data);
    return Answer(link, link.images.AddPtx(name, data));
  }
  const bool is_ours = type == kLibrary && IsDeviceRuntimeArchive(data);
  if (link.real != nullptr && !is_ours) {
    link.real_inputs.push_back({type, std::string(data), name});
    return AddReal(link.real, link.real_inputs.back());
  }
  if (type == kLibrary) return Answer(link, link.images.AddLibrary(name, data));
  if (type == kFatbin) return Answer(link, link.images.AddFatbin(name, data));
  if (type == kObject) return Answer(link, link.images.AddObject(name, data));
  return Reject(link, kUnrecognizedInput,
                "link input rejected: '" + name + "' has type " + std::to_string(type) +
                    " of nvJitLinkInputType; without -lto only PTX, fatbins, objects and "
                    "libcudadevrt.a can be linked for a device of gpushared");
}

// Completes a link of the real library and returns its PTX.
int TakePtx(void* real, std::string& text) {
  std::size_t bytes = 0;
  int result = CallReal("nvJitLinkComplete", real);
  if (result == kSucceeded) result = CallReal("nvJitLinkGetLinkedPtxSize", real, &bytes);
  if (result != kSucceeded) return result;
  text.assign(bytes, '\0');
  return CallReal("nvJitLinkGetLinkedPtx", real, text.data());
}

int CreateReal(const std::vector<std::string>& options, void** real) {
  std::vector<const char*> pointers;
  pointers.reserve(options.size());
  for (const std::string& option : options) pointers.push_back(option.c_str());
  return CallReal("nvJitLinkCreate", real, static_cast<std::uint32_t>(pointers.size()),
                  pointers.data());
}

// Repeats the link of the LTO-IR with the anchor. Leaves `text` unchanged on failure.
void LinkWithAnchor(const LinkState& link, std::string& text) {
  const std::optional<std::string> anchor = link.anchor.LtoIr();
  void* real = nullptr;
  if (!anchor || CreateReal(link.real_options, &real) != kSucceeded) return;
  std::string with_anchor;
  bool is_good = AddReal(real, {kLtoIr, *anchor, "gpushared's anchor"}) == kSucceeded;
  for (const RealInput& input : link.real_inputs) {
    is_good = is_good && AddReal(real, input) == kSucceeded;
  }
  if (is_good && TakePtx(real, with_anchor) == kSucceeded) {
    text = link.anchor.LinkablePtx(std::move(with_anchor));
  }
  CallReal("nvJitLinkDestroy", &real);
}

// Links the LTO-IR and adds its PTX as a further input.
int CompleteReal(LinkState& link) {
  std::string text;
  if (const int result = TakePtx(link.real, text); result != kSucceeded) return result;
  if (!link.anchor.called().empty()) LinkWithAnchor(link, text);
  return Answer(link, link.images.AddPtx("PTX of the LTO-IR", text));
}

// Calls `use` with the link, for one thread at a time.
template <typename Use>
int With(JitLink* link, const void* argument, const Use& use) {
  if (link == nullptr || argument == nullptr) return kNullInput;
  const MutexLock lock(link->mutex);
  return use(link->state);
}

// The error log is the message of this library if there is one. Any other log is that of the real
// library, or empty if there is no link in the real library.
int LogSize(JitLink* link, const char* real_function, bool is_error, std::size_t* bytes) {
  return With(link, bytes, [&](LinkState& open) {
    const bool is_own = is_error && !open.error.empty();
    if (!is_own && open.real != nullptr) return CallReal(real_function, open.real, bytes);
    *bytes = is_own ? open.error.size() + 1 : 0;
    return kSucceeded;
  });
}

int Log(JitLink* link, const char* real_function, bool is_error, char* log) {
  return With(link, log, [&](LinkState& open) {
    const bool is_own = is_error && !open.error.empty();
    if (!is_own && open.real != nullptr) return CallReal(real_function, open.real, log);
    if (is_own) std::memcpy(log, open.error.c_str(), open.error.size() + 1);
    return kSucceeded;
  });
}

}  // namespace

int Create(JitLink** link, std::uint32_t option_count, const char** options) {
  if (link == nullptr || (option_count != 0 && options == nullptr)) return kNullInput;
  std::vector<const char*> asked(options, options + option_count);
  if (std::ranges::find(asked, nullptr) != asked.end()) return kNullInput;
  const auto has = [&](std::string_view option) {
    return std::ranges::find(asked, option) != asked.end();
  };
  auto made = std::make_unique<JitLink>();
  const MutexLock lock(made->mutex);
  LinkState& state = made->state;
  for (const std::string_view option : asked) {
    constexpr std::string_view kRegisters = "-maxrregcount=";
    if (!option.starts_with(kRegisters)) continue;
    // The option is null-terminated text of the program.
    state.images.LimitRegisters(
        static_cast<unsigned>(std::strtoul(option.data() + kRegisters.size(), nullptr, 10)));
  }
  int result = kSucceeded;
  if (has("-lto")) {
    if (!has("-ptx")) asked.push_back("-ptx");
    state.real_options.assign(asked.begin(), asked.end());
    for (const std::string& option : state.real_options) state.anchor.RecordOption(option);
    result = CreateReal(state.real_options, &state.real);
    if (result != kSucceeded && state.real == nullptr) return result;
  }
  *link = made.release();
  return result;
}

int Destroy(JitLink** link) {
  if (link == nullptr || *link == nullptr) return kNullInput;
  delete std::exchange(*link, nullptr);
  return kSucceeded;
}

int AddData(JitLink* link, int type, const void* data, std::size_t bytes, const char* name) {
  return With(link, data, [&](LinkState& open) {
    return Add(open, type, {static_cast<const char*>(data), bytes},
               name == nullptr ? "an input without a name" : name);
  });
}

int AddFile(JitLink* link, int type, const char* path) {
  return With(link, path, [&](LinkState& open) {
    const Result<std::string> bytes = ReadLinkInput(path);
    if (!bytes.ok()) return Reject(open, kInvalidInput, bytes.status().message());
    return Add(open, type, *bytes, path);
  });
}

int Complete(JitLink* link) {
  return With(link, link, [&](LinkState& open) {
    if (!open.real_inputs.empty() && !open.images.is_complete()) {
      if (const int result = CompleteReal(open); result != kSucceeded) return result;
    }
    return Answer(open, open.images.Complete());
  });
}

int GetImageSize(JitLink* link, std::size_t* bytes) {
  return With(link, bytes, [&](LinkState& open) {
    if (!open.images.is_complete()) return kInvalidInput;
    *bytes = open.images.image().size();
    return kSucceeded;
  });
}

int GetImage(JitLink* link, void* image) {
  return With(link, image, [&](LinkState& open) {
    if (!open.images.is_complete()) return kInvalidInput;
    std::memcpy(image, open.images.image().data(), open.images.image().size());
    return kSucceeded;
  });
}

int GetLinkedLTOIRSize(JitLink* link, std::size_t* bytes) {
  return With(link, bytes, [&](LinkState& open) {
    if (open.real == nullptr) return kLtoNotEnabled;
    return CallReal("nvJitLinkGetLinkedLTOIRSize", open.real, bytes);
  });
}

int GetLinkedLTOIR(JitLink* link, void* ltoir) {
  return With(link, ltoir, [&](LinkState& open) {
    if (open.real == nullptr) return kLtoNotEnabled;
    return CallReal("nvJitLinkGetLinkedLTOIR", open.real, ltoir);
  });
}

int GetErrorLogSize(JitLink* link, std::size_t* bytes) {
  return LogSize(link, "nvJitLinkGetErrorLogSize", /*is_error=*/true, bytes);
}
int GetErrorLog(JitLink* link, char* log) {
  return Log(link, "nvJitLinkGetErrorLog", /*is_error=*/true, log);
}
int GetInfoLogSize(JitLink* link, std::size_t* bytes) {
  return LogSize(link, "nvJitLinkGetInfoLogSize", /*is_error=*/false, bytes);
}
int GetInfoLog(JitLink* link, char* log) {
  return Log(link, "nvJitLinkGetInfoLog", /*is_error=*/false, log);
}

}  // namespace gpushared::drop_in
