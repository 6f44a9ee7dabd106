// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_GPU_SERVER_H_
#define GPUSHARED_TESTS_SUPPORT_GPU_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {

struct GpuServerOptions {
  std::string statements;              // For the fake driver in every worker (fake_cuda.h).
  std::vector<std::string> arguments;  // Additional arguments of the server.
  // Whether the server has a compiler (without a cache) whose code the fake driver accepts.
  bool has_compiler = false;
};

// A real server with one GPU, cuda:0, of the fake driver and the fake NVML.
//
// Thread-compatible.
class GpuServer {
 public:
  explicit GpuServer(const GpuServerOptions& options = {});
  ~GpuServer();
  GpuServer(const GpuServer&) = delete;
  GpuServer& operator=(const GpuServer&) = delete;

  ServerProcess& server() { return *server_; }
  const std::string& socket() const { return server_->socket(); }
  // Applies a statement of the fake driver, in running workers at their next driver call.
  void Script(const std::string& statement) const;
  // Returns the driver calls that the workers have made so far, in order: "cuInit", ...
  std::vector<std::string> Calls() const;
  // Replaces the machine that NVML describes from now on (fake_nvml.h).
  void SetMachine(const std::string& json) const;
  const std::string& directory() const { return directory_.path(); }

 private:
  ScratchDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_GPU_SERVER_H_
