/* SPDX-License-Identifier: Apache-2.0 */
/* A program that waits for an endless kernel, with a handler of SIGINT like Python's. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <cuda.h>

static const char kEndless[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry endless() {\nagain: bra again;\n}\n";

static volatile sig_atomic_t interrupts;
static void OnInterrupt(int number) {
  (void)number;
  ++interrupts;
}

int main(void) {
  CUcontext context;
  CUmodule module;
  CUfunction endless;
  struct sigaction action = {.sa_handler = OnInterrupt};
  sigaction(SIGINT, &action, NULL);
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
      cuModuleLoadData(&module, kEndless) || cuModuleGetFunction(&endless, module, "endless") ||
      cuLaunchKernel(endless, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) {
    return 1;
  }
  puts("the kernel runs");
  fflush(stdout);
  const CUresult waited = cuCtxSynchronize();
  sigaction(SIGINT, NULL, &action);
  printf("error %d after %d interrupts, the handler is %s\n", (int)waited, (int)interrupts,
         action.sa_handler == OnInterrupt ? "the program's" : "another one");
  return 0;
}
