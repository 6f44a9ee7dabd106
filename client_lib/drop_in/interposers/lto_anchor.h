// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_LTO_ANCHOR_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_LTO_ANCHOR_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace gpushared::drop_in {

// Functions of LTO-IR that only PTX calls. nvJitLink rejects PTX where it makes PTX. So it does not
// know of these calls, and drops the functions. A kernel in LTO-IR of our own, the anchor, takes
// their addresses. Thread-compatible; no function fails otherwise than it says.
class LtoAnchor {
 public:
  // A PTX input of the link.
  void SeePtx(std::string_view text);
  // An option of nvJitLinkCreate: the anchor gets its architecture.
  void SeeOption(std::string_view option);

  // Functions that the PTX inputs call and none of them defines.
  std::set<std::string> called() const;
  // The LTO-IR of the anchor, by the program's NVRTC. None where the process has no NVRTC, or where
  // it rejects. Requires that called() is not empty.
  std::optional<std::string> LtoIr() const;
  // Makes of nvJitLink's PTX what the other inputs can be linked to: the called functions can be
  // seen, and the anchor is gone.
  std::string LinkablePtx(std::string text) const;

 private:
  std::set<std::string> declared_;
  std::set<std::string> defined_;
  std::string architecture_;  // "80", "90a".
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_LTO_ANCHOR_H_
