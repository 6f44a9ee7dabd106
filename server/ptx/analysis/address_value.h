// SPDX-License-Identifier: Apache-2.0
// What is known of a value that may be an address: from which words of a kernel's parameters it was
// computed, and whether it may contain an address that came another way.
//
// A word is 8 bytes of the parameters that are read at once; a launch puts an address or a number
// there. Numbers of 32 bits and less are never addresses.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_ADDRESS_VALUE_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_ADDRESS_VALUE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>

namespace gpushared::ptx {

// Words of one kernel's parameters, and whole parameters whose words are read at a computed place.
inline constexpr std::size_t kAddressWordsMax = 128;
using AddressWords = std::bitset<kAddressWordsMax>;

struct AddressValue {
  enum class Kind : std::uint8_t {
    kNothing,  // Nothing was written yet.
    // An address for certain: one of its roots, and numbers added to it. Its roots are the words of
    // `roots`, module variables, and memory of the thread or the block.
    kPointer,
    kNumber,  // Anything that follows from the words of `roots` and `others`.
  };
  // How an address that is in no parameter may have come into it.
  enum class Foreign : std::uint8_t {
    kNo,
    kMemory,  // Loaded.
    kParts,   // Put together of smaller values.
    kBits,    // By exclusive or, which hides addresses in each other.
    kOther,
  };

  // One that depends on no word.
  static AddressValue Number();
  static AddressValue FromElsewhere(Foreign how, std::uint32_t line);
  static AddressValue Own();
  static AddressValue Variable();
  // What operations make of values that are something. Any number of the two; foreign parts stay.
  static AddressValue Mixed(const AddressValue& a, const AddressValue& b);
  static AddressValue Sum(const AddressValue& a, const AddressValue& b);
  static AddressValue Difference(const AddressValue& a, const AddressValue& b);
  static AddressValue Negative(const AddressValue& a);
  // No address any more: a product, a quotient, a value of 32 bits.
  static AddressValue Reduced(const AddressValue& a);
  // `a` where the program calls it an address of global memory.
  static AddressValue AsPointer(const AddressValue& a);
  // Eight bytes that are loaded from there.
  static AddressValue Loaded(const AddressValue& address, std::uint32_t line);

  // Takes in what else it may be. Whether that changed anything.
  bool Join(const AddressValue& other);

  bool IsNothing() const { return kind == Kind::kNothing; }
  bool IsForeign() const { return foreign != Foreign::kNo; }
  bool HasOtherRoots() const { return is_variable || is_own || parameters.any(); }
  AddressWords Words() const { return roots | others; }

  Kind kind = Kind::kNothing;
  Foreign foreign = Foreign::kNo;
  std::uint32_t foreign_line = 0;
  AddressWords roots;
  AddressWords others;         // Words that numbers in it depend on.
  AddressWords parameters;     // A root: places in these parameters.
  bool is_variable = false;    // A root: a variable of the module.
  bool is_own = false;         // A root: shared or local memory.
  bool is_difference = false;  // A word of `others` may have been taken away: q - p.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_ADDRESS_VALUE_H_
