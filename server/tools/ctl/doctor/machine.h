// SPDX-License-Identifier: Apache-2.0
// Checks the parts of a machine that a server needs.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_MACHINE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_MACHINE_H_

#include <cstdint>
#include <string>

#include "gpushared/client.h"

#include "server/device/inventory/read_inventory.h"
#include "server/tools/ctl/doctor/finding.h"

namespace gpushared::server::doctor {

// Checks NVIDIA's driver, the GPUs with their MIG and compute modes, and whether an MPS daemon
// interferes.
Findings CheckGpus(const device::Inventory& inventory);

// Checks ptxas, the compiler for fenced modules, and the sandbox in which it runs. `ptxas` is the
// compiler's path; if empty, CUDA's default locations are searched. Without `has_gpus`, a missing
// compiler is a note instead of a problem.
Findings CheckCompiler(const std::string& ptxas, bool has_gpus);

// `available_bytes` is MemAvailable of /proc/meminfo; 0 if unknown.
Finding CheckMemory(std::uint64_t available_bytes);
std::uint64_t AvailableMemory();

// Result of CheckServer, which checks the server at the socket of `asked`, and whether the server
// admits this user as a client of the class of `asked`.
struct ServerState {
  Findings findings;
  bool answers = false;
  // Whether all devices of the server accept only PTX.
  bool takes_ptx_only = true;
};
ServerState CheckServer(const ClientOptions& asked);

// Checks the drop-in in `directory`. `directory` is empty if no drop-in was found.
Findings CheckDropIn(const std::string& directory);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_MACHINE_H_
