// SPDX-License-Identifier: Apache-2.0
// Checks that every name of a module is unambiguous.
//
// In PTX an inner { } may redeclare a name of an outer one. A register, a label, a function and a
// variable may have the same name, and the compiler decides which of them an operand means. A pass
// that decided differently would mask one register while the compiled code uses another one.
// Therefore passes that isolate a client only accept text in which every name has a single
// interpretation.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_PLAIN_NAMES_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_PLAIN_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Names that are declared at a position of the text. Thread-compatible.
class DeclaredNames {
 public:
  enum class Kind : std::uint8_t { kRegister, kOther };

  // Returns false if the name, or a name of the family, is already declared. A family `stem`<count>
  // is stem0, stem1, ... `depth` is the number of { } around the declaration.
  bool Declare(const std::string& name, Kind kind, std::uint32_t depth);
  bool DeclareFamily(const std::string& stem, std::uint32_t count, std::uint32_t depth);

  bool Has(std::string_view name) const { return Find(name).has_value(); }
  bool HasRegister(std::string_view name) const;
  bool HasAnyOf(const std::string& stem, std::uint32_t count) const;
  struct Declaration {
    Kind kind = Kind::kRegister;
    std::uint32_t depth = 0;
  };
  std::optional<Declaration> Find(std::string_view name) const;

  // ReturnTo undoes all declarations since the mark.
  std::size_t Mark() const { return changes_.size(); }
  void ReturnTo(std::size_t mark);

 private:
  struct Change {
    std::string name;  // A name, or the stem of a family.
    bool is_family = false;
    std::uint32_t lowest_before = 0;  // Previous entry of lowest_ for the name's stem; 0 if none.
  };
  struct Family {
    std::uint32_t count = 0;
    std::uint32_t depth = 0;
  };
  std::unordered_map<std::string, Declaration> names_;
  std::unordered_map<std::string, Family> families_;  // Families of registers.
  // By stem: 1 plus the lowest number of a declared name with this stem.
  std::unordered_map<std::string, std::uint32_t> lowest_;
  std::vector<Change> changes_;
};

// Uses the state of the module at the time of construction. Thread-compatible.
class PlainNames {
 public:
  explicit PlainNames(const Module& module);

  // Returns the reason why a name outside of functions is ambiguous, or "".
  const std::string& reason() const { return reason_; }

  // Returns the reason why a name in the function is ambiguous, or "". The function must have a
  // body. Linear in the length of the text. Names are unambiguous if all of these hold:
  //   * Each name except a label is declared before its first use.
  //   * No declaration hides another one, or a name of the module or the hardware. An inner
  //     register may hide an outer one if no instruction precedes it, as in inlined assembly.
  //   * Written operands are registers, or parameters of the body that receive results of calls.
  //   * Calls name a function, and nothing follows the arguments.
  std::string WhyNot(const Function& function) const;

 private:
  DeclaredNames module_;
  std::string reason_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_PLAIN_NAMES_H_
