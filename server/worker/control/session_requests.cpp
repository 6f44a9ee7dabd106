// SPDX-License-Identifier: Apache-2.0
// Handlers for requests over the session's socket.
#include <errno.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "gpushared/check.h"

#include "ipc/shared_segment.h"
#include "ipc/wire/layout.h"
#include "server/worker/control/session.h"
#include "server/worker/control/session_calls.h"
#include "server/worker/state/cost_model.h"

namespace gpushared::server {

namespace {

// Upper bound of the size of ModuleLoaded on the wire.
std::uint64_t ReplyBytes(std::span<const device::KernelInfo> kernels,
                         std::span<const device::VariableInfo> variables) {
  std::uint64_t bytes = ipc::GetLayout<ipc::ModuleLoaded>().bytes;
  for (const device::VariableInfo& variable : variables) {
    bytes += ipc::GetLayout<ipc::VariableDescription>().bytes + variable.name.size();
  }
  for (const device::KernelInfo& kernel : kernels) {
    bytes += ipc::GetLayout<ipc::KernelDescription>().bytes + kernel.name.size() +
             std::min<std::size_t>(kernel.unsupported.size(), ipc::kTextBytesMax) +
             kernel.parameters.size() * ipc::GetLayout<ipc::ParameterDescription>().bytes;
  }
  return bytes;
}

Status CheckDescribable(std::span<const device::KernelInfo> kernels,
                        std::span<const device::VariableInfo> variables) {
  if (kernels.size() > ipc::kKernelsPerModuleMax) {
    return {StatusCode::kLimitExceeded,
            fmt::format("module rejected: it has {} kernels, allowed: {}", kernels.size(),
                        ipc::kKernelsPerModuleMax)};
  }
  for (const device::KernelInfo& kernel : kernels) {
    if (kernel.name.size() > ipc::kSymbolNameBytesMax ||
        kernel.parameters.size() > ipc::kParametersPerKernelMax ||
        kernel.parameter_bytes > kParameterBytesMax) {
      return {
          StatusCode::kLimitExceeded,
          fmt::format("module rejected: kernel '{}' has a name of {} bytes and {} parameters of "
                      "{} bytes, allowed: {}, {} and {}",
                      kernel.name.substr(0, 64), kernel.name.size(), kernel.parameters.size(),
                      kernel.parameter_bytes, ipc::kSymbolNameBytesMax,
                      ipc::kParametersPerKernelMax, kParameterBytesMax)};
    }
  }
  // The devices have already checked the number of variables.
  for (const device::VariableInfo& variable : variables) {
    if (variable.name.size() > ipc::kSymbolNameBytesMax) {
      return {
          StatusCode::kLimitExceeded,
          fmt::format("module rejected: variable '{}' has a name of {} bytes, allowed: {}",
                      variable.name.substr(0, 64), variable.name.size(), ipc::kSymbolNameBytesMax)};
    }
  }
  if (const std::uint64_t bytes = ReplyBytes(kernels, variables);
      bytes > ipc::kModuleReplyBytesMax) {
    return {StatusCode::kLimitExceeded,
            fmt::format("module rejected: the description of its kernels and variables takes {} "
                        "bytes, allowed: {}",
                        bytes, ipc::kModuleReplyBytesMax)};
  }
  return Status::Ok();
}

Status CheckDescribable(const device::Module& module) {
  return CheckDescribable(module.kernels(), module.variables());
}

ipc::ModuleLoaded DescribeModule(std::uint32_t number, const device::Module& module) {
  ipc::ModuleLoaded reply{.module = number, .kernels = {}, .variables = {}};
  for (const device::KernelInfo& kernel : module.kernels()) {
    ipc::KernelDescription description{.name = kernel.name,
                                       .unsupported = kernel.unsupported,
                                       .parameter_bytes = kernel.parameter_bytes,
                                       .static_shared_bytes = kernel.static_shared_bytes,
                                       .threads_per_block_max = kernel.threads_per_block_max,
                                       .required_block = kernel.required_block,
                                       .required_cluster = kernel.required_cluster,
                                       .parameters = {},
                                       .attributes = {}};
    description.attributes = {.registers = kernel.registers,
                              .local_bytes = kernel.local_bytes,
                              .constant_bytes = kernel.constant_bytes,
                              .dynamic_shared_bytes_max = kernel.dynamic_shared_bytes_max,
                              .ptx_version = kernel.ptx_version,
                              .binary_version = kernel.binary_version};
    for (const device::ParameterLayout& parameter : kernel.parameters) {
      description.parameters.push_back({parameter.offset, parameter.bytes});
    }
    reply.kernels.push_back(std::move(description));
  }
  for (const device::VariableInfo& variable : module.variables()) {
    reply.variables.push_back({.name = variable.name,
                               .address = variable.address,
                               .bytes = variable.bytes,
                               .space = variable.space == device::VariableInfo::Space::kConstant
                                            ? ipc::VariableSpace::kConstant
                                            : ipc::VariableSpace::kGlobal});
  }
  return reply;
}

// Null if the image cannot be read.
std::shared_ptr<const std::vector<std::byte>> ReadImage(int image, std::uint64_t bytes) {
  auto read = std::make_shared<std::vector<std::byte>>(bytes);
  return ipc::ReadMemory(image, 0, *read).ok() ? std::move(read) : nullptr;
}

}  // namespace

void Session::Handle(ipc::Frame frame) {
  is_request_open_ = true;
  request_ = frame.request;
  const bool is_request = ipc::DecodeAs(ipc::ClientMessages(), frame, [this](const auto& message) {
    if (!message.ok()) return EndFor(message.status());
    Handle(*message);
  });
  Check(is_request, "the frame rules let nothing else through");
}

void Session::Reject(const Status& why) {
  Reply(ipc::Rejected{.status = Status(why.code(), fmt::format("{} [{}]", why.message(), who_))});
}

void Session::Apply(DeviceMessage message, std::function<void()> then) {
  on_applied_ = std::move(then);
  environment_.device_thread.Post(std::move(message));
}

void Session::OnApplied() {
  if (has_ended_ || !on_applied_) return;
  std::exchange(on_applied_, nullptr)();
}

void Session::Handle(const ipc::DescribeError& request) {
  environment_.device_thread.Post(AskStreamError{id(), request.stream});
}

void Session::OnStreamError(const StreamError& error) {
  if (has_ended_) return;
  Reply(ipc::ErrorText{.stream = error.stream, .sequence = error.sequence, .status = error.status});
}

void Session::Handle(const ipc::TakePrinted&) {
  if (printed_ == nullptr) {
    return Reject({StatusCode::kInvalidArgument,
                   "printed text rejected: the client's hello did not ask for it"});
  }
  PrintedText::Part part = printed_->Take(ipc::kPrintedTextBytesMax);
  Reply(ipc::Printed{.end = part.end, .dropped = part.dropped, .text = std::move(part.text)});
}

// ---- modules

Status Session::CheckNewModule(const ipc::LoadModule& request) const {
  const auto there = memory_->modules.find(request.module);
  if (there != memory_->modules.end()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("module rejected: number {} is {}", request.module,
                        there->second.is_leaving
                            ? "still used by commands of the module that was unloaded"
                            : "in use")};
  }
  return CheckImage(request.bytes);
}

