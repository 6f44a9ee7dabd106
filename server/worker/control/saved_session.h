// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_SAVED_SESSION_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_SAVED_SESSION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "ipc/owner.h"
#include "ipc/unique_fd.h"
#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"
#include "ipc/wire/fields.h"
#include "server/worker/state/saved_client.h"

namespace gpushared::server {

struct SavedModule {
  std::uint32_t number = 0;
  std::uint64_t image_bytes = 0;
  std::uint64_t address = 0;  // Of its variables; see device::Module::block.

  void Visit(ipc::Fields& f) {
    f.Number("number", number, 0, ipc::kModulesMax - 1);
    f.Reserved<std::uint32_t>();
    f.Number("image_bytes", image_bytes, 0, ipc::kModuleImageBytesMax);
    f.Number("address", address);
  }
};

// State of a session that is moved to another worker, besides SavedClient, its descriptors and its
// memory. Input to that worker, like SavedClient.
struct SavedSession {
  static constexpr char kName[] = "SavedSession";
  static constexpr std::uint64_t kAgeNsMax = std::uint64_t{1} << 62;

  std::uint64_t age_ns = 0;
  std::uint64_t stopped_ns = 0;  // Time of the steady clock at which the client was stopped.
  std::uint64_t space_base = 0, space_bytes = 0, mapping_base = 0, mapping_bytes = 0;
  std::uint64_t mapped_bytes = 0;
  std::uint64_t stack_bytes = 0;        // See device::KernelMemory.
  std::uint64_t launch_text_bytes = 0;  // KernelMemory::printed_bytes.
  // Text that the client has not taken yet (PrintedText), if it takes printed text.
  std::uint64_t printed_total = 0, printed_dropped = 0, printed_max = 0;
  std::uint32_t printed_bytes = 0;
  std::uint32_t staging_buffers = 0;
  std::string owner;  // ipc::Owner::ToRow.
  std::vector<SavedModule> modules;

  void Visit(ipc::Fields& f) {
    f.Number("age_ns", age_ns, 0, kAgeNsMax);
    f.Number("stopped_ns", stopped_ns, 0, kAgeNsMax);
    f.Number("space_base", space_base);
    f.Number("space_bytes", space_bytes, 1, std::uint64_t{1} << 62);
    f.Number("mapping_base", mapping_base);
    f.Number("mapping_bytes", mapping_bytes);
    f.Number("mapped_bytes", mapped_bytes, 0, ipc::kResizeBytesMax);
    f.Number("stack_bytes", stack_bytes, 0, ipc::kStackBytesMax);
    f.Number("launch_text_bytes", launch_text_bytes, 0, ipc::kPrintedBytesMax);
    f.Number("printed_total", printed_total);
    f.Number("printed_dropped", printed_dropped);
    f.Number("printed_max", printed_max, 0, ipc::kPrintedBytesMax);
    f.Range("printed_dropped", printed_dropped, 0, printed_total);
    f.Number("printed_bytes", printed_bytes, 0, ipc::kPrintedBytesMax);
    f.Range("printed_bytes", printed_bytes, 0, printed_max);
    f.Range("printed_bytes", printed_bytes, 0, printed_total - printed_dropped);
    f.Number("staging_buffers", staging_buffers, 0, ipc::kStagingBuffersMax);
    const std::uint32_t owner_bytes = f.Length("owner_bytes", owner, ipc::kOwnerBytes);
    const std::uint32_t count = f.Count("modules", modules.size(), ipc::kModulesMax);
    f.TailAtMost(ipc::kMovedStateBytesMax);
    f.Tail(owner, owner_bytes);
    f.Elements("modules", modules, count);
  }
};

// A session on its way from one worker to another.
struct MovedState {
  SavedSession session;
  SavedClient client;
  ipc::UniqueFd doorbell, commands, completions, page;
  // Holds the two messages, the images of the modules and the printed text, in this order.
  ipc::UniqueFd state;
  std::uint64_t images_offset = 0;
  ipc::UniqueFd memory;  // See device::Space::Save.
  struct Buffer {
    ipc::UniqueFd memory;
    std::uint64_t bytes = 0;
  };
  std::vector<Buffer> staging_buffers;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_SAVED_SESSION_H_
