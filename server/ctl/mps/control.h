// SPDX-License-Identifier: Apache-2.0
// The commands of nvidia-cuda-mps-control, asked of a gpushared server.

#ifndef GPUSHARED_SERVER_CTL_MPS_CONTROL_H_
#define GPUSHARED_SERVER_CTL_MPS_CONTROL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/result.h"

#include "ipc/wire/control.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server::mps {

// The answer to a command.
struct Answer {
  std::string text;     // For stdout, in NVIDIA's form.
  std::string note;     // For stderr: what a user of MPS would not expect. Empty: nothing.
  bool is_end = false;  // No further lines are read.
};

// Carries out one command at a time. An MPS server is a worker here, by its pid. An entrance is
// what MPS calls a namespace.
//
// Thread-compatible; Do blocks as admin::Ask does, and for the seconds that `quit -t` names.
class Control {
 public:
  // `socket`: the server's path.
  explicit Control(std::string socket) : socket_(std::move(socket)) {}

  // `words`: a command and its arguments, at least one. A refusal says what was refused, and what
  // is allowed; admin::NobodyAnswers tells whether there was a server at all.
  Result<Answer> Do(const std::vector<std::string>& words) const;

  // A line per command, for people.
  static std::string Help();

 private:
  using Arguments = std::vector<std::string>;
  struct Command;
  static const std::vector<Command>& Commands();

  Result<nlohmann::json> Ask(const ipc::Admin& question) const;
  // The rows of an answer; what is no list of objects is no answer.
  Result<nlohmann::json> Rows(ipc::AdminVerb verb, const char* name) const;
  Result<nlohmann::json> Devices() const;
  Result<nlohmann::json> Clients() const;
  // The device whose worker has this pid, or that somebody names by ordinal, UUID or name.
  Result<nlohmann::json> ServerOf(const std::string& pid) const;
  Result<nlohmann::json> DeviceNamed(const std::string& name) const;

  Result<Answer> ServerList(const Arguments& arguments) const;
  Result<Answer> ServerStatus(const Arguments& arguments) const;
  // What the server has set for clients that connect later.
  Result<nlohmann::json> NewClients() const;
  Result<Answer> SetNewClients(const std::string& command, const std::string& terms) const;
  Result<nlohmann::json> ClientsAt(const nlohmann::json& server) const;

  Result<Answer> StartServer(const Arguments& arguments) const;
  Result<Answer> ShutDownServer(const Arguments& arguments) const;
  Result<Answer> Quit(const Arguments& arguments) const;
  Result<Answer> ClientList(const Arguments& arguments) const;
  Result<Answer> DeviceClientList(const Arguments& arguments) const;
  Result<Answer> Ps(const Arguments& arguments) const;
  Result<Answer> TerminateClient(const Arguments& arguments) const;
  Result<Answer> SetDefaultShare(const Arguments& arguments) const;
  Result<Answer> GetDefaultShare(const Arguments& arguments) const;
  Result<Answer> SetShare(const Arguments& arguments) const;
  Result<Answer> GetShare(const Arguments& arguments) const;
  Result<Answer> SetDefaultMemory(const Arguments& arguments) const;
  Result<Answer> GetDefaultMemory(const Arguments& arguments) const;
  Result<Answer> SetMemory(const Arguments& arguments) const;
  Result<Answer> GetMemory(const Arguments& arguments) const;
  Result<Answer> SetPriority(const Arguments& arguments) const;
  Result<Answer> GetPriority(const Arguments& arguments) const;
  Result<Answer> DeviceQuery(const Arguments& arguments) const;
  Result<Answer> ShowHelp(const Arguments& arguments) const;
  Result<Answer> Partition(const Arguments& arguments) const;
  Result<Answer> Partitions(const Arguments& arguments) const;

  // Takes no new clients; those that are here after so many seconds are ended. Returns when the
  // server has none left.
  Result<Answer> End(std::uint64_t seconds) const;

  std::string socket_;
};

}  // namespace gpushared::server::mps

#endif  // GPUSHARED_SERVER_CTL_MPS_CONTROL_H_