Status Session::CheckImage(std::uint64_t bytes) const {
  const SessionLimits& limits = environment_.limits;
  if (memory_->modules.size() >= limits.modules_max) {
    return {StatusCode::kLimitExceeded,
            fmt::format("module rejected: {} modules are loaded, allowed: {}",
                        memory_->modules.size(), limits.modules_max)};
  }
  if (bytes > limits.module_bytes_max) {
    return {StatusCode::kLimitExceeded,
            fmt::format("module rejected: its image has {} bytes, allowed: {}", bytes,
                        limits.module_bytes_max)};
  }
  if (bytes > limits.modules_bytes_max - module_bytes_) {
    return {StatusCode::kLimitExceeded,
            fmt::format("module rejected: its image has {} bytes and {} are loaded, allowed: {} "
                        "together",
                        bytes, module_bytes_, limits.modules_bytes_max)};
  }
  return Status::Ok();
}

void Session::Handle(const ipc::MakeImage& request) {
  if (image_.valid()) {
    // Freed by a slow call, because freeing the pages that the client wrote takes time.
    return MakeSlowCall(
        [old = std::move(image_)]() mutable -> Result<std::uint64_t> {
          old.Reset();
          return std::uint64_t{0};
        },
        [request](Session& self, const Result<std::uint64_t>&) {
          self.GiveBackImage();
          if (self.has_ended_) return self.CheckOver();
          self.Handle(request);
        });
  }
  if (const Status status = CheckImage(request.bytes); !status.ok()) return Reject(status);
  if (!environment_.images.TryTake(0, request.bytes, MayUseReserve())) {
    return Reject({StatusCode::kOutOfMemory,
                   fmt::format("module rejected: its image has {} bytes, the memory for images of "
                               "all clients has {} left for this one",
                               request.bytes, environment_.images.LeftFor(0, MayUseReserve()))});
  }
  image_bytes_ = request.bytes;
  Result<ipc::UniqueFd> memory = ipc::MakeFixedMemory("gpushared image", request.bytes);
  Result<ipc::UniqueFd> copy = memory.ok() ? ipc::DuplicateFd(memory->get()) : memory.status();
  if (!copy.ok()) {
    GiveBackImage();
    return Reject(copy.status());
  }
  image_ = *std::move(memory);
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(*std::move(copy));
  Reply(ipc::ImageMade{.bytes = request.bytes}, std::move(fds));
}

