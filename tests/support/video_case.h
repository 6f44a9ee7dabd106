// SPDX-License-Identifier: Apache-2.0
// Random video instructions that ptxas accepts, and their results by the pseudo-code of the PTX
// ISA, computed with wider integers than the ISA uses.

#ifndef GPUSHARED_TESTS_SUPPORT_VIDEO_CASE_H_
#define GPUSHARED_TESTS_SUPPORT_VIDEO_CASE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace gpushared::testing {

class VideoCase {
 public:
  static constexpr std::array<const char*, 10> kOpcodes = {
      "vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vavrg", "vshl", "vshr", "vmad"};

  // `opcode`: index of the opcode; `elements`: 2 or 4 for the opcodes that have them.
  VideoCase(std::size_t opcode, std::uint32_t elements, std::mt19937& random)
      : opcode_(kOpcodes.at(opcode)), random_(&random) {
    const bool has_several = opcode < 7, has_single = opcode_ != "vavrg";
    if (has_several) elements_ = elements;
    if (!has_single && elements_ == 1) elements_ = 4;
    for (bool* each : {&d_signed_, &a_signed_, &b_signed_}) *each = Flip();
    if (IsShift()) b_signed_ = false;
    if (Is("vset")) d_signed_ = false;
    saturates_ = !Is("vset") && Flip();
    mode_ = Pick(IsShift() ? 2 : 6);
    if (Is("vmad")) {
      ChooseSum();
    } else if (elements_ == 1) {
      ChooseSingle();
    } else {
      ChooseSeveral();
    }
  }

  bool has_third() const { return has_third_; }

  // Returns the instruction with these register names.
  std::string Text(const std::string& d, const std::string& a, const std::string& b,
                   const std::string& c) const {
    constexpr std::array<const char*, 6> kRelations = {"eq", "ne", "lt", "le", "gt", "ge"};
    std::string text = opcode_;
    if (elements_ != 1) text += std::to_string(elements_);
    const auto type = [](bool is_signed) { return is_signed ? ".s32" : ".u32"; };
    if (!Is("vset")) text += type(d_signed_);
    text += std::string(type(a_signed_)) + type(b_signed_);
    if (adds_one_) text += ".po";
    if (saturates_) text += ".sat";
    if (scale_ != 0) text += ".shr" + std::to_string(scale_);
    if (IsShift()) text += mode_ == 0 ? ".clamp" : ".wrap";
    if (Is("vset")) text += std::string(".") + kRelations[mode_];
    text += second_;
    text += " " + d + d_selector_ + ", " + (negates_a_ ? "-" : "") + a + a_selector_ + ", " +
            (negates_b_ ? "-" : "") + b + b_selector_;
    if (has_third_) text += std::string(", ") + (negates_c_ ? "-" : "") + c;
    return text + ";";
  }

  std::uint32_t Value(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    if (elements_ != 1) return Several(a, b, c);
    const Wide x = Extract(a, a_selector_, a_signed_), y = Extract(b, b_selector_, b_signed_);
    if (Is("vmad")) return Sum(x, y, c);
    const std::uint32_t bits = d_selector_.empty() ? 32 : d_selector_[1] == 'b' ? 8 : 16;
    const Wide first = Clamp(Primary(x, y), bits);
    const Wide third = d_signed_ ? Wide{static_cast<std::int32_t>(c)} : Wide{c};
    if (second_ == ".add") return static_cast<std::uint32_t>(first + third);
    if (second_ == ".min") return static_cast<std::uint32_t>(std::min(first, third));
    if (second_ == ".max") return static_cast<std::uint32_t>(std::max(first, third));
    if (bits == 32) return static_cast<std::uint32_t>(first);
    const std::uint32_t position = bits * static_cast<std::uint32_t>(d_selector_[2] - '0');
    const std::uint32_t mask = ((1u << bits) - 1) << position;
    return (static_cast<std::uint32_t>(first) << position & mask) | (c & ~mask);
  }

 private:
  __extension__ using Wide = __int128;

  bool Flip() { return ((*random_)() & 1) != 0; }
  std::uint32_t Pick(std::uint32_t count) {
    return static_cast<std::uint32_t>((*random_)() % count);
  }
  bool Is(const char* opcode) const { return opcode_ == opcode; }
  bool IsShift() const { return Is("vshl") || Is("vshr"); }

