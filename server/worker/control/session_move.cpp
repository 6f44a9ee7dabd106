// SPDX-License-Identifier: Apache-2.0
// Moves of a session to another worker and from one (docs/design/moving.md).
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "ipc/wire/layout.h"
#include "server/device/memory_budget.h"
#include "server/worker/control/session.h"
#include "server/worker/control/session_calls.h"
#include "server/worker/state/save_client.h"

namespace gpushared::server {
namespace {

using std::chrono::steady_clock;

// Time for the client's commands and its open requests to end after its intake has stopped.
constexpr std::chrono::milliseconds kReleaseMax{2000};
// Time for the whole move; the client is stopped during most of it.
constexpr std::chrono::seconds kMoveMax{20};
// Interval at which a session waits for the end of its client's request.
constexpr std::chrono::milliseconds kIdlePoll{1};
// Memory that is copied in one slow call.
constexpr std::uint64_t kCopyStepBytes = std::uint64_t{64} << 20;

std::uint64_t Ns(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
}

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

Result<ipc::UniqueFd> MakeState(
    const SavedSession& session, const SavedClient& client,
    std::span<const std::shared_ptr<const std::vector<std::byte>>> images, const std::string& text,
    ipc::MovedSession& sizes) {
  const Result<std::vector<std::byte>> first = ipc::Encode(session), second = ipc::Encode(client);
  if (!first.ok()) return first.status();
  if (!second.ok()) return second.status();
  sizes.session_bytes = static_cast<std::uint32_t>(first->size());
  sizes.client_bytes = static_cast<std::uint32_t>(second->size());
  std::vector<std::span<const std::byte>> parts = {*first, *second};
  for (const auto& image : images) parts.emplace_back(*image);
  parts.push_back(Bytes(text));
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  Result<ipc::UniqueFd> file = ipc::MakeFixedMemory("gpushared moved state", bytes);
  if (!file.ok()) return file;
  std::size_t offset = 0;
  for (const auto& part : parts) {
    if (Status status = ipc::WriteMemory(file->get(), part, offset); !status.ok()) return status;
    offset += part.size();
  }
  return file;
}

}  // namespace

// ---- to another worker

struct Session::Outgoing {
  Outgoing(boost::asio::io_context& context, ipc::UniqueFd to)
      : channel(context, to.Release()), timer(context), idle_timer(context) {}