void Session::GiveBackImage() {
  environment_.images.GiveBack(image_bytes_, image_bytes_);
  image_bytes_ = 0;
}

void Session::Handle(const ipc::LoadModule& request) {
  if (!image_.valid() || request.bytes != image_bytes_) {
    return EndFor({StatusCode::kProtocolViolation,
                   fmt::format("a module of {} bytes is to be loaded, the memory made for its "
                               "image has {}",
                               request.bytes, image_bytes_)});
  }
  if (const Status status = CheckNewModule(request); !status.ok()) return Reject(status);
  const loader::ModuleReader::Owner whose = {
      .session = id(),
      .uid = attach_.peer.uid,
      .isolation = static_cast<device::Isolation>(attach_.isolation),
      .rank = static_cast<std::uint8_t>(spec_.scheduling_class),
      .who = who_};
  using Loaded = Result<loader::ModuleReader::Loaded>;
  // Loading takes two steps: the reader reads the module, then a slow call places it.
  ++slow_calls_;
  // `self` is moved and never released on the reader's thread, because the last reference must be
  // dropped on the control thread. The space outlives the module's compilation, because a session's
  // memory is freed only after its slow calls have ended.
  const auto compile = [space = memory_->space.get()](auto module, bool may_take_long) {
    return space->CompileModule(std::move(module), may_take_long);
  };
  environment_.reader.Load(whose, memory_->space->recipe(), std::move(image_), request.bytes,
                           compile, [self = shared_from_this(), request](Loaded loaded) mutable {
                             boost::asio::io_context& context = self->environment_.context;
                             boost::asio::post(context, [self = std::move(self), request,
                                                         loaded = std::move(loaded)]() mutable {
                               --self->slow_calls_;
                               self->OnModuleRead(request, std::move(loaded));
                             });
                           });
}

CostModel::Owner Session::owner() const {
  return {.uid = attach_.peer.uid, .isolation = static_cast<device::Isolation>(attach_.isolation)};
}

void Session::OnModuleRead(const ipc::LoadModule& request,
                           Result<loader::ModuleReader::Loaded> loaded) {
  Status status = loaded.status();
  if (status.ok()) {
    status = CheckDescribable(loaded->module->kernel_infos(), loaded->module->variable_infos());
  }
  if (has_ended_ || !status.ok()) {
    GiveBackImage();
    // The image is freed by a slow call, because that takes time.
    if (loaded.ok()) environment_.slow_calls.Post(caller(), [image = loaded->image] {});
    return has_ended_ ? CheckOver() : Reject(status);
  }

  const std::uint64_t identity =
      CostModel::ModuleIdentity(loaded->content, owner(), environment_.cost_seed);
  Place(std::make_shared<Placing>(Placing{.request = request,
                                          .module = std::move(loaded->module),
                                          .place = std::move(loaded->place),
                                          .identity = identity,
                                          .image = std::move(loaded->image)}));
}

