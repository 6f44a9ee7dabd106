// SPDX-License-Identifier: Apache-2.0
// Commands for files of kernels. They need no server.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/ctl/command_line.h"
#include "server/tools/ctl/module_file.h"
#include "server/tools/ctl/ptx_check.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

int CheckFile(const CommandLine& line, const std::string& path) {
  const Result<std::vector<std::byte>> file = ReadWholeFile(path);
  const Result<nlohmann::json> checked =
      file ? CheckPtx(*file) : Result<nlohmann::json>(file.status());
  if (!checked) {
    std::fprintf(stderr, "gpusharedctl: %s: %s\n", path.c_str(),
                 checked.status().message().c_str());
    return kRejected;
  }
  const int printed = Print(line.as_json ? checked->dump(2) + "\n" : PtxReport(*checked));
  // Fails for a file without kernels, because a script that checks a file expects some.
  return (*checked)["kernels"].empty() ? kRejected : printed;
}

}  // namespace

void AddPtxCommands(CommandLine& line) {
  const Command ptx =
      AddCommand(line.app, "ptx", "commands for files of kernels, without a server");
  ptx.RequireCommand();
  const Command check =
      AddCommand(ptx, "check", "check of what the server can do with each kernel of a file");
  const auto path = std::make_shared<std::string>();
  check.AddOption("file", *path, "PTX, fatbin, executable or shared object")
      .Required()
      .TypeName("FILE");
  check.OnUse([&line, path] { line.action = [&line, path] { return CheckFile(line, *path); }; });
}

}  // namespace gpushared::server
