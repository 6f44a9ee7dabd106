// SPDX-License-Identifier: Apache-2.0
// Replaces the executor's operations in programs that only decode, because the operations are gcc's
// C++ (_Float16) and a fuzzer needs clang. Every operation exists, so that the decoder never
// rejects an instruction for lack of one.
#include <string_view>

#include "server/device/cpu/executor/op_table.h"

namespace gpushared::device::executor {

Handler FindHandler(Flavour /*flavour*/, std::string_view /*key*/) {
  return [](Warp&, const MicroOp*) -> const MicroOp* { return nullptr; };
}

}  // namespace gpushared::device::executor
