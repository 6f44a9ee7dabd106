// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu_server.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace gpushared::testing {
namespace {

constexpr const char* kUuid = "GPU-a0000000-fa4e-4000-8000-000000000000";

}  // namespace

GpuServer::GpuServer(const GpuServerOptions& options) {
  std::ofstream(directory_ / "control").flush();
  SetMachine(R"({"gpus": [{"board": "H200"}]})");
  const std::pair<const char*, std::string> variables[] = {
      {"LD_LIBRARY_PATH", GPUSHARED_FAKE_DRIVERS},
      {"FAKE_NVML", directory_ / "nvml.json"},
      {"FAKE_CUDA", std::string("uuid 0 ") + kUuid + "; control " + directory_ / "control" +
                        "; log " + directory_ / "calls" + "; " + options.statements},
      {"CUDA_MPS_PIPE_DIRECTORY", directory_.path()}};
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
  std::vector<std::string> arguments = {"--device", "cuda:0", "--code-cache", "none"};
  if (std::ranges::find(options.arguments, "--ptx-compiler") == options.arguments.end()) {
    arguments.insert(arguments.end(),
                     {"--ptx-compiler", options.has_compiler ? GPUSHARED_PLAIN_PTXAS : "none"});
  }
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  server_ = std::make_unique<ServerProcess>(std::move(arguments));
  // Removes the variables from the test's own environment, because only the server and its workers
  // need them.
  for (const auto& [name, value] : variables) ::unsetenv(name);
}

GpuServer::~GpuServer() { server_.reset(); }

void GpuServer::Script(const std::string& statement) const {
  std::ofstream(directory_ / "control", std::ios::app) << statement + "\n";
}

std::vector<std::string> GpuServer::Calls() const {
  std::ifstream file(directory_ / "calls");
  std::vector<std::string> calls;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string thread, call;
    if (words >> thread >> call) calls.push_back(std::move(call));
  }
  return calls;
}

void GpuServer::SetMachine(const std::string& json) const {
  // Replaced atomically, because the server may be reading it.
  const std::string path = directory_ / "nvml.json";
  std::ofstream(path + ".new") << json;
  std::filesystem::rename(path + ".new", path);
}

}  // namespace gpushared::testing
