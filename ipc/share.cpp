// SPDX-License-Identifier: Apache-2.0
#include "ipc/share.h"

#include <charconv>
#include <cmath>

#include "ipc/wire/bytes.h"

namespace gpushared::ipc {

Result<std::uint32_t> ParseShare(std::string_view text) {
  constexpr std::size_t kShownMax = 32;
  double percent = 0;
  const char* const last = text.data() + text.size() - (text.ends_with('%') ? 1 : 0);
  const auto [end, error] = std::from_chars(text.data(), last, percent);
  // The comparison rejects NaN as well.
  const bool is_share = text.ends_with('%') && error == std::errc() && end == last &&
                        percent >= 0.1 && percent <= 100;
  if (is_share) return static_cast<std::uint32_t>(std::lround(percent * 10));
  const std::string shown =
      IsPrintableText(text) ? std::string(CutText(text, kShownMax)) : "(not text)";
  return Status(
      StatusCode::kInvalidArgument,
      "asked for '" + shown + "', allowed: a share of device time from 0.1% to 100%, such as 25%");
}

std::string ShareText(std::uint32_t per_mille) {
  std::string text = std::to_string(per_mille / 10);
  if (per_mille % 10 != 0) text += "." + std::to_string(per_mille % 10);
  return text + "%";
}

}  // namespace gpushared::ipc