void Session::Place(const std::shared_ptr<Placing>& placing) {
  using Placed = Result<IdentifiedModule>;
  MakeSlowCallFor(
      placing->module->bytes(),
      [space = memory_->space.get(), cover = memory_->cover.get(), placing]() -> Placed {
        Result<std::shared_ptr<const device::Module>> placed =
            PlaceCovered(*space, cover, *placing);
        if (!placed.ok()) return placed.status();
        // The description is checked again, because a driver may have added facts about the
        // module's kernels.
        if (Status wrong = CheckDescribable(**placed); !wrong.ok()) return wrong;
        // Released here, because that takes time.
        const auto image = std::exchange(placing->image, nullptr);
        const bool is_kept = image != nullptr && space->CheckMove().ok();
        return IdentifiedModule{
            *std::move(placed), placing->identity,
            is_kept ? ReadImage(image->get(), placing->request.bytes) : nullptr};
      },
      [placing](Session& self, Placed module) {
        const std::uint64_t missing = std::exchange(placing->missing_bytes, 0);
        if (missing == 0 || self.has_ended_ ||
            placing->memory_requests_open == kMemoryRequestsMax) {
          return self.OnModuleParsed(placing->request, std::move(module));
        }
        ++placing->memory_requests_open;
        self.AwaitMemory(missing, [placing, why = module.status()](Session& again, bool is_made) {
          if (is_made) return again.Place(placing);
          again.OnModuleParsed(placing->request, why);
        });
      });
}

void Session::OnModuleParsed(const ipc::LoadModule& request, Result<IdentifiedModule> module) {
  GiveBackImage();
  if (has_ended_) {
    // Modules must be destroyed before their space, so this one is freed with the rest of the
    // memory.
    if (module.ok()) memory_->modules[request.module].module = std::move(module->module);
    return CheckOver();
  }
  if (!module.ok()) return Reject(module.status());
  SessionMemory::LoadedModule& entry = memory_->modules[request.module];
  entry.module = std::move(module->module);
  entry.bytes = request.bytes;
  entry.identity = module->identity;
  if (module->image != nullptr && TakeKeptImage(request.bytes)) {
    entry.image = std::move(module->image);
  }
  module_bytes_ += request.bytes;
  ReportMemory();
  // The device thread is notified first, because the client may name the module as soon as it has
  // the reply.
  Apply(AddModule{id(), request.module, entry.module.get(), module->identity},
        [this, number = request.module, loaded = entry.module.get()] {
          Reply(DescribeModule(number, *loaded));
        });
}

void Session::Handle(const ipc::UnloadModule& request) {
  const auto there = memory_->modules.find(request.module);
  if (there == memory_->modules.end() || there->second.is_leaving) {
    return Reject({StatusCode::kNotFound,
                   fmt::format("unloading rejected: there is no module {}", request.module)});
  }
  there->second.is_leaving = true;
  Apply(RemoveModule{id(), request.module}, [this] { Reply(ipc::Done{}); });
}

void Session::OnModuleReleased(std::uint32_t number) {
  const auto there = memory_->modules.find(number);
  if (there == memory_->modules.end()) return;
  module_bytes_ -= there->second.bytes;
  if (there->second.image != nullptr) GiveBackKeptImage(there->second.bytes);
  // The calls of a session are made in order, so the module is destroyed before the space can be.
  environment_.slow_calls.Post(caller(), [module = std::move(there->second.module),
                                          image = std::move(there->second.image)] {});
  memory_->modules.erase(there);
  ReportMemory();
}

// ---- kernel output and memory

