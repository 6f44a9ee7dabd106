// SPDX-License-Identifier: Apache-2.0
// Device features that a function requires, such as textures or printing. Whether a device supports
// the individual instructions is checked elsewhere.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_FEATURES_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_FEATURES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

enum class Feature : std::uint8_t {
  kGridSynchronisation,  // Reads %envreg1 or %envreg2, as cooperative groups do.
  kTextures,             // Textures and surfaces.
  kClusters,             // Requires clusters, by a directive or an instruction.
  kDynamicParallelism,   // Launches kernels.
  kDeviceHeap,           // malloc and free.
  kPrint,                // vprintf
  kAssertion,            // __assertfail
  kIndirectCall,         // Calls through registers.
  kTrap,                 // trap and brkpt
  // Found by KernelScanner (kernel_scan.h), because they require more than one function's text.
  kModuleVariables,       // .global and .const variables of the module.
  kMissingFunction,       // Calls a function that is neither in the module nor built in.
  kFunctionAddress,       // Takes the address of a function.
  kBlockIndexInFunction,  // A .func reads %ctaid or %nctaid.
  kWaitsForBlocks,        // Polls memory that other blocks write.
  kWaitsForEarlierBlocks  // Like kWaitsForBlocks, but only for blocks with a lower index.
};

// Name for messages: "grid-wide synchronisation".
std::string_view FeatureName(Feature feature);

struct FeatureUse {
  Feature feature = Feature::kPrint;
  std::uint32_t line = 0;  // PTX line of the first use.
};

// Returns each feature that the function's own body and directives use, once, in order of the first
// use. Does not follow calls.
std::vector<FeatureUse> FindFeatures(const Function& function);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_FEATURES_H_
