// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/trace/event.h"

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

CutText GetText(Cut cut) {
  switch (cut) {
    case Cut::kStopped:
      return {"", "asked to stop", "was stopped"};
    case Cut::kNotAsked:
      return {"", "the policy let it run", "could be stopped; the policy let it run"};
    case Cut::kDeviceCannot:
      return {"the device cannot", "the device stops between commands only",
              "could not be cut: this device stops between commands only"};
    case Cut::kTooShort:
      return {"too short", "too short to be worth a stop",
              "was not cut: its predicted time was too short to be worth a stop"};
    case Cut::kRanAsItIs:
      return {"as it is", "this launch could not be stopped",
              "could not be cut: it ran as it is, since its kernel has no form that can be "
              "stopped, its blocks are short, or nobody more urgent was connected when it began"};
    case Cut::kHighClass:
      return {"", "of the high class", "was not cut: it is of the high class"};
    case Cut::kSlowForm:
      return {"slow form", "its stoppable form takes too long",
              "was not cut: the form of its kernel that can be stopped was measured to take too "
              "much longer than the kernel as it is"};
  }
  return {};
}

}  // namespace gpushared::trace
