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
    case Work::kTurn:
      return "turn";
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
              "was not preemptible: this device stops between commands only"};
    case Cut::kTooShort:
      return {"too short", "too short to be worth a stop",
              "was not preempted: its predicted time was too short"};
    case Cut::kRanAsItIs:
      return {"as it is", "this launch could not be stopped",
              "was not preemptible: its kernel has no preemptible form, its blocks are short, or "
              "no client with higher priority was connected when it started"};
    case Cut::kHighClass:
      return {"", "of the high class", "was not preempted: it is of the high class"};
    case Cut::kSlowForm:
      return {
          "slow form", "its preemptible form is too slow",
          "was not preemptible: the preemptible form of its kernel was measured to be too slow"};
  }
  return {};
}

}  // namespace gpushared::trace
