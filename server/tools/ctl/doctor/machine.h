// SPDX-License-Identifier: Apache-2.0
// Looks for the parts of a machine that a server needs.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_MACHINE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_MACHINE_H_

#include <cstdint>
#include <string>

#include "gpushared/client.h"

#include "server/device/inventory/read_inventory.h"
#include "server/tools/ctl/doctor/finding.h"

namespace gpushared::server::doctor {

// NVIDIA's driver, the GPUs with their MIG and compute modes, and an MPS daemon in the way.
Findings CheckGpus(const device::Inventory& inventory);

// The compiler for fenced modules, and the sandbox that it runs in. `ptxas`: its path; empty: where
// CUDA is usually installed. `has_gpus`: without one nothing is compiled.
Findings CheckCompiler(const std::string& ptxas, bool has_gpus);

// `available_bytes`: what MemAvailable says; 0: unknown.
Finding CheckMemory(std::uint64_t available_bytes);
std::uint64_t AvailableMemory();

// The server at the socket of `asked`, and whether it takes this user as a client of that class.
struct ServerLook {
  Findings findings;
  bool answers = false;
  // Every device of it takes PTX alone.
  bool takes_ptx_only = true;
};
ServerLook CheckServer(const ClientOptions& asked);

// The drop-in in this directory; empty: none was found.
Findings CheckDropIn(const std::string& directory);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_MACHINE_H_