// Printed text beyond the default limit is charged like staging memory.
Status Session::TakePrintedBytes(std::uint64_t bytes) {
  if (bytes == 0) return {};
  if (printed_ == nullptr) {
    return {StatusCode::kInvalidArgument,
            "limit rejected: the client's hello did not ask for what its kernels print"};
  }
  const std::uint64_t has = printed_->bytes_max();
  if (bytes <= has) return {};
  if (!environment_.staging.TryTake(staging_bytes_, bytes - has, MayUseReserve())) {
    return {StatusCode::kOutOfMemory,
            fmt::format("limit rejected: asked for {} bytes of printed text, the staging memory of "
                        "all clients has {} left for this one",
                        bytes, environment_.staging.LeftFor(staging_bytes_, MayUseReserve()))};
  }
  staging_bytes_ += bytes - has;
  printed_->SetBytesMax(static_cast<std::size_t>(bytes));
  return {};
}

void Session::Handle(const ipc::SetKernelMemory& request) {
  MakeSlowCall(
      [space = memory_->space.get(),
       memory = device::KernelMemory{.stack_bytes = request.stack_bytes,
                                     .printed_bytes = request.printed_bytes,
                                     .heap_bytes = request.heap_bytes}] {
        return space->SetKernelMemory(memory);
      },
      [bytes = request.printed_bytes](Session& self, Status set) {
        if (self.has_ended_) return self.CheckOver();
        if (set.ok()) set = self.TakePrintedBytes(bytes);
        if (!set.ok()) return self.Reject(set);
        self.Reply(ipc::Done{});
      });
}

// ---- staging buffers

namespace {

// Returns half the number of descriptors that this process may have. A new descriptor above this
// number shows that more than half are in use, because the kernel assigns the lowest free number.
int DescriptorsForStagingBuffers() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()) / 2);
}

}  // namespace

Status Session::CheckNewStagingBuffer(const ipc::AddStagingBuffer& request) const {
  const SessionLimits& limits = environment_.limits;
  const std::size_t staging_buffers_max =
      std::min<std::size_t>(limits.staging_buffers_max, ipc::kStagingBuffersMax);
  if (memory_->staging_buffers.size() >= staging_buffers_max) {
    return {StatusCode::kLimitExceeded,
            fmt::format("staging buffer rejected: there are {} staging buffers, allowed: {}",
                        memory_->staging_buffers.size(), staging_buffers_max)};
  }
  if (request.bytes > limits.staging_bytes_max) {
    return {StatusCode::kLimitExceeded,
            fmt::format("staging buffer rejected: asked for {} bytes, allowed: {}", request.bytes,
                        limits.staging_bytes_max)};
  }
  if (request.bytes > limits.staging_bytes_total_max - staging_bytes_) {
    return {StatusCode::kLimitExceeded,
            fmt::format("staging buffer rejected: asked for {} bytes, {} of {} are in use",
                        request.bytes, staging_bytes_, limits.staging_bytes_total_max)};
  }
  return Status::Ok();
}

void Session::Handle(const ipc::AddStagingBuffer& request) {
  if (const Status status = CheckNewStagingBuffer(request); !status.ok()) return Reject(status);
  if (!environment_.staging.TryTake(staging_bytes_, request.bytes, MayUseReserve())) {
    return Reject(
        {StatusCode::kOutOfMemory,
         fmt::format("staging buffer rejected: asked for {} bytes, the staging memory of all "
                     "clients has {} left for this one",
                     request.bytes,
                     environment_.staging.LeftFor(staging_bytes_, MayUseReserve()))});
  }
  staging_bytes_ += request.bytes;
  MakeSlowSteps(
      GetCaller(request.bytes <= kShortStagingBufferBytes),
      [making =
           StagingBufferInMaking{.device = environment_.device, .bytes = request.bytes}]() mutable {
        return making.MakePart();
      },
      [bytes = request.bytes](Session& self, Result<StagingBuffer> staging_buffer) {
        self.OnStagingBufferMade(bytes, std::move(staging_buffer));
      });
}

