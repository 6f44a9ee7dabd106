// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_LTO_ANCHOR_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_LTO_ANCHOR_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace gpushared::drop_in {

// Keeps functions of LTO-IR that are called only from PTX. nvJitLink rejects PTX inputs when it
// produces PTX, so its inputs do not contain the calls, and nvJitLink would drop the functions. To
// prevent that, an input generated here, the anchor, takes the addresses of the functions in an
// LTO-IR kernel.
//
// Thread-compatible.
class LtoAnchor {
 public:
  // Adds a PTX input of the link.
  void RecordPtx(std::string_view text);
  // Records an option of nvJitLinkCreate; -arch determines the architecture of the anchor.
  void RecordOption(std::string_view option);

  // Returns the functions that PTX inputs call but none defines.
  std::set<std::string> called() const;
  // Returns the LTO-IR of the anchor, compiled by the program's NVRTC. No value if the process has
  // no NVRTC or if NVRTC fails. Requires that called() is not empty.
  std::optional<std::string> LtoIr() const;
  // Makes nvJitLink's PTX linkable with the other inputs: makes the called functions visible and
  // removes the anchor.
  std::string LinkablePtx(std::string text) const;

 private:
  std::set<std::string> declared_;
  std::set<std::string> defined_;
  std::string architecture_;  // Such as "80" or "90a".
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_LTO_ANCHOR_H_
