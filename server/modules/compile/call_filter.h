// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_COMPILE_CALL_FILTER_H_
#define GPUSHARED_SERVER_MODULES_COMPILE_CALL_FILTER_H_

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cstddef>
#include <cstdint>

// GPUSHARED_HAS_SHADOW is defined for sanitizers, which map terabytes of address space and use
// additional system calls and locks.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GPUSHARED_HAS_SHADOW 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GPUSHARED_HAS_SHADOW 1
#endif

namespace gpushared::compile {

// A seccomp filter; its rules are evaluated in order.
//
// Does not allocate, so it can be used between fork and exec.
class CallFilter {
 public:
  CallFilter() {
    Load(offsetof(seccomp_data, arch));
    // Rejects other instruction sets, which have different system call numbers.
    Test(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0);
    Return(SECCOMP_RET_ERRNO | EPERM);
    Load(offsetof(seccomp_data, nr));
  }

  void Deny(std::uint32_t call) {
    Test(BPF_JEQ, call, 0, 1);
    Return(SECCOMP_RET_ERRNO | EPERM);
  }
  void Allow(std::uint32_t call) {
    Test(BPF_JEQ, call, 0, 1);
    Return(SECCOMP_RET_ALLOW);
  }
  void DenyFrom(std::uint32_t call, std::uint32_t error) {
    Test(BPF_JGE, call, 0, 1);
    Return(SECCOMP_RET_ERRNO | error);
  }
  // Denies the call if these bits of the argument have that value. Suitable only for arguments of
  // which the kernel reads just the lower half.
  void DenyWhere(std::uint32_t call, unsigned argument, std::uint32_t bits, std::uint32_t value) {
    AskArgument(call, argument, bits, value, true);
  }
  // Allows the call only if the lower half of the argument is `value`. No further rule is evaluated
  // for it.
  void AllowOnlyWhere(std::uint32_t call, unsigned argument, std::uint32_t value) {
    AllowWhere(call, argument, ~std::uint32_t{0}, value);
    Allow(call);
  }
  void AllowWhere(std::uint32_t call, unsigned argument, std::uint32_t bits, std::uint32_t value) {
    AskArgument(call, argument, bits, value, false);
  }

  // Installs the filter permanently for the calling thread. Allows calls without a matching rule.
  bool Enter() { return EnterWith(SECCOMP_RET_ALLOW); }
  // Installs the filter permanently for the calling thread. Denies calls without a matching rule.
  bool EnterStrictly() { return EnterWith(SECCOMP_RET_ERRNO | EPERM); }

 private:
  bool EnterWith(std::uint32_t otherwise) {
    Return(otherwise);
    const sock_fprog filter = {.len = static_cast<unsigned short>(size_),
                               .filter = program_.data()};
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
  }

  void Put(unsigned code, std::uint32_t k, unsigned yes, unsigned no) {
    program_.at(size_++) = {static_cast<std::uint16_t>(code), static_cast<std::uint8_t>(yes),
                            static_cast<std::uint8_t>(no), k};
  }
  void Load(std::size_t offset) {
    Put(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset), 0, 0);
  }
  // `yes` and `no` are the numbers of instructions to skip.
  void Test(unsigned how, std::uint32_t value, unsigned yes, unsigned no) {
    Put(BPF_JMP | how | BPF_K, value, yes, no);
  }
  void Return(std::uint32_t what) { Put(BPF_RET | BPF_K, what, 0, 0); }
  void AskArgument(std::uint32_t call, unsigned argument, std::uint32_t bits, std::uint32_t value,
                   bool deny) {
    Test(BPF_JEQ, call, 0, 5);
    Load(offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t));
    Put(BPF_ALU | BPF_AND | BPF_K, bits, 0, 0);
    Test(BPF_JEQ, value, deny ? 0 : 1, deny ? 1 : 0);
    Return(SECCOMP_RET_ERRNO | EPERM);
    Load(offsetof(seccomp_data, nr));
  }

  std::array<sock_filter, 256> program_ = {};
  std::size_t size_ = 0;
};

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_MODULES_COMPILE_CALL_FILTER_H_