  std::string PartOrNone() {
    constexpr std::array<const char*, 7> kParts = {"", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"};
    return kParts[Pick(kParts.size())];
  }

  void ChooseSingle() {
    a_selector_ = PartOrNone();
    b_selector_ = PartOrNone();
    constexpr std::array<const char*, 4> kSeconds = {"", ".add", ".min", ".max"};
    second_ = kSeconds[Pick(kSeconds.size())];
    if (second_.empty()) d_selector_ = PartOrNone();
    has_third_ = !second_.empty() || !d_selector_.empty();
  }

  void ChooseSum() {
    a_selector_ = PartOrNone();
    b_selector_ = PartOrNone();
    constexpr std::array<std::uint32_t, 3> kScales = {0, 7, 15};
    scale_ = kScales[Pick(kScales.size())];
    has_third_ = true;
    adds_one_ = Pick(3) == 0;
    if (adds_one_) return;
    negates_a_ = Flip();
    negates_b_ = Flip();
    negates_c_ = negates_a_ == negates_b_ && Flip();
  }

  void ChooseSeveral() {
    has_third_ = true;
    if (Flip()) second_ = ".add";
    if (!second_.empty()) saturates_ = false;
    const char letter = elements_ == 2 ? 'h' : 'b';
    const auto select = [&](std::string& selector, std::vector<std::uint32_t>& from,
                            std::uint32_t first) {
      for (std::uint32_t i = 0; i < elements_; ++i) from.push_back(first + i);
      if (Flip()) return;
      selector = std::string(".") + letter;
      for (std::uint32_t i = elements_; i-- > 0;) {
        from[i] = Pick(2 * elements_);
        selector += std::to_string(from[i]);
      }
    };
    select(a_selector_, a_from_, 0);
    select(b_selector_, b_from_, elements_);
    kept_ = (1u << elements_) - 1;
    if (Flip()) return;
    kept_ = 1 + Pick(kept_);
    d_selector_ = std::string(".") + letter;
    for (std::uint32_t i = elements_; i-- > 0;) {
      if ((kept_ >> i & 1) != 0) d_selector_ += std::to_string(i);
    }
  }

  static Wide Extract(std::uint32_t word, const std::string& selector, bool is_signed) {
    if (selector.empty()) return is_signed ? Wide{static_cast<std::int32_t>(word)} : Wide{word};
    const std::uint32_t bits = selector[1] == 'b' ? 8 : 16;
    return Element(word, static_cast<std::uint32_t>(selector[2] - '0'), bits, is_signed);
  }
  static Wide Element(std::uint64_t words, std::uint32_t number, std::uint32_t bits,
                      bool is_signed) {
    const Wide value = Wide{words >> (number * bits)} & ((Wide{1} << bits) - 1);
    const bool is_negative = is_signed && (value >> (bits - 1) & 1) != 0;
    return is_negative ? value - (Wide{1} << bits) : value;
  }

  Wide Primary(Wide a, Wide b) const {
    if (Is("vadd")) return a + b;
    if (Is("vsub")) return a - b;
    if (Is("vabsdiff")) return a - b < 0 ? b - a : a - b;
    if (Is("vmin")) return std::min(a, b);
    if (Is("vmax")) return std::max(a, b);
    if (Is("vavrg")) return (a + b >= 0 ? a + b + 1 : a + b) >> 1;
    if (Is("vset")) {
      const std::array<bool, 6> outcomes = {a == b, a != b, a<b, a <= b, a> b, a >= b};
      return outcomes[mode_] ? 1 : 0;
    }
    const Wide distance = mode_ == 0 ? std::min<Wide>(b, 32) : b & 31;
    if (Is("vshr")) return a >> static_cast<int>(distance);
    // The shifted value has 34 bits.
    const Wide shifted = a * (Wide{1} << static_cast<int>(distance)) & ((Wide{1} << 34) - 1);
    return (shifted >> 33 & 1) != 0 ? shifted - (Wide{1} << 34) : shifted;
  }

  Wide Clamp(Wide value, std::uint32_t bits) const { return Clamp(value, bits, d_signed_); }
  Wide Clamp(Wide value, std::uint32_t bits, bool is_signed) const {
    if (!saturates_) return value;
    const Wide low = is_signed ? -(Wide{1} << (bits - 1)) : 0;
    const Wide high = (Wide{1} << (is_signed ? bits - 1 : bits)) - 1;
    return std::min(std::max(value, low), high);
  }

  std::uint32_t Sum(Wide a, Wide b, std::uint32_t c) const {
    const bool negates = negates_a_ != negates_b_;
    const bool is_signed = a_signed_ || b_signed_ || negates || negates_c_;
    const std::uint32_t bits = negates_c_ ? ~c : c;
    Wide sum = negates ? ~(a * b) : a * b;
    sum += is_signed ? Wide{static_cast<std::int32_t>(bits)} : Wide{bits};
    sum += adds_one_ || negates || negates_c_ ? 1 : 0;
    return static_cast<std::uint32_t>(Clamp(sum >> static_cast<int>(scale_), 32, is_signed));
  }

  std::uint32_t Several(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint64_t words = std::uint64_t{b} << 32 | a;
    const std::uint32_t bits = 32 / elements_;
    std::uint32_t sum = c, merged = 0;
    for (std::uint32_t i = 0; i < elements_; ++i) {
      const bool is_kept = (kept_ >> i & 1) != 0;
      const Wide value = Clamp(Primary(Element(words, a_from_[i], bits, a_signed_),
                                       Element(words, b_from_[i], bits, b_signed_)),
                               bits);
      if (is_kept) sum += static_cast<std::uint32_t>(value);
      const std::uint32_t element = is_kept ? static_cast<std::uint32_t>(value) : c >> (bits * i);
      merged |= (element & ((1u << bits) - 1)) << (bits * i);
    }
    return second_ == ".add" ? sum : merged;
  }

  std::string opcode_;
  std::mt19937* random_;
  std::uint32_t elements_ = 1;
  bool d_signed_ = false, a_signed_ = false, b_signed_ = false, saturates_ = false;
  std::uint32_t mode_ = 0;  // For shifts, 0 is .clamp; for comparisons, the relation.
  std::string second_, d_selector_, a_selector_, b_selector_;
  bool has_third_ = false;
  bool negates_a_ = false, negates_b_ = false, negates_c_ = false, adds_one_ = false;
  std::uint32_t scale_ = 0;
  std::vector<std::uint32_t> a_from_, b_from_;
  std::uint32_t kept_ = 0;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_VIDEO_CASE_H_
