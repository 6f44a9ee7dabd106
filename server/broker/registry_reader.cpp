// SPDX-License-Identifier: Apache-2.0
#include "server/broker/registry_reader.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "ipc/unix_socket.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kSurvivorsMax = 256;
constexpr mode_t kRegistryDirectoryMode = 0700;

// Receives one worker's registry message by message.
class RegistryReceiver {
 public:
  explicit RegistryReceiver(ipc::FoundWorker found) { survivor_.worker = std::move(found); }

  int channel() const { return survivor_.worker.channel.get(); }
  bool is_complete() const { return is_complete_; }
  std::string Who() const { return "worker pid " + std::to_string(survivor_.worker.pid); }
  Survivor Take() { return std::move(survivor_); }

  // Reads the messages that have arrived.
  Status ReadOn() {
    while (!is_complete_) {
      Result<std::optional<ipc::Frame>> frame =
          ipc::ReceiveChannelMessage(channel(), ipc::ChannelToBrokerRules);
      if (!frame.ok()) return frame.status();
      if (!frame->has_value()) return Status::Ok();
      if (Status status = Handle(**frame); !status.ok()) return status;
    }
    return Status::Ok();
  }

 private:
  Status Handle(ipc::Frame& frame) {
    const auto type = static_cast<ipc::ChannelType>(frame.type);
    if (type == ipc::ChannelType::kChannelReply && !has_registry_) {
      const Result<ipc::ChannelReply> reply = ipc::Decode<ipc::ChannelReply>(frame.payload);
      return reply.ok() ? Status(reply->code, Escaped(reply->text, 2048)) : reply.status();
    }
    if (type != Expected()) {
      return {
          StatusCode::kProtocolViolation,
          "it sent a " + std::string(ipc::ChannelTypeName(frame.type)) + " message out of turn"};
    }
    switch (type) {
      case ipc::ChannelType::kRegistry:
        has_registry_ = true;
        return Read(frame, survivor_.registry);
      case ipc::ChannelType::kRegistrySession:
        return Read(frame, survivor_.sessions.emplace_back());
      case ipc::ChannelType::kRegistryEnd:
        return Read(frame, survivor_.ends.emplace_back());
      case ipc::ChannelType::kKept:
        survivor_.kept.emplace_back().connection = std::move(frame.fds[0]);
        return Read(frame, survivor_.kept.back().kept);
      default:
        is_complete_ = true;
        if (Status status = Read(frame, survivor_.ready); !status.ok()) return status;
        return Check();
    }
  }

  ipc::ChannelType Expected() const {
    if (!has_registry_) return ipc::ChannelType::kRegistry;
    if (survivor_.sessions.size() < survivor_.registry.sessions) {
      return ipc::ChannelType::kRegistrySession;
    }
    if (survivor_.ends.size() < survivor_.registry.ends) return ipc::ChannelType::kRegistryEnd;
    if (survivor_.kept.size() < survivor_.registry.keeps) return ipc::ChannelType::kKept;
    return ipc::ChannelType::kReady;
  }

  template <typename T>
  static Status Read(const ipc::Frame& frame, T& message) {
    Result<T> decoded = ipc::Decode<T>(frame.payload);
    if (!decoded.ok()) return decoded.status();
    message = *std::move(decoded);
    return Status::Ok();
  }

  Status Check() const {
    const auto reject = [](const std::string& why) {
      return Status(StatusCode::kProtocolViolation, "its registry is rejected: " + why);
    };
    if (survivor_.ready.generation != survivor_.registry.generation) {
      return reject("it names two generations");
    }
    std::set<std::uint64_t> seen;
    for (const ipc::RegistrySession& session : survivor_.sessions) {
      const std::string id = std::to_string(session.session);
      if (!seen.insert(session.session).second) return reject("session " + id + " occurs twice");
      if (session.session > survivor_.registry.last_session) {
        return reject("session " + id + " is above the last number, " +
                      std::to_string(survivor_.registry.last_session));
      }
      if (session.guaranteed_bytes > survivor_.ready.device.memory_bytes) {
        return reject("the guarantee of session " + id + " is " +
                      FormatBytes(session.guaranteed_bytes) + ", the device has " +
                      FormatBytes(survivor_.ready.device.memory_bytes));
      }
    }
    return Status::Ok();
  }

  Survivor survivor_;
  bool has_registry_ = false;
  bool is_complete_ = false;
};

std::vector<pid_t> FilesIn(const std::string& directory) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (wrong == std::errc() && end == name.data() + name.size() && pid > 0) pids.push_back(pid);
  }
  std::ranges::sort(pids);
  if (pids.size() > kSurvivorsMax) pids.resize(kSurvivorsMax);
  return pids;
}

