// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl ptx check`: reports which kernels of a file the server can run, preempt and
// confine.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_PTX_CHECK_H_
#define GPUSHARED_SERVER_TOOLS_CTL_PTX_CHECK_H_

#include <cstddef>
#include <span>
#include <string>

#include "gpushared/result.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// Returns {"modules": n, "kernels": [{"name", "module", "runs_on_cpu", "claim", "fence", "contain",
// "reach", "reach_offsets": [...], "reaches_variables", "reasons": [...]}], "problems": [...]}: one
// boolean per check, a reason "runs_on_cpu: ..." for each false one, and a problem for each module
// without valid PTX. Fails like FindModules (module_file.h) for malformed files and other formats.
Result<nlohmann::json> CheckPtx(std::span<const std::byte> file);

// Formats the result as text: one line per kernel, followed by its reasons.
std::string PtxReport(const nlohmann::json& checked);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_PTX_CHECK_H_
