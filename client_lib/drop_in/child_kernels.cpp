// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/child_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "client_lib/drop_in/log.h"
#include "common/ptx/link/child_kernels.h"

namespace gpushared::drop_in {
namespace {

using ptx::ChildQueue;
using ptx::ChildRecord;

// Queue of one module. Kernels may have written arbitrary bytes to it.
class Children {
 public:
  Children(const StreamChoice& stream, const Module& module, const MirrorUse& use)
      : stream_(stream), module_(module), use_(use) {}

  // Launches depth first, because in CUDA a kernel ends only after all kernels that it launched.
  Code LaunchAll(int depth) {
    std::vector<std::byte> bytes;
    std::vector<ChildRecord> records;
    const Code code = Take(bytes, records);
    if (code != Code::kSuccess || records.empty()) return code;
    if (depth > ptx::kChildDepthMax) {
      return Reject(Code::kLaunchOutOfResources,
                    "launch rejected: child kernels are nested more than " +
                        std::to_string(ptx::kChildDepthMax) + " deep");
    }
    for (const ChildRecord& record : records) {
      Code launched =
          Launch(record, std::span(bytes).subspan(record.reserved[0], parameter_bytes_));
      if (launched == Code::kSuccess) launched = LaunchAll(depth + 1);
      if (launched != Code::kSuccess) return launched;
    }
    return Code::kSuccess;
  }

 private:
  // Returns the queued launches in order and empties the queue. reserved[0] is the offset of the
  // parameters in `bytes`.
  Code Take(std::vector<std::byte>& bytes, std::vector<ChildRecord>& records) {
    const Result<ModuleVariable> queue = module_.GetVariable(ptx::kChildQueueName);
    if (!queue.ok() || queue->bytes < sizeof(ChildQueue)) return Code::kInvalidImage;
    ChildQueue head{};
    Code code = Read(&head, queue->address, sizeof head);
    if (code != Code::kSuccess || head.taken == 0) return code;
    const std::uint64_t room = queue->bytes - sizeof head;
    if (head.record_bytes < sizeof(ChildRecord) || head.record_bytes > room) {
      return Code::kInvalidImage;
    }
    const std::uint64_t count = std::min<std::uint64_t>(head.taken, room / head.record_bytes);
    bytes.resize(count * head.record_bytes);
    code = Read(bytes.data(), queue->address + sizeof head, bytes.size());
    if (code != Code::kSuccess) return code;
    parameter_bytes_ = head.record_bytes - sizeof(ChildRecord);
    for (std::uint64_t i = 0; i < count; ++i) {
      ChildRecord record;
      std::memcpy(&record, bytes.data() + i * head.record_bytes, sizeof record);
      if (record.is_launched == 0) continue;
      record.reserved[0] = static_cast<std::uint32_t>(i * head.record_bytes + sizeof record);
      records.push_back(record);
    }
    // A tail launch runs after all other launches of its kernel.
    std::ranges::stable_sort(records, {}, [](const ChildRecord& record) {
      return std::pair(record.stream == ptx::kTailLaunchStream, record.order);
    });
    return stream_.Run([&](const Stream& stream) {
      return stream.Fill(queue->address, FillElement::U32(0), 2);  // `taken` and `launched`.
    });
  }

  Code Read(void* to, std::uint64_t address, std::size_t bytes) {
    return stream_.RunAndWait([&](const Stream& stream) {
      Status status = stream.CopyToHost(to, address, bytes);
      return status.ok() ? stream.Synchronize() : status;
    });
  }

  Code Launch(const ChildRecord& record, std::span<const std::byte> parameters) {
    const auto variables = module_.variables();
    const auto found = std::ranges::find_if(variables, [&](const ModuleVariable& variable) {
      return variable.address == record.kernel &&
             variable.name.starts_with(ptx::kChildKernelPrefix);
    });
    if (found == variables.end()) {
      return Reject(Code::kInvalidHandle, "launch rejected: a kernel launched an invalid kernel");
    }
    const Result<Kernel> kernel =
        module_.GetKernel(found->name.substr(ptx::kChildKernelPrefix.size()));
    if (!kernel.ok()) return stream_->context().session().GetCode(kernel.status());
    if (kernel->parameter_bytes() > parameters.size()) return Code::kInvalidImage;
    const LaunchShape shape{.grid = {record.grid[0], record.grid[1], record.grid[2]},
                            .block = {record.block[0], record.block[1], record.block[2]},
                            .dynamic_shared_bytes = record.shared_bytes};
    return stream_.Run(
        [&](const Stream& stream) {
          return stream.LaunchPacked(*kernel, shape, parameters.first(kernel->parameter_bytes()));
        },
        use_);
  }

  const StreamChoice& stream_;
  const Module& module_;
  const MirrorUse& use_;
  std::size_t parameter_bytes_ = 0;  // Parameter bytes of each record; constant.
};

}  // namespace

Code LaunchChildren(const StreamChoice& stream, const Module& module, const MirrorUse& use) {
  return Children(stream, module, use).LaunchAll(1);
}

}  // namespace gpushared::drop_in
