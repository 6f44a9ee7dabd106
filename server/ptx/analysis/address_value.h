// SPDX-License-Identifier: Apache-2.0
// Abstract value that may be an address: the words of a kernel's parameters from which it was
// computed, and whether it may contain an address from another source.
//
// A word is 8 bytes of the parameters that a single load reads. It holds an address or a number.
// Numbers of 32 bits or less are never addresses.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_ADDRESS_VALUE_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_ADDRESS_VALUE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>

namespace gpushared::ptx {

// Limit for the words that one kernel reads from its parameters. A parameter whose address is used
// counts as one word.
inline constexpr std::size_t kAddressWordsMax = 128;
using AddressWords = std::bitset<kAddressWordsMax>;

struct AddressValue {
  enum class Kind : std::uint8_t {
    kNothing,  // Not written yet.
    // Certainly an address: the address of one of its roots, plus numbers. Roots are the words of
    // `roots`, module variables, and memory of the thread or the block.
    kPointer,
    kNumber,  // Anything computed from the words of `roots` and `others`.
  };
  // How an address that is not in a parameter may have entered the value.
  enum class Foreign : std::uint8_t {
    kNo,
    kMemory,  // Loaded from memory.
    kParts,   // Combined from smaller values.
    kBits,    // Combined by exclusive or, which can hide addresses.
    kOther,
  };

  // A value that depends on no word.
  static AddressValue Number();
  static AddressValue FromElsewhere(Foreign how, std::uint32_t line);
  static AddressValue Own();
  static AddressValue Variable();
  // Result of an unspecified operation on `a` and `b`: a number that depends on both. It is foreign
  // if either of them is.
  static AddressValue Mixed(const AddressValue& a, const AddressValue& b);
  static AddressValue Sum(const AddressValue& a, const AddressValue& b);
  static AddressValue Difference(const AddressValue& a, const AddressValue& b);
  static AddressValue Negative(const AddressValue& a);
  // Number that depends on `a` but is no longer an address: a product, a quotient, a value of 32
  // bits.
  static AddressValue Reduced(const AddressValue& a);
  // `a` after the program has declared it to be an address of global memory.
  static AddressValue AsPointer(const AddressValue& a);
  // Eight bytes that are loaded from the address.
  static AddressValue Loaded(const AddressValue& address, std::uint32_t line);

  // Adds the possible values of `other` to those of this value. Returns whether that changed this
  // value.
  bool Join(const AddressValue& other);

  bool IsNothing() const { return kind == Kind::kNothing; }
  bool IsForeign() const { return foreign != Foreign::kNo; }
  bool HasOtherRoots() const { return is_variable || is_own || parameters.any(); }
  AddressWords Words() const { return roots | others; }

  Kind kind = Kind::kNothing;
  Foreign foreign = Foreign::kNo;
  std::uint32_t foreign_line = 0;
  AddressWords roots;
  AddressWords others;         // Words on which numbers in the value depend.
  AddressWords parameters;     // Roots: the addresses of these parameters themselves.
  bool is_variable = false;    // Root: a variable of the module.
  bool is_own = false;         // Root: shared or local memory.
  bool is_difference = false;  // A word of `others` may have been subtracted, as in q - p.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_ADDRESS_VALUE_H_
