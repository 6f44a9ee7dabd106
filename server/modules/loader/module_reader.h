// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_LOADER_MODULE_READER_H_
#define GPUSHARED_SERVER_MODULES_LOADER_MODULE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "server/device/device.h"
#include "server/modules/compile/sha256.h"

namespace gpushared::loader {

// Counters for `status`.
struct LoaderFacts {
  std::uint32_t running = 0, waiting = 0;
  std::uint64_t read = 0;  // Modules read by a child.
  // Modules that could not be read, including crashes and exceeded limits.
  std::uint64_t rejected = 0;
  std::uint64_t crashed = 0;
  std::uint64_t unplaced_bytes = 0;  // Memory of modules that are read and wait to be placed.
  std::uint64_t cache_bytes = 0, cache_hits = 0;
};

// Reads clients' modules. A worker uses a ModuleLoader, which reads them in child processes; tests
// of sessions use their own reader, because their devices have no real modules.
//
// Thread-safe.
class ModuleReader {
 public:
  struct Owner {
    std::uint64_t session = 0;
    std::uint32_t uid = 0;
    device::Isolation isolation = device::Isolation::kOff;
    std::uint8_t rank = 0;  // Scheduling class; 0 is the most urgent.
    std::string who;        // Names the client in messages.
  };
  struct Loaded {
    std::shared_ptr<const device::PreparedModule> module;
    compile::Digest content = {};  // Hash of the image.
    // While this object exists, the module is counted among those that wait to be placed. May be
    // destroyed on any thread and may outlive the reader.
    std::shared_ptr<void> place;
    // Immutable copy of the image. Null if the reader has none. Freeing it may take milliseconds.
    std::shared_ptr<const ipc::UniqueFd> image = nullptr;
  };
  using Done = std::function<void(Result<Loaded>)>;
  // Does the remaining work before the module can be placed (Space::CompileModule). Called on a
  // thread of the reader before Done. Work that takes long is queued with other long jobs.
  using Compile = std::function<Result<std::shared_ptr<const device::PreparedModule>>(
      std::shared_ptr<const device::PreparedModule> module, bool may_take_long)>;

  virtual ~ModuleReader() = default;

  // Calls `done` once, from any thread, possibly before returning. A session has at most one job at
  // a time. `image` is a memory file of `bytes` bytes. The client may still write to it, so it is
  // copied first.
  virtual void Load(Owner owner, const device::ModuleRecipe& recipe, ipc::UniqueFd image,
                    std::uint64_t bytes, Compile compile, Done done) = 0;
  // Ends the unfinished jobs of a session with kCancelled.
  virtual void Cancel(std::uint64_t session) = 0;
  virtual void SetRank(std::uint64_t session, std::uint8_t rank) = 0;
  virtual LoaderFacts Facts() const = 0;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_MODULE_READER_H_
