// SPDX-License-Identifier: Apache-2.0
// The options' sections of the manual pages.
#include <vector>

#include "server/config/config_values.h"
#include "server/config/options.h"

namespace gpushared::server {
namespace {

std::string OptionsPage() {
  std::string page, heads;
  for (const Option& option : Options()) {
    heads += (heads.empty() ? "*--" : ", *--") + std::string(option.name) + "* _" +
             std::string(option.metavariable) + "_";
    if (option.page.empty()) continue;
    page += heads + "\n\t" + std::string(option.page) + "\n\n";
    heads.clear();
  }
  return page;
}

std::string KeysPage() {
  std::string page;
  for (const Option& option : Options()) {
    if (option.key_page.empty()) continue;
    page += "*" + GetKey(option.name) + "*";
    for (const Option& other : Options()) {
      if (other.key_page_of == option.name) page += ", *" + GetKey(other.name) + "*";
    }
    page += "\n\t" + std::string(option.key_page) + "\n\n";
  }
  return page;
}

std::string LiveKeys() {
  std::vector<std::string> keys;
  for (const Option& option : Options()) {
    if (option.effect == Effect::kAtReload) keys.push_back("*" + GetKey(option.name) + "*");
  }
  return Listed(std::vector<std::string_view>(keys.begin(), keys.end()));
}

}  // namespace

std::string ManualPart(std::string_view part) {
  if (part == "options") return OptionsPage();
  if (part == "keys") return KeysPage();
  return part == "live" ? LiveKeys() : "";
}

}  // namespace gpushared::server
