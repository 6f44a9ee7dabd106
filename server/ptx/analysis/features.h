// SPDX-License-Identifier: Apache-2.0
// Features that a function needs of a device, beyond single instructions.

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
  kClusters,             // Needs clusters of blocks, by directive or by instruction.
  kDynamicParallelism,   // Launches kernels.
  kDeviceHeap,           // malloc and free.
  kPrint,                // vprintf
  kAssertion,            // __assertfail
  kIndirectCall,         // Calls through a register.
  kTrap,                 // trap and brkpt
  // KernelScanner (kernel_scan.h) finds these, which need more than one function's text.
  kModuleVariables,       // .global and .const variables of the module.
  kMissingFunction,       // Calls what is neither in the module nor built in.
  kFunctionAddress,       // Takes the address of a function.
  kBlockIndexInFunction,  // A .func reads %ctaid or %nctaid.
  kWaitsForBlocks,        // Looks in a loop at what other blocks write.
  kWaitsForEarlierBlocks  // The same, but for blocks of a lower index only.
};

// For messages: "grid-wide synchronisation".
std::string_view FeatureName(Feature feature);

struct FeatureUse {
  Feature feature = Feature::kPrint;
  std::uint32_t line = 0;  // PTX line of its first use.
};

// Each feature that the function's own body and directives use, once, in order of first
// use. Functions that it calls are not followed.
std::vector<FeatureUse> FindFeatures(const Function& function);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_FEATURES_H_
