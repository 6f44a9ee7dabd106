// SPDX-License-Identifier: Apache-2.0
#include "server/trace/event.h"

namespace gpushared::trace {

std::string_view WorkText(Work work) {
  switch (work) {
    case Work::kLaunch:
      return "kernel";
    case Work::kCopyToDevice:
      return "copy to device";
    case Work::kCopyToHost:
      return "copy to host";
    case Work::kCopyOnDevice:
      return "copy on device";
    case Work::kFill:
      return "fill";
    case Work::kGraph:
      return "graph";
  }
  return "";
}

}  // namespace gpushared::trace
