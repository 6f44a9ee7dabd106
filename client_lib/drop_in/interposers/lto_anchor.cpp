// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/interposers/lto_anchor.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

constexpr std::string_view kAnchor = "gpushared_anchor";
// Functions that a compiler provides without a definition.
constexpr std::array<std::string_view, 4> kBuiltIn = {"__assertfail", "free", "malloc", "vprintf"};

bool IsBuiltIn(std::string_view name) {
  return std::ranges::find(kBuiltIn, name) != kBuiltIn.end() || name.starts_with("cuda");
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Returns the name that follows `.func` and an optional parenthesized result. Empty for names that
// C cannot have.
std::string_view NameIn(std::string_view declaration) {
  const auto skip_blanks = [&] {
    const std::size_t first = declaration.find_first_not_of(" \t\r\n");
    declaration.remove_prefix(std::min(first, declaration.size()));
  };
  skip_blanks();
  if (declaration.starts_with('(')) {
    const std::size_t end = declaration.find(')');
    declaration.remove_prefix(end == std::string_view::npos ? declaration.size() : end + 1);
    skip_blanks();
  }
  const auto end = std::ranges::find_if_not(declaration, IsNameCharacter);
  if (end != declaration.end() && (*end == '$' || *end == '%')) return {};
  return {declaration.begin(), end};
}

// Calls `see` with the position of each `.func`, the beginning of its line, and its name.
template <typename See>
void ForEachFunction(std::string_view text, const See& see) {
  constexpr std::string_view kFunction = ".func";
  for (std::size_t at = text.find(kFunction); at != std::string_view::npos;
       at = text.find(kFunction, at + kFunction.size())) {
    const std::size_t line = text.rfind('\n', at) + 1;  // 0 in the first line.
    see(at, text.substr(line, at - line), NameIn(text.substr(at + kFunction.size())));
  }
}

// Returns a function of the NVRTC that the program has loaded, or of the interposer for it.
template <typename Function>
Function Nvrtc(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

std::optional<std::string> Compile(const std::string& source, const std::string& architecture) {
  using Program = void*;
  const auto create = Nvrtc<int (*)(Program*, const char*, const char*, int, const char* const*,
                                    const char* const*)>("nvrtcCreateProgram");
  const auto compile = Nvrtc<int (*)(Program, int, const char* const*)>("nvrtcCompileProgram");
  const auto size = Nvrtc<int (*)(Program, std::size_t*)>("nvrtcGetLTOIRSize");
  const auto get = Nvrtc<int (*)(Program, char*)>("nvrtcGetLTOIR");
  const auto destroy = Nvrtc<int (*)(Program*)>("nvrtcDestroyProgram");
  if (!create || !compile || !size || !get || !destroy) return {};
  Program program = nullptr;
  if (create(&program, source.c_str(), "gpushared_anchor.cu", 0, nullptr, nullptr) != 0) return {};
  const std::string architecture_option = "-arch=compute_" + architecture;
  const std::array<const char*, 3> options = {architecture_option.c_str(), "-dlto", "-rdc=true"};
  std::optional<std::string> made;
  std::size_t bytes = 0;
  if (compile(program, static_cast<int>(options.size()), options.data()) == 0 &&
      size(program, &bytes) == 0) {
    made.emplace(bytes, '\0');
    if (get(program, made->data()) != 0) made.reset();
  }
  static_cast<void>(destroy(&program));
  return made;
}

}  // namespace

void LtoAnchor::RecordPtx(std::string_view text) {
  ForEachFunction(text, [&](std::size_t, std::string_view before, std::string_view name) {
    if (name.empty() || IsBuiltIn(name)) return;
    if (before.find(".extern") != std::string_view::npos) declared_.emplace(name);
    if (before.find(".visible") != std::string_view::npos) defined_.emplace(name);
  });
}

void LtoAnchor::RecordOption(std::string_view option) {
  constexpr std::string_view kArchitecture = "-arch=";
  if (!option.starts_with(kArchitecture)) return;
  const std::size_t number = option.find('_');
  if (number != std::string_view::npos) architecture_ = option.substr(number + 1);
}

std::set<std::string> LtoAnchor::called() const {
  std::set<std::string> names;
  std::ranges::set_difference(declared_, defined_, std::inserter(names, names.end()));
  return names;
}

std::optional<std::string> LtoAnchor::LtoIr() const {
  std::string declarations, addresses;
  std::size_t count = 0;
  for (const std::string& name : called()) {
    declarations += "extern \"C\" __device__ void " + name + "();\n";
    addresses += "  into[" + std::to_string(count++) + "] = (void*)" + name + ";\n";
  }
  const std::string source = declarations + "extern \"C\" __global__ void " + std::string(kAnchor) +
                             "(void** into) {\n" + addresses + "}\n";
  std::optional<std::string> made = Compile(source, architecture_);
  if (!made) {
    LogLine(
        "nvJitLink: PTX calls functions that may be in LTO-IR, and NVRTC could not compile an "
        "anchor for "
        "them: " +
        *called().begin() + ", ...");
  }
  return made;
}

std::string LtoAnchor::LinkablePtx(std::string text) const {
  const std::set<std::string> names = called();
  std::string made;
  std::size_t taken = 0;
  ForEachFunction(text, [&](std::size_t at, std::string_view before, std::string_view name) {
    if (!before.empty() || !names.contains(std::string(name))) return;
    made.append(text, taken, at - taken).append(".visible ");
    taken = at;
  });
  made.append(text, taken);
  // The anchor is kept if debug information refers to it; it is never launched.
  const std::size_t begin = made.find(".visible .entry " + std::string(kAnchor) + "(");
  constexpr std::string_view kEnd = "\n}\n";
  const std::size_t end = made.find(kEnd, begin);
  if (begin != std::string::npos && end != std::string::npos &&
      made.find("\t.section") == std::string::npos) {
    made.erase(begin, end + kEnd.size() - begin);
  }
  return made;
}

}  // namespace gpushared::drop_in
