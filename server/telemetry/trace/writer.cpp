// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/trace/writer.h"

#include <algorithm>

#include "ipc/unix_socket.h"

namespace gpushared::trace {

Result<std::unique_ptr<Writer>> Writer::Create() {
  Result<ipc::SharedSegment> memory = ipc::SharedSegment::Create(
      {.name = "gpushared-trace", .bytes = kMemoryBytes, .peers_read_only = true});
  if (!memory.ok()) return memory.status();
  memory->As<Memory>().number = kLayoutNumber;
  return std::unique_ptr<Writer>(new Writer(*std::move(memory)));
}

Writer::Writer(ipc::SharedSegment memory)
    : memory_(std::move(memory)),
      events_(memory_.As<Memory>().events),
      names_(memory_.As<Memory>().names) {}

Result<ipc::UniqueFd> Writer::ShareMemory() const { return ipc::DuplicateFd(memory_.fd()); }

bool Writer::LookUpKernel(std::uint64_t key) {
  const Set& set = known_[GetIndex(key)];
  if (std::ranges::find(set, key) == set.end()) return false;
  asked_[GetAskedIndex(key)] = key;
  return true;
}

void Writer::NameKernel(std::uint64_t key, std::string_view name) {
  Set& set = known_[GetIndex(key)];
  std::rotate(set.begin(), set.end() - 1, set.end());  // The oldest key is first, and is replaced.
  std::uint64_t& asked = asked_[GetAskedIndex(set[0])];
  if (asked == set[0]) asked = 0;
  set[0] = asked_[GetAskedIndex(key)] = key;
  names_.Write(ToWords(Name::Of::kKernel, key, 0, name));
}

}  // namespace gpushared::trace
