// SPDX-License-Identifier: Apache-2.0
// Video instructions: one operation each, with its form encoded in the immediate.
#include <string>

#include "server/device/cpu/executor/decoder.h"
#include "server/device/cpu/executor/video_number.h"
#include "server/ptx/analysis/video.h"

namespace gpushared::device::executor {
namespace {

std::uint64_t PartNumber(const ptx::RegisterPart& part) {
  if (part.bits == 32) return video::kWhole;
  return part.bits == 8 ? part.position / 8u : 4 + part.position / 16u;
}

std::int64_t GetNumber(const ptx::VideoForm& form) {
  std::uint64_t number = 0;
  const auto put = [&](std::uint32_t position, std::uint64_t value) {
    number |= value << position;
  };
  put(video::kResultSigned, form.is_result_signed ? 1 : 0);
  put(video::kASigned, form.is_a_signed ? 1 : 0);
  put(video::kBSigned, form.is_b_signed ? 1 : 0);
  put(video::kSaturates, form.saturates ? 1 : 0);
  put(video::kSecond, static_cast<std::uint64_t>(form.second));
  put(video::kRelation, static_cast<std::uint64_t>(form.relation));
  if (form.elements == 1) {
    put(video::kResultPart, PartNumber(form.result));
    put(video::kAPart, PartNumber(form.a));
    put(video::kBPart, PartNumber(form.b));
    put(video::kWraps, form.wraps ? 1 : 0);
    put(video::kNegatesProduct, form.negates_product ? 1 : 0);
    put(video::kNegatesC, form.negates_c ? 1 : 0);
    put(video::kAddsOne, form.adds_one ? 1 : 0);
    put(video::kScale, form.scale);
    return static_cast<std::int64_t>(number);
  }
  for (std::uint32_t i = 0; i < form.elements; ++i) {
    put(video::kAElements + 3 * i, form.a_elements[i]);
    put(video::kBElements + 3 * i, form.b_elements[i]);
    put(video::kKept + i, form.is_kept[i] ? 1 : 0);
  }
  return static_cast<std::int64_t>(number);
}

}  // namespace

bool FunctionDecoder::DecodeVideo() {
  if (!ptx::IsVideo(instruction_->opcode)) return false;
  const Result<ptx::VideoForm> form = ptx::ReadVideo(*instruction_);
  if (!form) {
    Missing(std::string(form.status().message()));
    return true;
  }
  const OperandType word = GetType("u32");
  std::array<std::uint32_t, 3> sources = {};
  for (std::size_t i = 1; i < instruction_->operands.size(); ++i) {
    Operand plain = instruction_->operands[i];
    if (plain.kind == Operand::Kind::kName) plain.text = ptx::VideoRegister(plain);
    sources[i - 1] = Source(plain, word);
  }
  Operand result = instruction_->operands[0];
  result.text = ptx::VideoRegister(result);
  const std::uint32_t destination = Destination(result, word);
  MicroOp& op = Emit(instruction_->opcode, true);
  op.a = sources[0], op.b = sources[1], op.c = sources[2];
  op.destination = destination;
  op.immediate = GetNumber(*form);
  return true;
}

}  // namespace gpushared::device::executor
