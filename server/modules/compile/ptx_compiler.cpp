// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/ptx_compiler.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <span>
#include <utility>

namespace gpushared::compile {
namespace {

constexpr std::array<const char*, 3> kUsualPlaces = {"/usr/local/cuda/bin/ptxas",
                                                     "/opt/cuda/bin/ptxas", "/usr/bin/ptxas"};

Result<std::string> FindProgram(const std::string& wish) {
  if (!wish.empty()) {
    if (::access(wish.c_str(), X_OK) == 0) return wish;
    return Status(StatusCode::kNotFound, "there is no PTX compiler '" + wish + "'");
  }
  for (const char* place : kUsualPlaces) {
    if (::access(place, X_OK) == 0) return std::string(place);
  }
  return Status(StatusCode::kNotFound,
                "there is no PTX compiler (ptxas) in the standard locations");
}

std::string OneLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<PtxCompiler>> PtxCompiler::Create(PtxCompilerOptions options) {
  Result<std::string> program = FindProgram(options.program);
  if (!program.ok()) return program.status();
  options.program = *std::move(program);
  const Result<SandboxResult> asked =
      RunSandboxed({options.program, "--version"}, {}, options.limits);
  if (!asked.ok()) return asked.status();
  if (asked->exit_code != 0 || asked->text.empty()) {
    return Status(StatusCode::kNotFound, "'" + options.program + "' does not print its version");
  }
  ipc::UniqueFd abandoned(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (abandoned.get() < 0) return Status(StatusCode::kInternal, "compiler: no descriptor is left");
  std::unique_ptr<PtxCompiler> compiler(
      new PtxCompiler(std::move(options), OneLine(asked->text), std::move(abandoned)));
  if (!compiler->options_.cache_directory.empty()) {
    Result<CodeCache> cache =
        CodeCache::Open(compiler->options_.cache_directory, compiler->options_.cache_bytes_max);
    if (cache.ok()) {
      const MutexLock lock(compiler->mutex_);
      compiler->cache_ = *std::move(cache);
    } else {
      compiler->Warn(cache.status());
    }
  }
  return compiler;
}

Digest PtxCompiler::GetKey(std::string_view ptx, std::string_view architecture) const {
  Sha256 hash;
  for (const std::string_view field : {std::string_view(version_), architecture, ptx}) {
    hash.AddField(field);
  }
  return hash.Finish();
}

void PtxCompiler::Warn(const Status& why) const {
  if (options_.warn) options_.warn(why.message());
}

std::optional<std::vector<std::byte>> PtxCompiler::FindKept(const Digest& key) {
  std::optional<std::vector<std::byte>> found;
  bool was_damaged = false;
  {
    const MutexLock lock(mutex_);
    if (!cache_) return std::nullopt;
    const std::uint64_t damaged = cache_->damaged();
    found = cache_->Find(key);
    was_damaged = cache_->damaged() != damaged;
  }
  if (was_damaged) {
    Warn({StatusCode::kInternal, "code cache: " + Hexadecimal(key) + " was damaged"});
  }
  return found;
}

std::optional<std::vector<std::byte>> PtxCompiler::Find(std::string_view ptx,
                                                        std::string_view architecture) {
  return FindKept(GetKey(ptx, architecture));
}

void PtxCompiler::Abandon() { (void)::eventfd_write(abandoned_.get(), 1); }

Result<std::vector<std::byte>> PtxCompiler::Compile(std::string_view ptx,
                                                    std::string_view architecture) {
  const Digest key = GetKey(ptx, architecture);
  if (std::optional<std::vector<std::byte>> found = FindKept(key)) return *std::move(found);
  Result<SandboxResult> run =
      RunSandboxed({options_.program, "--gpu-name=" + std::string(architecture), "-O3",
                    "--output-file", kSandboxOutput, kSandboxInput},
                   std::as_bytes(std::span(ptx)), options_.limits, abandoned_.get());
  if (!run.ok()) return run.status();
  if (run->exit_code != 0 || run->output.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "the PTX compiler rejects it: " + OneLine(std::move(run->text)));
  }
  Status stored;
  {
    const MutexLock lock(mutex_);
    if (cache_) stored = cache_->Store(key, run->output);
  }
  if (!stored.ok()) Warn(stored);
  return std::move(run->output);
}

}  // namespace gpushared::compile