std::optional<Result<Session::StagingBuffer>> Session::StagingBufferInMaking::MakePart() {
  if (!memory.valid()) {
    Result<ipc::SharedSegment> made =
        ipc::SharedSegment::Create({.name = "gpushared staging buffer",
                                    .bytes = static_cast<std::size_t>(bytes),
                                    .access = ipc::SharedSegment::Access::kReadWrite,
                                    .reserve = false});
    if (!made.ok()) return made.status();
    memory = *std::move(made);
  }
  const std::uint64_t whole_pages =
      ipc::WholePages((bytes + kStagingPartsMax - 1) / kStagingPartsMax);
  const std::uint64_t part = std::min(std::max(kStagingPartBytes, whole_pages), bytes - done);
  if (const Status taken = memory.Reserve(done, part); !taken.ok()) return taken;
  done += part;
  if (done < bytes) return std::nullopt;
  Result<std::unique_ptr<device::PinnedMemory>> pinned = device.Pin(memory.bytes());
  StagingBuffer staging_buffer{
      .memory = std::move(memory), .pinned = nullptr, .why_not_pinned = pinned.status()};
  if (pinned.ok()) staging_buffer.pinned = *std::move(pinned);
  return staging_buffer;
}

// Ends a session whose client has punched holes in its staging buffers. The client library never
// does so, and the worker only after the session has ended.
void Session::CheckStagingBuffers() {
  if (has_ended_) return;
  for (std::size_t number = 0; number < memory_->staging_buffers.size(); ++number) {
    const ipc::SharedSegment& staging_buffer = memory_->staging_buffers[number];
    const std::size_t missing = staging_buffer.MissingBytes();
    if (missing == 0) continue;
    return EndFor(
        {StatusCode::kProtocolViolation,
         fmt::format("staging buffer {} has holes: {} of {} KiB are missing; its pages stay until "
                     "the session ends",
                     number, missing >> 10, staging_buffer.size() >> 10)});
  }
}

void Session::OnStagingBufferMade(std::uint64_t bytes, Result<StagingBuffer> staging_buffer) {
  Result<ipc::UniqueFd> copy =
      staging_buffer.ok() ? ipc::DuplicateFd(staging_buffer->memory.fd()) : staging_buffer.status();
  if (staging_buffer.ok() && (has_ended_ || !copy.ok())) {
    // Freed by a slow call, because freeing the pages takes the kernel as long as clearing them,
    // and would delay all sessions of this thread.
    environment_.slow_calls.Post(caller(), [dropped = *std::move(staging_buffer)] {});
  }
  if (has_ended_) return CheckOver();
  if (!copy.ok()) {
    environment_.staging.GiveBack(staging_bytes_, bytes);
    staging_bytes_ -= bytes;
    return Reject({copy.status().code(), fmt::format("staging buffer of {} bytes rejected: {}",
                                                     bytes, copy.status().message())});
  }
  if (!staging_buffer->why_not_pinned.ok()) {
    spdlog::warn("copies of a staging buffer of {} bytes use an intermediate buffer: {} [{}]",
                 bytes, staging_buffer->why_not_pinned.message(), who_);
  }
  // The descriptor is kept for CheckStagingBuffers and for reads without page faults, as long as
  // enough descriptors remain for sessions and sockets.
  if (staging_buffer->memory.fd() > DescriptorsForStagingBuffers())
    staging_buffer->memory.CloseFd();
  const auto number = static_cast<std::uint32_t>(memory_->staging_buffers.size());
  memory_->staging_buffers.push_back(std::move(staging_buffer->memory));
  memory_->pinned_staging_buffers.push_back(std::move(staging_buffer->pinned));
  const ipc::SharedSegment& kept = memory_->staging_buffers.back();
  // Shared, because a std::function must be copyable.
  auto fd = std::make_shared<ipc::UniqueFd>(*std::move(copy));
  Apply(AddStagingBuffer{id(), number, kept.bytes(), kept.fd()},
        [this, number, bytes, fd = std::move(fd)] {
          std::vector<ipc::UniqueFd> fds;
          fds.push_back(std::move(*fd));
          Reply(ipc::StagingBufferAdded{.staging_buffer = number, .bytes = bytes}, std::move(fds));
        });
}

}  // namespace gpushared::server