  Descriptor channel;
  ipc::Outbox outbox{ipc::Outbox::Kind::kSeqpacket};
  boost::asio::steady_timer timer, idle_timer;
  std::function<void(const Status&)> failed;
  std::function<void()> left;
  // Set once the device thread has released the client.
  std::unique_ptr<SavedClient> client;
  steady_clock::time_point stopped;
  ipc::UniqueFd state, memory;
  ipc::MovedSession sizes;
  bool is_offered = false;
};

Status Session::CheckMove() const {
  const auto reject = [this](StatusCode code, const std::string& why) {
    return Status(code, fmt::format("client cannot be moved: {} [{}]", why, who_));
  };
  if (!is_welcomed_ || has_ended_ || memory_ == nullptr) {
    return reject(StatusCode::kNotReady, "it is starting or ending");
  }
  const auto unsupported = [&](const std::string& why) {
    return reject(StatusCode::kUnsupported, why);
  };
  if (attach_.hello.gated) return unsupported("in gate mode its state belongs to the driver");
  if (Status status = memory_->space->CheckMove(); !status.ok()) {
    return unsupported(std::string(status.message()));
  }
  if (memory_->chunks.bytes() > 0) return unsupported("it maps memory itself");
  for (const auto& [number, module] : memory_->modules) {
    if (module.image == nullptr && !module.is_leaving) {
      return unsupported(fmt::format(
          "the image of its module {} was not kept, because too many images are loaded", number));
    }
  }
  const auto has_fd = [](const ipc::SharedSegment& segment) { return segment.fd() >= 0; };
  if (!has_fd(memory_->commands) || !has_fd(memory_->completions) || !has_fd(memory_->page) ||
      !std::ranges::all_of(memory_->staging_buffers, has_fd)) {
    return unsupported("its descriptors were closed, because the server has too many");
  }
  return {};
}

void Session::MoveOut(ipc::UniqueFd channel, std::function<void(const Status&)> failed,
                      std::function<void()> left) {
  if (outgoing_ != nullptr) {
    return failed({StatusCode::kNotReady, fmt::format("client is being moved already [{}]", who_)});
  }
  if (Status status = CheckMove(); !status.ok()) return failed(status);
  outgoing_ = std::make_shared<Outgoing>(environment_.context, std::move(channel));
  outgoing_->failed = std::move(failed);
  outgoing_->left = std::move(left);
  outgoing_->timer.expires_after(kMoveMax);
  outgoing_->timer.async_wait(
      [weak = weak_from_this(), move = outgoing_](const boost::system::error_code& error) {
        const auto self = weak.lock();
        if (error || self == nullptr || self->outgoing_ != move) return;
        self->AbandonMove(
            {StatusCode::kTimedOut, fmt::format("client was not moved in time [{}]", self->who_)});
      });
  WatchAnswer(outgoing_);
  AwaitIdle(outgoing_);
}

// Requests of the client that arrive from here on stay in its socket.
void Session::AwaitIdle(const std::shared_ptr<Outgoing>& move) {
  const bool is_idle =
      !is_busy() && slow_calls_ == 0 && !image_.valid() && reader_.is_between_frames();
  if (is_idle) {
    return environment_.device_thread.Post(
        ReleaseClient{id(), scheduler::TimePoint(steady_clock::now().time_since_epoch()) +
                                scheduler::Duration(kReleaseMax)});
  }
  move->idle_timer.expires_after(kIdlePoll);
  move->idle_timer.async_wait(
      [weak = weak_from_this(), move](const boost::system::error_code& error) {
        const auto self = weak.lock();
        if (!error && self != nullptr && self->outgoing_ == move) self->AwaitIdle(move);
      });
}

void Session::OnKept(const Status& why) {
  if (!has_ended_) AbandonMove(why);
}

void Session::OnReleased(const SavedClient& saved) {
  if (outgoing_ == nullptr) return AttachSaved(saved);  // The move was abandoned meanwhile.
  outgoing_->client = std::make_unique<SavedClient>(saved);
  outgoing_->stopped = steady_clock::now();
  // A swap may have begun since.
  if (Status status = CheckMove(); !status.ok()) return AbandonMove(status);
  Export(outgoing_);
}

std::vector<device::MemoryPiece> Session::MovedPieces() const {
  std::vector<device::MemoryPiece> pieces;
  const std::uint64_t base = memory_->space->base();
  for (std::uint64_t at = 0; at < memory_->mapped_bytes; at += kCopyStepBytes) {
    pieces.push_back(
        {.base = base + at, .bytes = std::min(kCopyStepBytes, memory_->mapped_bytes - at)});
  }
  for (const auto& [number, module] : memory_->modules) {
    if (module.module->block().bytes > 0) pieces.push_back(module.module->block());
  }
  return pieces;
}

void Session::Export(const std::shared_ptr<Outgoing>& move) {
  const device::Space& space = *memory_->space;
  const device::MemoryPiece area = space.mapping_area();
  SavedSession saved{.age_ns = Ns(steady_clock::now() - since_),
                     .stopped_ns = Ns(move->stopped.time_since_epoch()),
                     .space_base = space.base(),
                     .space_bytes = space.range_bytes(),
                     .mapping_base = area.base,
                     .mapping_bytes = area.bytes,
                     .mapped_bytes = memory_->mapped_bytes,
                     .stack_bytes = space.kernel_memory().stack_bytes,
                     .launch_text_bytes = space.kernel_memory().printed_bytes,
                     .staging_buffers = static_cast<std::uint32_t>(memory_->staging_buffers.size()),
                     .owner = work_owner_.ToRow(),
                     .modules = {}};
  PrintedText::State printed;
  if (printed_ != nullptr) printed = printed_->Save();
  saved.printed_total = printed.total;
  saved.printed_dropped = printed.dropped;
  saved.printed_max = printed.bytes_max;
  saved.printed_bytes = static_cast<std::uint32_t>(printed.text.size());
  std::vector<std::shared_ptr<const std::vector<std::byte>>> images;
  for (const auto& [number, module] : memory_->modules) {
    saved.modules.push_back(
        {.number = number, .image_bytes = module.bytes, .address = module.module->block().base});
    images.push_back(module.image);
  }
  MakeSlowSteps(
      caller(),
      [move, saved = std::move(saved), images = std::move(images), text = std::move(printed.text),
       pieces = MovedPieces(), done = std::size_t{0},
       space = memory_->space.get()]() mutable -> std::optional<Result<bool>> {
        if (!move->state.valid()) {
          auto state = MakeState(saved, *move->client, images, text, move->sizes);
          if (!state.ok()) return Result<bool>(state.status());
          move->state = *std::move(state);
          auto memory = ipc::MakeFixedMemory("gpushared moved memory", space->range_bytes());
          if (!memory.ok()) return Result<bool>(memory.status());
          move->memory = *std::move(memory);
        }
        if (done == pieces.size()) return Result<bool>(true);
        if (Status status = space->Save(pieces[done], move->memory.get()); !status.ok()) {
          return Result<bool>(status);
        }
        if (++done < pieces.size()) return std::nullopt;
        return Result<bool>(true);
      },
      [move](Session& self, const Result<bool>& saved_all) {
        if (self.has_ended_) return self.CheckOver();
        if (self.outgoing_ != move) return;
        if (!saved_all.ok()) return self.AbandonMove(saved_all.status());
        self.Offer(move);
      });
}

void Session::Offer(const std::shared_ptr<Outgoing>& move) {
  ipc::Attach attach = attach_;
  attach.client_class = spec_.scheduling_class;
  attach.weight = spec_.weight;
  attach.max_share = caps_.own;
  std::vector<ipc::UniqueFd> first, second;
  Status status;
  const auto add = [&status](std::vector<ipc::UniqueFd>& to, int fd) {
    Result<ipc::UniqueFd> copy = ipc::DuplicateFd(fd);
    if (!copy.ok()) {
      status = copy.status();
      return;
    }
    to.push_back(*std::move(copy));
  };
  for (const int fd : {socket_.native_handle(), pidfd_.native_handle()}) add(first, fd);
  for (const int fd : {memory_->doorbell.get(), memory_->commands.fd(), memory_->completions.fd(),
                       memory_->page.fd()}) {
    add(second, fd);
  }
  if (!status.ok()) return AbandonMove(status);
  second.push_back(std::move(move->state));
  second.push_back(std::move(move->memory));
  status = move->outbox.Add(0, attach, std::move(first));
  if (status.ok()) status = move->outbox.Add(0, move->sizes, std::move(second));
  for (const ipc::SharedSegment& buffer : memory_->staging_buffers) {
    std::vector<ipc::UniqueFd> fds;
    if (status.ok()) add(fds, buffer.fd());
    if (status.ok()) {
      status = move->outbox.Add(0, ipc::MovedBuffer{.bytes = buffer.size()}, std::move(fds));
    }
  }
  if (!status.ok()) return AbandonMove(status);
  move->is_offered = true;
  FlushOffer(move);
}

void Session::FlushOffer(const std::shared_ptr<Outgoing>& move) {
  const Result<bool> done = move->outbox.Flush(move->channel.native_handle());
  if (!done.ok()) return AbandonMove(done.status());
  if (*done) return;
  move->channel.async_wait(Descriptor::wait_write,
                           [weak = weak_from_this(), move](const boost::system::error_code& error) {
                             const auto self = weak.lock();
                             if (!error && self != nullptr && self->outgoing_ == move)
                               self->FlushOffer(move);
                           });
}

void Session::WatchAnswer(const std::shared_ptr<Outgoing>& move) {
  move->channel.async_wait(Descriptor::wait_read,
                           [weak = weak_from_this(), move](const boost::system::error_code& error) {
                             const auto self = weak.lock();
                             if (!error && self != nullptr && self->outgoing_ == move)
                               self->OnAnswer(move);
                           });
}

void Session::OnAnswer(const std::shared_ptr<Outgoing>& move) {
  Result<std::optional<ipc::Frame>> frame =
      ipc::ReceiveChannelMessage(move->channel.native_handle(), ipc::MoveAnswerRules);
  if (!frame.ok()) {
    return AbandonMove(
        {StatusCode::kUnavailable,
         fmt::format("client was not moved: the other worker has ended [{}]", who_)});
  }
  if (!frame->has_value()) return WatchAnswer(move);
  const Result<ipc::ChannelReply> reply = ipc::Decode<ipc::ChannelReply>((*frame)->payload);
  if (!reply.ok()) return AbandonMove(reply.status());
  if (reply->code != StatusCode::kOk) return AbandonMove({reply->code, reply->text});
  if (!move->is_offered || !move->outbox.empty()) {
    return AbandonMove({StatusCode::kProtocolViolation, "the other worker answers too early"});
  }
  Commit();
}

// The commit is a single packet. Once it has been sent, only the other worker owns the session,
// whether or not it lives to read the packet.
void Session::Commit() {
  Status sent = outgoing_->outbox.Add(0, ipc::MoveCommit{});
  if (sent.ok()) {
    const Result<bool> flushed = outgoing_->outbox.Flush(outgoing_->channel.native_handle());
    sent = flushed.status();
    if (flushed.ok() && !*flushed) {
      sent = Status(StatusCode::kUnavailable, "the other worker does not read");
    }
  }
  if (!sent.ok()) return AbandonMove(sent);
  const std::shared_ptr<Outgoing> move = std::move(outgoing_);
  move->timer.cancel();
  environment_.log.GetWrite(spdlog::level::info, id(),
                            fmt::format("session moved to another device [{}]", who_));
  move->left();
  Forsake();
}

void Session::AbandonMove(const Status& why) {
  const std::shared_ptr<Outgoing> move = std::move(outgoing_);
  if (move == nullptr) return;
  move->timer.cancel();
  move->idle_timer.cancel();
  boost::system::error_code ignored;
  move->channel.close(ignored);
  if (!has_ended_) {
    if (move->client != nullptr) {
      AttachSaved(*move->client);
    } else {
      environment_.device_thread.Post(ResumeClient{id()});
    }
    ReadOn();
  }
  move->failed(why);
}

void Session::AttachSaved(const SavedClient& saved) {
  auto client = MakeClient(saved.last_sleep);
  if (Status status = Restore(saved, memory_->mapped_bytes, *client); !status.ok()) {
    return EndFor(status);
  }
  for (const auto& [number, module] : memory_->modules) {
    client->scope.AddModule(number, {.module = module.module.get(), .identity = module.identity});
  }
  for (std::size_t number = 0; number < memory_->staging_buffers.size(); ++number) {
    const ipc::SharedSegment& buffer = memory_->staging_buffers[number];
    client->scope.AddStagingBuffer(static_cast<std::uint32_t>(number), buffer.bytes(), buffer.fd());
  }
  if (memory_swaps()) client->output.ShowMemory(attach_.guaranteed_bytes, 0, 0);
  // No command starts before the device thread knows which memory is resident.
  client->life.SetPaused(memory_swaps());
  attached_ = client.get();
  environment_.device_thread.Post(AttachClient{std::move(client)});
  if (!memory_swaps()) return;
  MakeSlowCall(
      [space = memory_->space.get()]() -> Result<device::SpaceUse> { return space->use(); },
      [](Session& self, const Result<device::SpaceUse>& use) {
        if (self.has_ended_) return self.CheckOver();
        if (use.ok()) self.environment_.device_thread.Post(MemoryChanged{self.id(), *use});
        self.environment_.device_thread.Post(ResumeClient{self.id()});
      });
}

void Session::Forsake() {
  if (has_ended_.exchange(true)) return;
  has_moved_ = true;
  // No shutdown: the client's socket belongs to the other worker.
  closing_ = ipc::UniqueFd(socket_.release());
  boost::system::error_code ignored;
  pidfd_.close(ignored);
  CheckOver();
}

// ---- from another worker

struct Session::Arriving {
  MovedState moved;
  std::function<void(Status)> done;
  std::size_t modules_done = 0;
  std::uint64_t image_offset = 0;
};

bool Session::TakeKeptImage(std::uint64_t bytes) {
  if (!environment_.kept_images.TryTake(kept_image_bytes_, bytes, MayUseReserve())) return false;
  kept_image_bytes_ += bytes;
  return true;
}

void Session::GiveBackKeptImage(std::uint64_t bytes) {
  environment_.kept_images.GiveBack(kept_image_bytes_, bytes);
  kept_image_bytes_ -= bytes;
}

void Session::EndAdoption(const std::shared_ptr<Arriving>& move, Status status) {
  const auto done = std::exchange(move->done, nullptr);
  if (has_ended_) CheckOver();
  if (done) done(std::move(status));
}

void Session::Adopt(MovedState moved, std::function<void(Status)> done) {
  has_place_ = true;
  has_moved_ = true;  // Until TakeOver the session belongs to the other worker.
  SetCanPark();
  auto move = std::make_shared<Arriving>();
  move->moved = std::move(moved);
  move->done = std::move(done);
  move->image_offset = move->moved.images_offset;
  device::SpaceOptions options = GetSpaceOptions();
  options.base = move->moved.session.space_base;
  using Made = Result<std::unique_ptr<SessionMemory>>;
  MakeSlowCall(
      [move, options, device = &environment_.device, store = environment_.store,
       guaranteed = attach_.guaranteed_bytes, quota = quota_bytes()]() -> Made {
        MovedState& state = move->moved;
        auto memory = std::make_unique<SessionMemory>();
        const auto map = [](ipc::UniqueFd fd, std::size_t bytes, bool writes, const char* what,
                            ipc::SharedSegment& into) -> Status {
          using Access = ipc::SharedSegment::Access;
          auto mapped = ipc::SharedSegment::Map(
              std::move(fd), {.bytes = bytes,
                              .access = writes ? Access::kReadWrite : Access::kReadOnly,
                              .populate = true,
                              .what = what});
          if (!mapped.ok()) return mapped.status();
          into = *std::move(mapped);
          return {};
        };
        Status status = map(std::move(state.commands), ipc::kCommandSegmentBytes, false,
                            "command segment", memory->commands);
        if (status.ok()) {
          status = map(std::move(state.completions), ipc::kCompletionSegmentBytes, true,
                       "completion segment", memory->completions);
        }
        if (status.ok()) {
          status =
              map(std::move(state.page), ipc::kWorkerPageBytes, true, "worker page", memory->page);
        }
        if (!status.ok()) return status;
        memory->doorbell = std::move(state.doorbell);
        if (store != nullptr) memory->cover = std::make_unique<SwapReservation>(store, guaranteed);
        auto space = device->CreateSpace(options);
        if (!space.ok()) return space.status();
        memory->space = *std::move(space);
        if (Status can = memory->space->CheckMove(); !can.ok()) return can;
        const SavedSession& saved = state.session;
        const device::MemoryPiece area = memory->space->mapping_area();
        if (memory->space->base() != saved.space_base ||
            memory->space->range_bytes() != saved.space_bytes || area.base != saved.mapping_base ||
            area.bytes != saved.mapping_bytes) {
          return Status(StatusCode::kUnsupported,
                        "client cannot be moved: its addresses are not the same on this device");
        }
        const ResizeStep step =
            MakeResizeStep(*memory->space, memory->cover.get(), saved.mapped_bytes, quota);
        if (!step.mapped.ok()) return step.mapped.status();
        memory->mapped_bytes = *step.mapped;
        if (memory->mapped_bytes != saved.mapped_bytes) {
          return Status(StatusCode::kProtocolViolation,
                        "client cannot be moved: its memory is not whole pages");
        }
        if (Status set = memory->space->SetKernelMemory(
                {.stack_bytes = saved.stack_bytes, .printed_bytes = saved.launch_text_bytes});
            !set.ok()) {
          return set;
        }
        return memory;
      },
      [move](Session& self, Made memory) {
        if (!memory.ok()) return self.EndAdoption(move, memory.status());
        self.memory_ = *std::move(memory);
        self.AdoptModule(move);
      });
}

void Session::AdoptModule(const std::shared_ptr<Arriving>& move) {
  if (has_ended_) return EndAdoption(move, {StatusCode::kCancelled, "the move was abandoned"});
  const std::vector<SavedModule>& modules = move->moved.session.modules;
  if (move->modules_done == modules.size()) return AdoptMemory(move);
  const SavedModule& next = modules[move->modules_done];
  const SessionLimits& limits = environment_.limits;
  if (memory_->modules.contains(next.number) || next.image_bytes > limits.module_bytes_max ||
      next.image_bytes > limits.modules_bytes_max - module_bytes_ ||
      memory_->modules.size() >= limits.modules_max) {
    return EndAdoption(move, {StatusCode::kLimitExceeded,
                              fmt::format("module {} of a moved client rejected", next.number)});
  }
  if (!TakeKeptImage(next.image_bytes)) {
    return EndAdoption(move, {StatusCode::kOutOfMemory,
                              "client cannot be moved: the memory for kept images is full"});
  }
  module_bytes_ += next.image_bytes;
  struct Image {
    std::shared_ptr<std::vector<std::byte>> bytes;
    ipc::UniqueFd file;
  };
  MakeSlowCall(
      [move, bytes = next.image_bytes, offset = move->image_offset]() -> Result<Image> {
        Image image{.bytes = std::make_shared<std::vector<std::byte>>(bytes), .file = {}};
        if (Status read = ipc::ReadMemory(move->moved.state.get(), offset, *image.bytes);
            !read.ok()) {
          return read;
        }
        Result<ipc::UniqueFd> file = ipc::MakeFixedMemory("gpushared image", bytes);
        if (!file.ok()) return file.status();
        if (Status written = ipc::WriteMemory(file->get(), *image.bytes); !written.ok()) {
          return written;
        }
        image.file = *std::move(file);
        return image;
      },
      [move](Session& self, Result<Image> image) {
        if (!image.ok()) return self.EndAdoption(move, image.status());
        self.ReadAdopted(move, std::move(image->bytes), std::move(image->file));
      });
}

void Session::ReadAdopted(const std::shared_ptr<Arriving>& move,
                          std::shared_ptr<const std::vector<std::byte>> bytes, ipc::UniqueFd file) {
  if (has_ended_) return EndAdoption(move, {StatusCode::kCancelled, "the move was abandoned"});
  const loader::ModuleReader::Owner whose = {
      .session = id(),
      .uid = attach_.peer.uid,
      .isolation = static_cast<device::Isolation>(attach_.isolation),
      .rank = static_cast<std::uint8_t>(spec_.scheduling_class),
      .who = who_};
  using Loaded = Result<loader::ModuleReader::Loaded>;
  const auto compile = [space = memory_->space.get()](auto module, bool may_take_long) {
    return space->CompileModule(std::move(module), may_take_long);
  };
  ++slow_calls_;
  const std::uint64_t size = bytes->size();
  environment_.reader.Load(
      whose, memory_->space->recipe(), std::move(file), size, compile,
      [self = shared_from_this(), move, bytes = std::move(bytes)](Loaded loaded) mutable {
        boost::asio::io_context& context = self->environment_.context;
        boost::asio::post(context, [self = std::move(self), move, bytes = std::move(bytes),
                                    loaded = std::move(loaded)]() mutable {
          --self->slow_calls_;
          if (!loaded.ok()) return self->EndAdoption(move, loaded.status());
          self->PlaceAdopted(move, std::move(bytes), *std::move(loaded));
        });
      });
}

void Session::PlaceAdopted(const std::shared_ptr<Arriving>& move,
                           std::shared_ptr<const std::vector<std::byte>> bytes,
                           loader::ModuleReader::Loaded loaded) {
  using Placed = Result<std::shared_ptr<const device::Module>>;
  const SavedModule& saved = move->moved.session.modules[move->modules_done];
  const std::uint64_t identity =
      CostModel::ModuleIdentity(loaded.content, owner(), environment_.cost_seed);
  MakeSlowCall(
      [space = memory_->space.get(), cover = memory_->cover.get(), address = saved.address,
       loaded = std::move(loaded)]() -> Placed {
        Placed placed = space->PlaceModuleAt(loaded.module, address);
        if (!placed.ok()) return placed;
        if ((*placed)->block().base != address) {
          return Status(StatusCode::kProtocolViolation,
                        "client cannot be moved: the variables of a module are elsewhere");
        }
        if (cover == nullptr) return placed;
        if (Status full = cover->Cover(space->use()); !full.ok()) return full;
        return placed;
      },
      [move, identity, bytes = std::move(bytes)](Session& self, Placed placed) {
        if (!placed.ok()) return self.EndAdoption(move, placed.status());
        const SavedModule& each = move->moved.session.modules[move->modules_done];
        SessionMemory::LoadedModule& entry = self.memory_->modules[each.number];
        entry.module = *std::move(placed);
        entry.bytes = each.image_bytes;
        entry.identity = identity;
        entry.image = bytes;
        move->image_offset += each.image_bytes;
        ++move->modules_done;
        self.AdoptModule(move);
      });
}

void Session::AdoptMemory(const std::shared_ptr<Arriving>& move) {
  MakeSlowSteps(
      caller(),
      [move, pieces = MovedPieces(), done = std::size_t{0},
       space = memory_->space.get()]() mutable -> std::optional<Result<bool>> {
        if (done == pieces.size()) return Result<bool>(true);
        if (Status status = space->Load(pieces[done], move->moved.memory.get()); !status.ok()) {
          return Result<bool>(status);
        }
        if (++done < pieces.size()) return std::nullopt;
        move->moved.memory.Reset();
        return Result<bool>(true);
      },
      [move](Session& self, const Result<bool>& loaded) {
        if (!loaded.ok()) return self.EndAdoption(move, loaded.status());
        self.AdoptBuffers(move);
      });
}

void Session::AdoptBuffers(const std::shared_ptr<Arriving>& move) {
  const SavedSession& saved = move->moved.session;
  std::uint64_t bytes = 0;
  for (const MovedState::Buffer& buffer : move->moved.staging_buffers) bytes += buffer.bytes;
  if (attach_.hello.takes_printed && saved.printed_max > PrintedText::kBytesMax) {
    bytes += saved.printed_max - PrintedText::kBytesMax;
  }
  if (bytes > environment_.limits.staging_bytes_total_max ||
      !environment_.staging.TryTake(0, bytes, MayUseReserve())) {
    return EndAdoption(
        move,
        {StatusCode::kOutOfMemory,
         fmt::format("client cannot be moved: it has staging buffers of {} bytes, the staging "
                     "memory of all clients has {} left for it",
                     bytes, environment_.staging.LeftFor(0, MayUseReserve()))});
  }
  staging_bytes_ = bytes;
  struct Adopted {
    std::vector<StagingBuffer> buffers;
    std::string printed;
  };
  MakeSlowCall(
      [move, device = &environment_.device]() -> Result<Adopted> {
        Adopted adopted;
        for (MovedState::Buffer& buffer : move->moved.staging_buffers) {
          auto memory = ipc::SharedSegment::Map(std::move(buffer.memory),
                                                {.bytes = static_cast<std::size_t>(buffer.bytes),
                                                 .access = ipc::SharedSegment::Access::kReadWrite,
                                                 .what = "staging buffer"});
          if (!memory.ok()) return memory.status();
          auto pinned = device->Pin(memory->bytes());
          adopted.buffers.push_back(
              {.memory = *std::move(memory), .pinned = nullptr, .why_not_pinned = pinned.status()});
          if (pinned.ok()) adopted.buffers.back().pinned = *std::move(pinned);
        }
        adopted.printed.resize(move->moved.session.printed_bytes);
        if (Status read = ipc::ReadMemory(move->moved.state.get(), move->image_offset,
                                          std::as_writable_bytes(std::span(adopted.printed)));
            !read.ok()) {
          return read;
        }
        move->moved.state.Reset();
        return adopted;
      },
      [move](Session& self, Result<Adopted> adopted) {
        if (!adopted.ok()) return self.EndAdoption(move, adopted.status());
        for (StagingBuffer& buffer : adopted->buffers) {
          self.memory_->staging_buffers.push_back(std::move(buffer.memory));
          self.memory_->pinned_staging_buffers.push_back(std::move(buffer.pinned));
        }
        const SavedSession& state = move->moved.session;
        if (self.attach_.hello.takes_printed) {
          self.printed_ = std::make_shared<PrintedText>();
          self.printed_->Restore({.text = std::move(adopted->printed),
                                  .total = state.printed_total,
                                  .dropped = state.printed_dropped,
                                  .bytes_max = static_cast<std::size_t>(state.printed_max)});
        }
        self.work_owner_ = ipc::Owner::FromRow(state.owner);
        self.since_ = steady_clock::now() - std::chrono::nanoseconds(state.age_ns);
        self.stopped_ns_ = state.stopped_ns;
        self.arrived_ = std::make_unique<SavedClient>(std::move(move->moved.client));
        // The state is checked before the commit, after which nothing may fail.
        const auto tried = self.MakeClient(0);
        self.EndAdoption(move, Restore(*self.arrived_, self.memory_->mapped_bytes, *tried));
      });
}

void Session::TakeOver() {
  is_welcomed_ = true;
  has_moved_ = false;
  const std::uint64_t now = Ns(steady_clock::now().time_since_epoch());
  stopped_ns_ = now - std::min(now, stopped_ns_);
  if (printed_ != nullptr) environment_.kernel_output.Keep(id(), printed_);
  AttachSaved(*std::exchange(arrived_, nullptr));
  if (has_ended_) return;
  WatchDeath();
  ReadOn();
}

}  // namespace gpushared::server