template <typename T>
void SendNow(int channel, const T& message) {
  ipc::Outbox outbox(ipc::Outbox::Kind::kSeqpacket);
  // A new channel accepts a short message at once.
  if (outbox.Add(0, message).ok()) (void)outbox.Flush(channel);
}

// The worker exits after its last session, even if it does not understand the message.
void LetGo(ipc::FoundWorker worker) { SendNow(worker.channel.get(), ipc::Drain{}); }

std::vector<RegistryReceiver> AskAll(const std::string& directory,
                                     std::vector<std::string>& remarks) {
  std::vector<RegistryReceiver> asked;
  for (const pid_t pid : FilesIn(directory)) {
    Result<ipc::FoundWorker> found = ipc::FindWorker(directory, pid);
    if (!found.ok()) {
      if (found.status().code() == StatusCode::kNotFound) {
        (void)::unlink((directory + "/" + std::to_string(pid)).c_str());
      } else {
        remarks.push_back("worker pid " + std::to_string(pid) +
                          " is not taken over: " + found.status().message());
      }
      continue;
    }
    SendNow(found->channel.get(), ipc::TakeOver{});
    asked.emplace_back(*std::move(found));
  }
  return asked;
}

// Removes conflicting workers. Of two workers for the same device or with the same session, the one
// with the later generation is kept. Of two workers of the same generation, which occur if a broker
// did not find a worker of its predecessor, the one with more sessions is kept.
void RemoveRivals(Survivors& all) {
  std::ranges::sort(all.workers, [](const Survivor& a, const Survivor& b) {
    return std::pair(a.registry.generation, a.sessions.size()) >
           std::pair(b.registry.generation, b.sessions.size());
  });
  std::set<std::string> devices;
  std::set<std::uint64_t> sessions;
  std::vector<Survivor> kept;
  for (Survivor& each : all.workers) {
    const bool is_new = devices.insert(each.ready.device.id).second &&
                        std::ranges::none_of(each.sessions, [&](const auto& session) {
                          return sessions.contains(session.session);
                        });
    if (!is_new) {
      all.remarks.push_back("worker pid " + std::to_string(each.worker.pid) +
                            " is not taken over: another one has its device " +
                            each.ready.device.id +
                            " or a session of the same number; it ends with its last session");
      LetGo(std::move(each.worker));
      continue;
    }
    for (const ipc::RegistrySession& session : each.sessions) sessions.insert(session.session);
    kept.push_back(std::move(each));
  }
  all.workers = std::move(kept);
}

}  // namespace

Status PrepareRegistryDirectory(const std::string& directory) {
  const auto failed = [&](const std::string& what) {
    return Status(StatusCode::kInternal,
                  what + " '" + directory + "' failed: " + std::generic_category().message(errno));
  };
  if (::mkdir(directory.c_str(), kRegistryDirectoryMode) != 0 && errno != EEXIST) {
    return failed("creating directory");
  }
  struct stat facts {};
  if (::lstat(directory.c_str(), &facts) != 0) return failed("checking directory");
  if (S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() && (facts.st_mode & 077) == 0) {
    return Status::Ok();
  }
  return {StatusCode::kPermissionDenied,
          "'" + directory +
              "' is not restricted to the server's own user: it must be a directory of uid " +
              std::to_string(::geteuid()) + " and have mode 0700"};
}

Survivors TakeOverWorkers(const std::string& directory, milliseconds patience) {
  Survivors all;
  std::vector<RegistryReceiver> asked = AskAll(directory, all.remarks);
  const auto deadline = steady_clock::now() + patience;
  while (!asked.empty()) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    std::vector<pollfd> polled;
    polled.reserve(asked.size());
    for (const RegistryReceiver& each : asked) polled.push_back({each.channel(), POLLIN, 0});
    const int ready =
        ::poll(polled.data(), polled.size(), static_cast<int>(std::max<long>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    std::vector<RegistryReceiver> silent;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      Status status;
      if (polled[i].revents != 0) status = asked[i].ReadOn();
      if (status.ok() && !asked[i].is_complete()) {
        silent.push_back(std::move(asked[i]));
      } else if (status.ok()) {
        all.workers.push_back(asked[i].Take());
      } else {
        all.remarks.push_back(asked[i].Who() + " is not taken over: " + status.message());
        LetGo(asked[i].Take().worker);
      }
    }
    asked = std::move(silent);
  }
  for (RegistryReceiver& each : asked) {
    all.remarks.push_back(each.Who() +
                          " is not taken over: it did not report its sessions within " +
                          FormatDuration(patience) + "; it ends with its last session");
    LetGo(each.Take().worker);
  }
  RemoveRivals(all);
  return all;
}

}  // namespace gpushared::server
