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
  std::string statements;              // For the fake driver, in every worker (fake_cuda.h).
  std::vector<std::string> arguments;  // More of the server's.
  bool has_compiler = false;           // One whose code the fake driver takes; keeps nothing.
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
  // Holds in the workers that run now, as of their next call of the driver.
  void Script(const std::string& statement) const;
  // The calls of the driver that the workers have made so far, in order: "cuInit", ...
  std::vector<std::string> Calls() const;
  // What NVML says from now on (fake_nvml.h).
  void SetMachine(const std::string& json) const;
  const std::string& directory() const { return directory_.path(); }

 private:
  ScratchDirectory directory_;
  std::unique_ptr<ServerProcess> server_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_GPU_SERVER_H_
