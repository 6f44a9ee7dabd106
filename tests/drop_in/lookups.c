// SPDX-License-Identifier: Apache-2.0
// Prints the driver's answers to cuGetProcAddress for every function of functions.inc, in all
// versions and for both default streams. An address is printed as the symbol that the library
// exports there, so that libraries with the same answers print the same lines.
//
// Usage: lookups LIBRARY
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef int (*Lookup)(const char*, void**, int, uint64_t);
typedef int (*LookupV2)(const char*, void**, int, uint64_t, int*);

struct Function {
  const char* name;
  int version;
  const char* symbol;
  void* address;
};
static struct Function functions[] = {
#define GPUSHARED_FUNCTION(name, version, symbol, stream, handler, hook) {#name, version, #symbol, NULL},
#include "client_lib/drop_in/functions.inc"
#undef GPUSHARED_FUNCTION
};
enum { kCount = sizeof functions / sizeof *functions };

static const char* SymbolAt(const void* address) {
  if (address == NULL) return "nothing";
  for (int i = 0; i < kCount; ++i) {
    if (functions[i].address == address) return functions[i].symbol;
  }
  return "a function of another name";
}

static void AskAll(const char* form, Lookup old, LookupV2 new) {
  for (int i = 0; i < kCount; ++i) {
    const int version = functions[i].version;
    const int versions[] = {version - 10, version, version + 10, 99990};
    for (int j = 0; j < 4; ++j) {
      // No flag, legacy, per thread, and both flags at once.
      for (uint64_t flags = 0; flags < 4; ++flags) {
        void* address = &address;  // Not a function's address.
        int status = -1;
        const int code = new != NULL ? new(functions[i].name, &address, versions[j], flags, &status)
                                     : old(functions[i].name, &address, versions[j], flags);
        const char* const symbol = address == &address ? "as before" : SymbolAt(address);
        printf("%s %s %d %d: code %d status %d %s\n", form, functions[i].name, versions[j],
               (int)flags, code, status, symbol);
      }
    }
  }
}

int main(int argc, char** argv) {
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: lookups LIBRARY");
    return 2;
  }
  for (int i = 0; i < kCount; ++i) functions[i].address = dlsym(library, functions[i].symbol);
  const Lookup old = __extension__(Lookup) dlsym(library, "cuGetProcAddress");
  const LookupV2 new = __extension__(LookupV2) dlsym(library, "cuGetProcAddress_v2");
  const LookupV2 per_thread = __extension__(LookupV2) dlsym(library, "cuGetProcAddress_v2_ptsz");
  // Programs look up cuGetProcAddress first, and all other functions with the result.
  void* given = NULL;
  if (new != NULL && new("cuGetProcAddress", &given, 12000, 0, NULL) == 0 && given != NULL) {
    AskAll("given", NULL, __extension__(LookupV2) given);
  }
  if (new != NULL) AskAll("v2", NULL, new);
  // The drop-in always exports this function; it returns 801 if the installed driver lacks the
  // function.
  void* unused = NULL;
  if (per_thread != NULL && per_thread("cuInit", &unused, 2000, 0, NULL) != 801) {
    AskAll("v2_ptsz", NULL, per_thread);
  }
  if (old != NULL) AskAll("v1", old, NULL);
  if (new != NULL) {
    void* address = NULL;
    int status = -1;
    const int code = new("cuNoSuchCall", &address, 13000, 0, &status);
    printf("unknown: code %d status %d %s\n", code, status, SymbolAt(address));
  }
  return 0;
}
