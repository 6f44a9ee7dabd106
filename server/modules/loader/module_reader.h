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

// For `status`.
struct LoaderFacts {
  std::uint32_t running = 0, waiting = 0;
  std::uint64_t read = 0;      // Modules that a child has read.
  std::uint64_t rejected = 0;  // Those that it could not, crashes and limits counted.
  std::uint64_t crashed = 0;
  std::uint64_t unplaced_bytes = 0;  // Modules that were read and wait to be placed.
  std::uint64_t cache_bytes = 0, cache_hits = 0;
};

// Reads what clients bring as modules. A worker has a ModuleLoader for it, which does so in
// children; tests of sessions have one of their own, since their devices know no real modules.
//
// Thread-safe.
class ModuleReader {
 public:
  struct Owner {
    std::uint64_t session = 0;
    std::uint32_t uid = 0;
    device::Isolation isolation = device::Isolation::kOff;
    std::uint8_t rank = 0;  // Class, 0 the most urgent.
    std::string who;        // For messages.
  };
  struct Loaded {
    std::shared_ptr<const device::PreparedModule> module;
    compile::Digest content = {};  // The image's.
    // Counts the module among those that wait to be placed, until it goes. Any thread; may outlive
    // the reader.
    std::shared_ptr<void> place;
  };
  using Done = std::function<void(Result<Loaded>)>;
  // What the module still needs before it can be placed (Space::CompileModule). Called on a thread
  // of the reader, before Done; what takes long has its turn behind others of its kind.
  using Compile = std::function<Result<std::shared_ptr<const device::PreparedModule>>(
      std::shared_ptr<const device::PreparedModule> module, bool may_take_long)>;

  virtual ~ModuleReader() = default;

  // Calls `done` once, from any thread, also from within. One job of a session at a time. `image`:
  // a memory file of `bytes` bytes, which its client may still write: a copy of it is looked at.
  virtual void Load(Owner owner, const device::ModuleRecipe& recipe, ipc::UniqueFd image,
                    std::uint64_t bytes, Compile compile, Done done) = 0;
  // Ends the jobs of a session with kCancelled, if they have not ended before.
  virtual void Cancel(std::uint64_t session) = 0;
  virtual void SetRank(std::uint64_t session, std::uint8_t rank) = 0;
  virtual LoaderFacts Facts() const = 0;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_MODULE_READER_H_
