// SPDX-License-Identifier: Apache-2.0
#include "server/modules/code_compiler.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "server/modules/compile/ptx_compiler.h"

namespace gpushared::server {
namespace {

class OutsideCompiler : public device::CodeCompiler {
 public:
  explicit OutsideCompiler(std::unique_ptr<compile::PtxCompiler> compiler)
      : compiler_(std::move(compiler)) {}
  Result<std::vector<std::byte>> Compile(std::string_view ptx,
                                         std::string_view architecture) override {
    return compiler_->Compile(ptx, architecture);
  }
  std::optional<std::vector<std::byte>> Find(std::string_view ptx,
                                             std::string_view architecture) override {
    return compiler_->Find(ptx, architecture);
  }
  void Abandon() override { compiler_->Abandon(); }

 private:
  const std::unique_ptr<compile::PtxCompiler> compiler_;
};

std::string CacheDirectory(const Config& config) {
  if (config.code_cache == Config::kNone) return "";
  if (!config.code_cache.empty()) return config.code_cache;
  // Directory that systemd creates for the service.
  if (const char* directory = std::getenv("CACHE_DIRECTORY"); directory != nullptr)
    return directory;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/gpushared";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/gpushared";
  return "";
}

// Compiling most modules takes more resources than reading them, so the limits are higher.
compile::SandboxLimits GetLimits(const loader::LoadLimit& load) {
  return {.time = std::chrono::ceil<std::chrono::seconds>(3 * load.time),
          .memory_bytes = 4 * load.memory_bytes};
}

}  // namespace

device::MakeCodeCompiler GetCompiler(const Config& config,
                                     std::function<void(const std::string&)> warn) {
  if (config.ptx_compiler == Config::kNone || config.ptx_compiler == Config::kDriver) return {};
  compile::PtxCompilerOptions options = {.program = config.ptx_compiler,
                                         .limits = GetLimits(config.load_limit),
                                         .cache_directory = CacheDirectory(config),
                                         .warn = std::move(warn)};
  return [options]() -> std::unique_ptr<device::CodeCompiler> {
    Result<std::unique_ptr<compile::PtxCompiler>> compiler = compile::PtxCompiler::Create(options);
    if (compiler.ok()) return std::make_unique<OutsideCompiler>(*std::move(compiler));
    options.warn(std::string(device::kWithoutCompiler) + ": " + compiler.status().message());
    return nullptr;
  };
}

}  // namespace gpushared::server
