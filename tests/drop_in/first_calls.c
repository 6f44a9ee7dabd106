// SPDX-License-Identifier: Apache-2.0
// Makes the first call of a driver: a call with a floating-point parameter ("float"), a call with
// parameters on the stack ("many"), or the second call from eight threads at once ("threads").
// Prints the number of calls that succeeded.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// Declared here, as in fake_driver.c, because cuda.h marks one of these functions as deprecated.
int cuParamSetf(void* function, int offset, float value);
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void* stream, void** parameters, void** extra);

enum { kThreads = 8 };

static pthread_barrier_t begin;
static atomic_int succeeded;

static int Many(void) {
  return cuLaunchKernel((void*)1, 2, 3, 4, 5, 6, 7, 8, (void*)9, (void**)10, (void**)11);
}

static void* OneOfMany(void* unused) {
  pthread_barrier_wait(&begin);
  if (Many() == 0) ++succeeded;
  return unused;
}

int main(int argc, char** argv) {
  const char* const which = argc == 2 ? argv[1] : "";
  pthread_t threads[kThreads];
  if (strcmp(which, "float") == 0) succeeded = cuParamSetf((void*)1, 2, 3.5F) == 0;
  if (strcmp(which, "many") == 0) succeeded = Many() == 0;
  if (strcmp(which, "threads") == 0) {
    pthread_barrier_init(&begin, NULL, kThreads);
    for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, OneOfMany, NULL);
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  }
  printf("succeeded %d\n", succeeded);
  return 0;
}
