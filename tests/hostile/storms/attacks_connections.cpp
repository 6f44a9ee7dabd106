// SPDX-License-Identifier: Apache-2.0
// Storms of connections.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/control.h"
#include "tests/hostile/storms/storms.h"

namespace gpushared::storms {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kPatience{5};

ipc::Deadline Soon() { return std::chrono::steady_clock::now() + kPatience; }

bool IsOpen(int socket) {
  char byte = 0;
  return ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

}  // namespace

void ConnectSilently(const Attacker& attacker) {
  constexpr std::size_t kConnectionsMax = 64;
  std::vector<ipc::UniqueFd> connections;
  for (;;) {
    std::erase_if(connections, [](const ipc::UniqueFd& fd) { return !IsOpen(fd.get()); });
    while (connections.size() < kConnectionsMax) {
      Result<ipc::UniqueFd> socket = ipc::ConnectUnix(attacker.socket, Soon());
      if (!attacker.Did(socket.status())) break;
      connections.push_back(*std::move(socket));
    }
    std::this_thread::sleep_for(5ms);
  }
}

void ReportRejectedHellos(const Attacker& attacker) {
  for (;;) {
    // Other users are not entitled to this class.
    const Result<Client> client = Client::Connect({.name = std::string(60, 'h'),
                                                   .scheduling_class = SchedulingClass::kHigh,
                                                   .socket = attacker.socket,
                                                   .control_timeout = kPatience});
    ++(client.ok() ? attacker.board.rejected_deeds : attacker.board.deeds);
  }
}

void SendDescriptors(const Attacker& attacker) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  for (;;) {
    const ipc::UniqueFd memory(::memfd_create("large", MFD_CLOEXEC));
    if (::posix_fallocate(memory.get(), 0, kBytes) != 0) return;
    Result<ipc::UniqueFd> socket = ipc::ConnectUnix(attacker.socket, Soon());
    if (!attacker.Did(socket.status())) continue;
    const int fd = memory.get();
    ipc::Hello hello;
    hello.name = "descriptors";
    (void)ipc::SendMessage(socket->get(), 1, hello, Soon(), std::span(&fd, 1));
    // This process closes its descriptor first, so that the server is the last holder and has to
    // free the pages.
  }
}

void ConnectAndLeave(const Attacker& attacker) {
  for (;;) {
    const Result<Client> client = Client::Connect({.name = "churn", .socket = attacker.socket});
    attacker.Did(client.status());
  }
}

void HoldSessions(const Attacker& attacker) {
  constexpr std::size_t kSessionsMax = 128;
  std::vector<Client> sessions;
  for (;;) {
    std::erase_if(sessions, [](const Client& client) { return !client.status().ok(); });
    if (sessions.size() < kSessionsMax) {
      Result<Client> client = Client::Connect({.name = "holder", .socket = attacker.socket});
      if (attacker.Did(client.status())) sessions.push_back(*std::move(client));
    } else {
      std::this_thread::sleep_for(20ms);
    }
  }
}

void HoldMemory(const Attacker& attacker) {
  constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
  for (;;) {
    const Result<Client> client = Client::Connect(
        {.name = "holder", .scheduling_class = SchedulingClass::kLow, .socket = attacker.socket});
    if (!attacker.Did(client.status())) continue;
    std::vector<DeviceBuffer> buffers;
    const Stream stream = client->default_stream();
    // Halves the size after each rejection, down to the minimum.
    for (std::size_t bytes = std::size_t{1} << 30; client->status().ok();) {
      Result<DeviceBuffer> buffer = client->AllocateDevice(bytes);
      if (attacker.Did(buffer.status())) {
        // Writes the memory, because memory that was never written costs the server nothing.
        (void)stream.Fill(*buffer, FillElement::U8(1), bytes);
        buffers.push_back(*std::move(buffer));
      } else {
        bytes = std::max(bytes / 2, kLeastBytes);
      }
    }
  }
}

}  // namespace gpushared::storms
