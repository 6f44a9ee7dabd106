// SPDX-License-Identifier: Apache-2.0
// Tells whether every name of a module can mean one thing only.
//
// In PTX an inner { } may declare a name that an outer one has. Names of registers, labels,
// functions and variables meet in one text. The compiler decides what such a name means. A pass
// that reads it differently masks one register while the compiler uses another. So passes that
// keep a client in its memory take only text in which no name can be read in two ways.

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

// Names that are declared at one point of a text. Thread-compatible.
class DeclaredNames {
 public:
  enum class Kind : std::uint8_t { kRegister, kOther };

  // False when the name, or one of the family's, has been declared. A family `stem`<count> is
  // stem0, stem1, ... `depth` counts the { } around the declaration.
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

  // ReturnTo forgets all declarations since the mark.
  std::size_t Mark() const { return changes_.size(); }
  void ReturnTo(std::size_t mark);

 private:
  struct Change {
    std::string name;  // A name, or the stem of a family.
    bool is_family = false;
    std::uint32_t lowest_before = 0;  // Of the name's stem; 0: it had none.
  };
  struct Family {
    std::uint32_t count = 0;
    std::uint32_t depth = 0;
  };
  std::unordered_map<std::string, Declaration> names_;
  std::unordered_map<std::string, Family> families_;       // All of registers.
  std::unordered_map<std::string, std::uint32_t> lowest_;  // Number of a name, + 1, by stem.
  std::vector<Change> changes_;
};

// Thread-compatible; knows of the module what it was when this was made.
class PlainNames {
 public:
  explicit PlainNames(const Module& module);

  // Why some name that stands outside of functions is not plain, or "".
  const std::string& reason() const { return reason_; }

  // Why some name in the function is not plain, or "". The function must have a body. Takes time
  // linear in the text. Names are plain if all of these hold:
  //   * Each name but a label is declared before its first use.
  //   * No declaration hides another one, or a name of the module or the hardware. An inner
  //     register may hide an outer one if no instruction comes before, as in inlined assembly.
  //   * Written operands are registers.
  //   * Calls name a function, and nothing behind its arguments.
  std::string WhyNot(const Function& function) const;

 private:
  DeclaredNames module_;
  std::string reason_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_PLAIN_NAMES_H_
