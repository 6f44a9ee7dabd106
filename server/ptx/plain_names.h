// SPDX-License-Identifier: Apache-2.0
// Whether every name of a module can mean one thing only.
//
// PTX lets an inner { } declare what an outer one has, and names of registers, labels, functions
// and variables meet in one text. What a name means then is for the compiler to say, and a pass
// that reads it otherwise masks one register while another one is used. Passes that keep a client
// in its memory therefore take only text in which no name can be read in two ways.

#ifndef GPUSHARED_SERVER_PTX_PLAIN_NAMES_H_
#define GPUSHARED_SERVER_PTX_PLAIN_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "server/ptx/module.h"

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

  // What was declared since the mark is forgotten.
  std::size_t Mark() const { return changes_.size(); }
  void ReturnTo(std::size_t mark);

 private:
  struct Change {
    std::string name;  // Of a name, or a stem.
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

  // Why some name in the function, which has a body, is not plain, or "". Each name is declared
  // before it stands somewhere, but labels; no declaration hides another one, nor what the module
  // or the hardware has by that name, but a register one of an outer { } where no instruction comes
  // before (inlined assembly does); what is written is a register; calls name a function and
  // nothing behind its arguments. Takes time in the order of the text's length.
  std::string WhyNot(const Function& function) const;

 private:
  DeclaredNames module_;
  std::string reason_;
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_PLAIN_NAMES_H_
